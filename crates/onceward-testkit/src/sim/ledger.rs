//! Where effects take place: the business's own books, independent of any store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use onceward_core::{
    BoxError, Ended, Fence, Finding, Fingerprint, OperationId, Record, RecordId, Resolver, Since,
    Verdict,
};
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

/// What the ledger says to an effect.
#[derive(Debug, Clone)]
pub(super) enum Booked {
    /// It took place, now or (in a ledger that recognises operations) before.
    Yes(Outcome),
    /// It is refused for good: its fence is too low, or the operation was closed.
    Refused,
}

/// How careful the business is itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// It books whatever arrives.
    None,
    /// It refuses lower fences and books each operation once: what takeover asks for.
    FencedAndIdempotent,
}

/// The business's books.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    care: Care,
    books: Arc<Mutex<Books>>,
    history: History,
}

#[derive(Debug, Default)]
struct Books {
    booked: HashMap<(RecordId, Fence), Outcome>,
    by_operation: HashMap<OperationId, Outcome>,
    highest: HashMap<RecordId, Fence>,
    closed: HashSet<(RecordId, Fence)>,
}

impl Ledger {
    pub(super) fn new(care: Care, history: History) -> Self {
        Self { care, books: Arc::default(), history }
    }

    /// An effect arrives.
    pub(super) fn book(&self, effect: &Effect) -> Booked {
        let mut books = self.books.lock();
        if books.closed.contains(&(effect.record, effect.fence)) {
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
        books.booked.insert((effect.record, effect.fence), outcome.clone());
        books.by_operation.insert(effect.operation, outcome.clone());
        let Effect { record, fence, attempt, .. } = *effect;
        self.history.push(Event::Effect { record, fence, attempt });
        Booked::Yes(outcome)
    }
}

/// Asks the ledger, and where it finds nothing has it refuse the operation from now on: only
/// then is "it did not happen" true for good.
#[async_trait]
impl Resolver for Ledger {
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError> {
        let mut books = self.books.lock();
        let key = (record.id, record.fence);
        if let Some(outcome) = books.booked.get(&key) {
            return Ok(Verdict::Happened(node::stored(outcome)).into());
        }
        books.closed.insert(key);
        Ok(Verdict::DidNotHappen.into())
    }

    /// It books every effect there is.
    fn since(&self) -> Since {
        Since::Always
    }
}
