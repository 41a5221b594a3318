//! The simulator: runs the production engine and reconciler on several nodes, in simulated time,
//! with lost messages, crashes, pauses and jumping clocks.
//!
//! A seed decides everything: the number of nodes and clients, the policy, the rates of faults,
//! and every random choice. [`run`] returns the report of one seed; the program `onceward-sim`
//! runs many.

mod authority;
mod client;
mod ledger;
mod link;
mod mutant;
mod node;
mod plan;
mod world;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::history::{Event, Violation};
pub use mutant::Mutant;
pub use plan::Plan;

/// Report of one seed.
#[derive(Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The conditions that the seed chose.
    pub plan: Plan,
    /// The history.
    pub events: Vec<Event>,
    /// Invariants that did not hold.
    pub violations: Vec<Violation>,
    /// Number of occurrences of each fault and situation.
    pub coverage: Coverage,
}

impl Report {
    /// A digest of the history: equal for equal runs.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for event in &self.events {
            format!("{event:?}").hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Number of occurrences of each fault and situation.
pub type Coverage = BTreeMap<&'static str, u64>;

/// Faults and situations that must occur in a long run, or it proves nothing.
pub const SITUATIONS: [&str; 59] = [
    "answer to a client lost",
    "answer: done",
    "answer: done, not yet stored",
    "answer: expired",
    "answer: mismatch",
    "answer: no word",
    "answer: nothing happened",
    "answer: replay",
    "answer: running",
    "answer: unavailable",
    "answer: unknown",
    "answered before the outcome was stored",
    "claim cancelled by its caller",
    "claim granted: expired before",
    "claim granted: new",
    "claim granted: released before",
    "claim granted: takeover",
    "client hung up",
    "deadline seen before the effect",
    "effect",
    "effect lost on its way",
    "effect refused by the ledger",
    "effect's acknowledgement lost",
    "handler gave up after its effect",
    "handler gave up before its effect",
    "lapse seen by a claim",
    "late completion accepted",
    "late duplicate of a released claim",
    "message late",
    "node crashed",
    "node stood still",
    "outcome dropped, tombstone kept",
    "question to the resolver lost",
    "reconciler asked",
    "reconciler: did not happen",
    "reconciler: happened",
    "reconciler: not due",
    "reconciler: over budget",
    "reconciler: round failed",
    "reconciler: settled elsewhere",
    "reconciler: still unknown",
    "released after a takeover",
    "renewal applied",
    "renewal refused",
    "reply of the store lost",
    "request to a node lost",
    "request to the store doubled",
    "request to the store lost",
    "resolved: did not happen",
    "resolved: happened",
    "resolver did not know",
    "resolver's answer lost",
    "settlement refused",
    "settlement refused by the store",
    "settlement repeated",
    "store refused service",
    "store went down",
    "store's clock jumped back",
    "store's clock jumped forward",
];

/// Runs one seed, with a planted bug if given.
pub fn run(seed: u64, mutant: Option<Mutant>) -> Report {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    let runtime = runtime.expect("a current-thread runtime");
    runtime.block_on(world::run(seed, mutant))
}
