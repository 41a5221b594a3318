//! The history of a run: the store's transitions, the effects, and the clients' answers.
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

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A call reached the store.
    Transition(Box<Transition>),
    /// An effect reached the ledger and took place.
    Effect {
        /// The record.
        record: RecordId,
        /// The fence of the grant.
        fence: Fence,
        /// The attempt that caused it.
        attempt: Attempt,
    },
    /// A client sent an attempt.
    Sent {
        /// The attempt.
        attempt: Attempt,
        /// The record.
        record: RecordId,
    },
    /// A reconciler asks the resolver about a record.
    Asked {
        /// The record.
        record: RecordId,
        /// The fence that the question is about.
        fence: Fence,
    },
    /// The program answered an attempt. The client may not have received the answer.
    Answered {
        /// The attempt.
        attempt: Attempt,
        /// The record.
        record: RecordId,
        /// Fingerprint of the request.
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
    /// The call.
    pub call: StoreCall,
    /// The record before.
    pub before: Option<Record>,
    /// The record after.
    pub after: Option<Record>,
}

/// A call of the store, with the holder or the fence that it named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the calls")]
pub enum StoreCall {
    Claim,
    Renew { holder: Holder, applied: bool },
    Settle { holder: Holder, applied: bool },
    Resolve { fence: Fence, applied: bool },
    Purge,
}

/// The program's answer to an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The work was done for this attempt.
    First {
        /// Its outcome.
        result: Outcome,
        /// True if the program reported it as stored.
        durable: bool,
    },
    /// The work was done before.
    Replay(Outcome),
    /// Another attempt is running.
    Running,
    /// The outcome is unknown.
    Unknown,
    /// The key was used for another request.
    Mismatch,
    /// The key is past its retention.
    Expired,
    /// The store is unavailable; nothing was done.
    Unavailable,
    /// The work failed without an effect, and the key is free.
    Released,
    /// The work was begun, and its outcome does not count or is not known.
    NoWord,
}

/// A simulated outcome, which names its request and grant.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The record.
    pub record: RecordId,
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// Fence of the grant that produced it.
    pub fence: Fence,
    /// Success or failure.
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

    /// Number of events that match, for coverage.
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

    /// The record's state before the call, lapse and expiry included, at the store's time.
    pub fn standing_before(&self) -> Option<StateName> {
        self.before.as_ref().and_then(|record| record.standing(self.at))
    }

    /// The stored state before the call.
    pub fn stored_before(&self) -> Option<StateName> {
        self.before.as_ref().map(|record| record.state.name())
    }

    /// The stored state after the call.
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

/// Shows only the state and the grant, because a history has hundreds of transitions.
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
