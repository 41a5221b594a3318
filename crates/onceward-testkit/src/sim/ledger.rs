//! The ledger: effects take place in it, independent of any store.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::{Ended, Fence, Fingerprint, OperationId, Record, RecordId, Verdict};
use parking_lot::Mutex;

use super::node;
use crate::history::{Attempt, Event, History, Outcome};

/// An effect on its way to the ledger.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effect {
    pub(super) record: RecordId,
    pub(super) operation: OperationId,
    pub(super) fingerprint: Fingerprint,
    pub(super) fence: Fence,
    pub(super) attempt: Attempt,
}

/// The ledger's answer to an effect.
#[derive(Debug, Clone)]
pub(super) enum Booked {
    /// It took place, now or earlier (in a ledger that recognises operations).
    Yes(Outcome),
    /// It is refused for good: its fence is too low, or the operation was closed.
    Refused,
}

/// Protection of the ledger itself against repeated effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// It books every effect that arrives.
    None,
    /// It refuses lower fences and books each operation once, as takeover requires.
    FencedAndIdempotent,
}

/// The ledger.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    care: Care,
    books: Arc<Mutex<Books>>,
    history: History,
}

#[derive(Debug, Default)]
struct Books {
    by_operation: HashMap<OperationId, Outcome>,
    highest: HashMap<RecordId, Fence>,
    /// The highest fence of each record whose operation was closed.
    closed: HashMap<RecordId, Fence>,
}

impl Ledger {
    pub(super) fn new(care: Care, history: History) -> Self {
        Self { care, books: Arc::default(), history }
    }

    /// Books an effect, or refuses it.
    pub(super) fn book(&self, effect: &Effect) -> Booked {
        let mut books = self.books.lock();
        if books.closed.get(&effect.record).is_some_and(|closed| effect.fence <= *closed) {
            return Booked::Refused;
        }
        if self.care == Care::FencedAndIdempotent {
            if let Some(before) = books.by_operation.get(&effect.operation) {
                return Booked::Yes(before.clone());
            }
            let highest = books.highest.entry(effect.record).or_default();
            if effect.fence < *highest {
                return Booked::Refused;
            }
            *highest = effect.fence;
        }
        let outcome = Outcome {
            record: effect.record,
            fingerprint: effect.fingerprint,
            fence: effect.fence,
            ended: Ended::Completed,
            bytes: node::reply_bytes(effect, Ended::Completed),
        };
        books.by_operation.insert(effect.operation, outcome.clone());
        let Effect { record, fence, attempt, .. } = *effect;
        self.history.push(Event::Effect { record, fence, attempt });
        Booked::Yes(outcome)
    }
}

impl Ledger {
    /// Returns whether an operation took place. If not, it closes the operation for this fence and
    /// lower ones, so that "it did not happen" stays true.
    pub(super) fn look_up(&self, record: &Record) -> Verdict {
        let mut books = self.books.lock();
        if let Some(outcome) = books.by_operation.get(&record.operation) {
            return Verdict::Happened(node::stored(outcome));
        }
        let closed = books.closed.entry(record.id).or_default();
        *closed = record.fence.max(*closed);
        Verdict::DidNotHappen
    }
}
