//! Planted bugs, which the simulator must find.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::{
    Claim, ClaimRequest, Clock as _, Fence, INTERNAL_TENANT, Lease, OperationId, Permit, RecordId,
};
use tokio::time::Instant;

use super::ledger::{Booked, Effect};
use super::node::{Health, Request, book};
use super::world::World;
use crate::history::{Answer, Outcome};
use crate::open_store::StoreMutant;

/// A bug to plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// A bug in the store.
    Store(StoreMutant),
    /// The handler runs although the claim timed out.
    RunsOnTimedOutClaim,
    /// Looks in the cache, then locks, does not look again, and unlocks unconditionally, as
    /// widespread tutorials do.
    LookThenLock,
    /// A permit that is dropped frees the key.
    ReleaseOnDrop,
    /// A lapsed owner is replaced although the effect is neither fenced nor idempotent.
    BlindTakeover,
    /// The reconciler takes "still unknown" for "it did not happen".
    UnknownMeansNo,
    /// The reconciler asks without a lease on the question.
    AsksWithoutLease,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 13] = [
        Self::Store(StoreMutant::OwnerCheckDropped),
        Self::Store(StoreMutant::MarkerDeletedByTtl),
        Self::Store(StoreMutant::StaleRenewalAccepted),
        Self::Store(StoreMutant::FingerprintIgnored),
        Self::Store(StoreMutant::TakeoverForgotten),
        Self::Store(StoreMutant::LateRenewalBlocks),
        Self::Store(StoreMutant::EvidenceFenceIgnored),
        Self::RunsOnTimedOutClaim,
        Self::LookThenLock,
        Self::ReleaseOnDrop,
        Self::BlindTakeover,
        Self::UnknownMeansNo,
        Self::AsksWithoutLease,
    ];

    /// Its name on the command line, such as `look-then-lock`.
    pub fn name(&self) -> String {
        let name = match self {
            Self::Store(mutant) => format!("{mutant:?}"),
            mutant => format!("{mutant:?}"),
        };
        let kebab = |text: String, letter: char| match letter {
            'A'..='Z' if text.is_empty() => letter.to_ascii_lowercase().to_string(),
            'A'..='Z' => format!("{text}-{}", letter.to_ascii_lowercase()),
            _ => text + &letter.to_string(),
        };
        name.chars().fold(String::new(), kebab)
    }
}

/// State of the look-then-lock service: a cache of replies, and locks that expire.
#[derive(Debug, Default)]
pub(super) struct Naive {
    cache: HashMap<RecordId, Outcome>,
    locks: HashMap<RecordId, Instant>,
}

/// Serves a request as those tutorials do.
pub(super) async fn look_then_lock(
    world: &Arc<World>,
    health: &Health,
    request: &Request,
) -> Answer {
    health.gate().await;
    world.travel().await;
    if let Some(outcome) = world.naive.lock().cache.get(&request.record) {
        let same = outcome.fingerprint == request.intent.fingerprint;
        return if same { Answer::Replay(outcome.clone()) } else { Answer::Mismatch };
    }
    health.gate().await;
    world.travel().await;
    {
        let mut naive = world.naive.lock();
        let lock = naive.locks.get(&request.record);
        if lock.is_some_and(|until| Instant::now() < *until) {
            return Answer::Running;
        }
        naive.locks.insert(request.record, Instant::now() + world.plan.policy.lease());
    }
    let Some(Booked::Yes(outcome)) = book(world, health, unclaimed(world, request)).await else {
        return Answer::NoWord;
    };
    health.gate().await;
    world.travel().await;
    world.naive.lock().cache.insert(request.record, outcome.clone());
    health.gate().await;
    world.travel().await;
    world.naive.lock().locks.remove(&request.record);
    Answer::First { result: outcome, durable: false }
}

/// Runs the handler without knowing whether the claim was granted.
pub(super) async fn run_without_a_claim(
    world: &Arc<World>,
    health: &Health,
    request: &Request,
) -> Answer {
    match book(world, health, unclaimed(world, request)).await {
        Some(Booked::Yes(result)) => Answer::First { result, durable: false },
        _ => Answer::NoWord,
    }
}

/// Changes the answer to a claim: for the mutant, the lease of every question is granted.
pub(super) fn question_granted(world: &World, request: &ClaimRequest, claim: Claim) -> Claim {
    let question = request.scope.tenant() == INTERNAL_TENANT;
    match claim {
        Claim::Running { operation, .. }
            if question && world.mutant == Some(Mutant::AsksWithoutLease) =>
        {
            let lease = Lease { fence: Fence(0), until: world.clock.now() };
            Claim::Granted { lease, operation, attempt: 1 }
        }
        claim => claim,
    }
}

/// Drops the permit of a handler that gives up. The mutant frees the key.
pub(super) async fn give_up(world: &World, permit: Permit) -> Answer {
    if world.mutant == Some(Mutant::ReleaseOnDrop) {
        let _freed = permit.release().await;
    }
    Answer::NoWord
}

fn unclaimed(world: &World, request: &Request) -> Effect {
    let ambient = crate::clock::SimAmbient { clock: world.clock.clone(), dice: world.dice.clone() };
    Effect {
        record: request.record,
        operation: OperationId::draw(&ambient, &request.record),
        fingerprint: request.intent.fingerprint,
        fence: Fence(0),
        attempt: request.attempt,
    }
}
