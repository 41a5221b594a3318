//! What scripts answer, in the words of the core.

use std::time::Duration;

use bytes::Bytes;
use onceward_core::{
    Claim, Fence, Fenced, Imported, Lease, OperationId, Sketch, StoreError, Timestamp,
};
use redis::Value;

use super::codec::{self, Undecodable};
use super::error::{undecodable, unexpected};

/// The answer of a script: a word, and what belongs to it.
#[derive(Debug)]
pub(super) struct Answer(Vec<Option<Bytes>>);

/// What a script says of a bucket's mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    /// Empty if there is no mark.
    pub(super) epoch: String,
    /// From when on claims are granted; zero if nothing was ever lost.
    pub(super) open_at: Timestamp,
    /// The server's time.
    pub(super) now: Timestamp,
}

impl Mark {
    /// Whether a process that knew another epoch has found a loss: the mark is missing, or was
    /// made by a process that took the server for a new one.
    pub(super) fn is_of_a_loss(&self, known: &str) -> bool {
        let unaware = self.epoch.is_empty() || self.open_at == Timestamp::default();
        self.epoch != known && unaware
    }
}

/// An answer, or that there is none because data was lost.
#[derive(Debug)]
pub(super) enum Told<T> {
    Answer(T),
    Lost(Mark),
}

impl Answer {
    pub(super) fn read(value: Value) -> Result<Self, StoreError> {
        redis::from_redis_value(value).map(Self).map_err(|_| unexpected("no list of words"))
    }

    pub(super) fn word(&self) -> &[u8] {
        self.0.first().and_then(Option::as_deref).unwrap_or_default()
    }

    pub(super) fn claim(self) -> Result<Told<Claim>, StoreError> {
        let claim = match self.word() {
            b"granted" => Claim::Granted {
                lease: Lease { fence: Fence(self.number(1)?), until: self.time(2)? },
                operation: self.operation(3)?,
                attempt: self.number(4)?,
            },
            b"running" => Claim::Running {
                operation: self.operation(1)?,
                lease_left: Duration::from_millis(self.number(2)?),
            },
            b"completed" => {
                Claim::Completed { operation: self.operation(1)?, outcome: self.outcome()? }
            }
            b"failed" => Claim::Failed { operation: self.operation(1)?, outcome: self.outcome()? },
            b"mismatch" => Claim::Mismatch {
                first: Sketch::from_stored(self.0[1].as_deref().unwrap_or_default()),
            },
            b"unknown" => Claim::Unknown { operation: self.operation(1)? },
            b"expired" => Claim::Expired,
            b"lost" => return self.mark(1).map(Told::Lost),
            _ => return Err(unexpected("not the answer to a claim")),
        };
        Ok(Told::Answer(claim))
    }

    pub(super) fn imported(self) -> Result<Told<Imported>, StoreError> {
        Ok(Told::Answer(match self.word() {
            b"written" => Imported::Written,
            b"kept" => Imported::Kept,
            b"lost" => return self.mark(1).map(Told::Lost),
            _ => return Err(unexpected("not what becomes of a record")),
        }))
    }

    /// The answer to a call that needs the current fence; `applied` reads the rest.
    pub(super) fn fenced<T>(
        self,
        applied: impl FnOnce(&Self) -> Result<T, StoreError>,
    ) -> Result<Told<Fenced<T>>, StoreError> {
        Ok(Told::Answer(match self.word() {
            b"applied" => Fenced::Applied(applied(&self)?),
            b"stale" => Fenced::Stale,
            b"missing" => Fenced::Missing,
            b"lost" => return self.mark(1).map(Told::Lost),
            _ => return Err(unexpected("not the answer to a holder")),
        }))
    }

    /// A mark, from a position on.
    pub(super) fn mark(&self, at: usize) -> Result<Mark, StoreError> {
        let epoch = self.text(at)?.to_owned();
        Ok(Mark { epoch, open_at: self.time(at + 1)?, now: self.time(at + 2)? })
    }

    pub(super) fn time(&self, at: usize) -> Result<Timestamp, StoreError> {
        self.number(at).map(Timestamp::from_millis)
    }

    fn text(&self, at: usize) -> Result<&str, StoreError> {
        let value = self.0.get(at).and_then(Option::as_deref);
        let text = value.and_then(|value| std::str::from_utf8(value).ok());
        text.ok_or_else(|| unexpected("a word of an answer is missing"))
    }

    fn number<N: std::str::FromStr>(&self, at: usize) -> Result<N, StoreError> {
        self.text(at)?.parse().map_err(|_| unexpected("a number of an answer is none"))
    }

    fn operation(&self, at: usize) -> Result<OperationId, StoreError> {
        codec::operation(self.text(at)?.as_bytes()).map_err(unreadable)
    }

    fn outcome(&self) -> Result<onceward_core::Outcome, StoreError> {
        let part = |at: usize| self.0.get(at).cloned().flatten();
        codec::take_outcome([2, 3, 4, 5, 6].map(part)).map_err(unreadable)
    }
}

/// A field of a record that is there and cannot be read.
pub(super) fn unreadable(Undecodable(field): Undecodable) -> StoreError {
    undecodable(field)
}
