//! What happened in a run: the store's transitions, the effects, and the clients' answers.
//!
//! Effects are counted by an independent ledger, never by the store under test.

mod checker;
mod recorder;

use std::fmt;
use std::sync::Arc;

use onceward_core::{
    Ended, Fence, Fingerprint, Holder, INTERNAL_TENANT, Record, RecordId, State, StateName,
    Timestamp,
};
use parking_lot::Mutex;

pub use checker::{Expectations, Invariant, Violation, check};
pub use recorder::RecordingStore;

/// The position of an event in its run.
pub type Position = usize;

/// One attempt of a client to have an intent carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A call reached the store.
    Transition(Box<Transition>),
    /// An effect reached the ledger and took place.
    Effect {
        /// For which record.
        record: RecordId,
        /// Under which fence.
        fence: Fence,
        /// On whose behalf.
        attempt: Attempt,
    },
    /// A client sent an attempt.
    Sent {
        /// Which.
        attempt: Attempt,
        /// For which record.
        record: RecordId,
    },
    /// A reconciler asks the resolver about a record.
    Asked {
        /// The record.
        record: RecordId,
        /// The fence that the question is about.
        fence: Fence,
    },
    /// The program answered an attempt (whether or not the client heard it).
    Answered {
        /// Which.
        attempt: Attempt,
        /// For which record.
        record: RecordId,
        /// What had been asked for.
        fingerprint: Fingerprint,
        /// The answer.
        answer: Answer,
    },
}

/// A record before and after a call, at the store's time.
#[derive(Clone, PartialEq, Eq)]
pub struct Transition {
    /// The store's time.
    pub at: Timestamp,
    /// The record.
    pub record: RecordId,
    /// What was called.
    pub call: StoreCall,
    /// The record before.
    pub before: Option<Record>,
    /// The record after.
    pub after: Option<Record>,
}

/// A call at the store, with whoever made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the calls")]
pub enum StoreCall {
    Claim,
    Renew { holder: Holder, applied: bool },
    Settle { holder: Holder, applied: bool },
    Resolve { fence: Fence, applied: bool },
    Purge,
}

/// What a program told a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The work was done for this attempt.
    First {
        /// What it came to.
        result: Outcome,
        /// Whether the program said that it is stored.
        durable: bool,
    },
    /// The work was done before.
    Replay(Outcome),
    /// Somebody is at it.
    Running,
    /// Nobody knows.
    Unknown,
    /// The key was used for something else.
    Mismatch,
    /// The key is past its retention.
    Expired,
    /// The store is unavailable; nothing was done.
    Unavailable,
    /// The work was tried and nothing happened.
    Released,
    /// The work was done, or begun, and what came of it does not count or is not known.
    NoWord,
}

/// A simulated outcome: enough to tell whose it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// For which record.
    pub record: RecordId,
    /// For which request.
    pub fingerprint: Fingerprint,
    /// Under which fence it came about.
    pub fence: Fence,
    /// How it ended.
    pub ended: Ended,
    /// The reply, as bytes.
    pub bytes: Vec<u8>,
}

/// All events of a run, in order. Cheap to clone; clones share the log.
#[derive(Debug, Clone, Default)]
pub struct History(Arc<Mutex<Vec<Event>>>);

impl History {
    /// Adds an event.
    pub fn push(&self, event: Event) {
        self.0.lock().push(event);
    }

    /// The events so far.
    pub fn events(&self) -> Vec<Event> {
        self.0.lock().clone()
    }

    /// How often a record went from one standing to another, for coverage.
    pub fn count(&self, wanted: impl Fn(&Event) -> bool) -> u64 {
        self.0.lock().iter().filter(|event| wanted(event)).count() as u64
    }
}

impl Transition {
    /// True if the record is one of Onceward's own, such as a decision or a question's lease.
    pub fn is_internal(&self) -> bool {
        let record = self.after.as_ref().or(self.before.as_ref());
        record.is_some_and(|record| record.scope.tenant() == INTERNAL_TENANT)
    }

    /// Where the record stood before the call, at the store's time.
    pub fn standing_before(&self) -> Option<StateName> {
        self.before.as_ref().and_then(|record| record.standing(self.at))
    }

    /// The state as it was written down before the call.
    pub fn stored_before(&self) -> Option<StateName> {
        self.before.as_ref().map(|record| record.state.name())
    }

    /// The state as it was written down after the call.
    pub fn stored_after(&self) -> Option<StateName> {
        self.after.as_ref().map(|record| record.state.name())
    }

    /// The grant that this call made, if it made one.
    pub fn granted(&self) -> Option<&Record> {
        let after = self.after.as_ref().filter(|_| self.call == StoreCall::Claim)?;
        let moved = self.before.as_ref().is_none_or(|before| before.fence != after.fence);
        moved.then_some(after)
    }
}

/// Short, because a history has hundreds of them; the state and the grant are what counts.
impl fmt::Debug for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |record: &Option<Record>| match record {
            None => "absent".to_owned(),
            Some(it) => {
                let Record { fence, attempts, state, owner, .. } = it;
                let state = match state {
                    State::Running { lease_until } => format!("Running until {lease_until:?}"),
                    state => format!("{}", state.name()),
                };
                format!("[{state}, fence {fence}, attempt {attempts}, {owner:?}]")
            }
        };
        let Self { at, record, call, before, after } = self;
        write!(f, "{at:?} {record:?} {call:?}: {}", short(before))?;
        if before == after { write!(f, " stays") } else { write!(f, " -> {}", short(after)) }
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { record, fingerprint, fence, ended, .. } = self;
        write!(f, "{ended:?} by {fence} of {record:?} {fingerprint:?}")
    }
}
