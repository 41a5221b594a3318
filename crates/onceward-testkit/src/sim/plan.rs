//! The conditions of a run, chosen by its seed.

use std::time::Duration;

use onceward_core::{Expiry, OnLapse, Policy, ReconcilerSettings};

use crate::dice::Dice;

/// The conditions of one run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Number of nodes on the store.
    pub nodes: usize,
    /// Number of concurrent clients.
    pub clients: usize,
    /// Number of intents of each client.
    pub intents: usize,
    /// Number of keys that the clients share.
    pub keys: usize,
    /// Policy of all operations.
    pub policy: Policy,
    /// The reconciler that every node runs, if there is a resolver.
    pub reconciler: Option<ReconcilerSettings>,
    /// Time during which faults occur.
    pub trouble: Duration,
    /// Rates of faults.
    pub rates: Rates,
}

/// Probabilities of faults, each per occasion.
#[derive(Debug, Clone)]
pub struct Rates {
    /// A message is lost.
    pub lost: f64,
    /// A message takes about a lease instead of about a millisecond.
    pub late: f64,
    /// A message arrives once more, later.
    pub doubled: f64,
    /// The handler panics, or its permit is dropped.
    pub dropped: f64,
    /// The resolver does not know yet.
    pub unsure: f64,
    /// A node crashes, per lease.
    pub crash: f64,
    /// A node pauses, per lease.
    pub pause: f64,
    /// The store refuses service for a while, per lease.
    pub outage: f64,
    /// The store's clock jumps, per lease.
    pub jump: f64,
}

impl Plan {
    /// Chooses the conditions of one run.
    pub fn choose(dice: &Dice) -> Self {
        let lease = dice.millis(40..400);
        let on_lapse =
            *dice.pick(&[OnLapse::Unknown, OnLapse::Unknown, OnLapse::Resolve, OnLapse::Takeover]);
        // Some runs last longer than the retention, so that keys expire in them.
        let retention =
            if dice.chance(0.3) { lease * 3 + dice.millis(0..400) } else { lease * 1_000 };
        let expiry = if dice.chance(0.5) { Expiry::Forget } else { Expiry::Tombstone(lease * 2) };
        let wait = if dice.chance(0.4) { dice.millis(1..800) } else { Duration::ZERO };
        let policy = Policy::builder()
            .lease(lease)
            .retention(retention)
            .expiry(expiry)
            .on_lapse(on_lapse)
            .wait(wait)
            .poll_every(dice.millis(5..50))
            .retry_after(lease / 4)
            .call_timeout(lease / 4)
            .claim_patience(lease * 2)
            .settle_wait(lease)
            .settle_patience(lease * 20)
            .build();
        let policy = policy.expect("every plan is a valid policy");
        let resolver = on_lapse == OnLapse::Resolve || dice.chance(0.5);
        let reconciler = resolver.then(|| ReconcilerSettings {
            every: dice.millis(10..800),
            budget: *dice.pick(&[1, 500]),
            at_once: 1 + dice.index(3),
            patience: lease,
            backoff: dice.millis(1..200),
            backoff_max: lease * 4,
            retention: policy.retention(),
        });
        // Calm runs test races, wild ones test recovery.
        let wildness = *dice.pick(&[0.0, 0.3, 1.0, 1.0, 2.0]);
        let rate = |most: f64| wildness * most * (dice.number(0..100) as f64) / 100.0;
        Self {
            nodes: 1 + dice.index(3),
            clients: 2 + dice.index(8),
            intents: 1 + dice.index(3),
            keys: 1 + dice.index(3),
            policy,
            reconciler,
            trouble: lease * 12,
            rates: Rates {
                lost: rate(0.15),
                late: rate(0.15),
                doubled: rate(0.15),
                dropped: rate(0.2),
                unsure: rate(0.5),
                crash: rate(0.15),
                pause: rate(0.15),
                outage: rate(0.1),
                jump: rate(0.1),
            },
        }
    }
}
