//! Replies of the scripts, in types of the core.

use std::time::Duration;

use bytes::Bytes;
use onceward_core::{
    Claim, Fence, Fenced, Imported, Lease, OperationId, Sketch, StoreError, Timestamp,
};
use redis::Value;

use super::codec::{self, Undecodable};
use super::error::{undecodable, unexpected};

/// The reply of a script: a word and its values.
#[derive(Debug)]
pub(super) struct ScriptReply(Vec<Option<Bytes>>);

/// A bucket's loss marker, as a script reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Marker {
    /// Empty if there is no marker.
    pub(super) epoch: String,
    /// Time from which claims are granted; zero if nothing was ever lost.
    pub(super) open_at: Timestamp,
    /// The server's time.
    pub(super) now: Timestamp,
}

impl Marker {
    /// True if a process that knew the epoch `known` has found a loss: the marker is missing, or
    /// was created by a process that took the server for a new one.
    pub(super) fn is_of_a_loss(&self, known: &str) -> bool {
        let unaware = self.epoch.is_empty() || self.open_at == Timestamp::default();
        self.epoch != known && unaware
    }
}

/// A reply, or the marker of a bucket that lost data.
#[derive(Debug)]
pub(super) enum MaybeLost<T> {
    Reply(T),
    Lost(Marker),
}

impl ScriptReply {
    pub(super) fn read(value: Value) -> Result<Self, StoreError> {
        redis::from_redis_value(value)
            .map(Self)
            .map_err(|_| unexpected("a reply that is no list of words"))
    }

    pub(super) fn word(&self) -> &[u8] {
        self.0.first().and_then(Option::as_deref).unwrap_or_default()
    }

    pub(super) fn claim(self) -> Result<MaybeLost<Claim>, StoreError> {
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
            b"lost" => return self.mark(1).map(MaybeLost::Lost),
            _ => return Err(unexpected("an unknown reply to a claim")),
        };
        Ok(MaybeLost::Reply(claim))
    }

    pub(super) fn imported(self) -> Result<MaybeLost<Imported>, StoreError> {
        Ok(MaybeLost::Reply(match self.word() {
            b"written" => Imported::Written,
            b"kept" => Imported::Kept,
            b"lost" => return self.mark(1).map(MaybeLost::Lost),
            _ => return Err(unexpected("an unknown reply to an import")),
        }))
    }

    /// Reads the reply to a call that needs the current fence; `applied` reads the values.
    pub(super) fn fenced<T>(
        self,
        applied: impl FnOnce(&Self) -> Result<T, StoreError>,
    ) -> Result<MaybeLost<Fenced<T>>, StoreError> {
        Ok(MaybeLost::Reply(match self.word() {
            b"applied" => Fenced::Applied(applied(&self)?),
            b"stale" => Fenced::Stale,
            b"missing" => Fenced::Missing,
            b"lost" => return self.mark(1).map(MaybeLost::Lost),
            _ => return Err(unexpected("an unknown reply to a holder")),
        }))
    }

    /// Reads a marker from a position on.
    pub(super) fn mark(&self, at: usize) -> Result<Marker, StoreError> {
        let epoch = self.text(at)?.to_owned();
        Ok(Marker { epoch, open_at: self.time(at + 1)?, now: self.time(at + 2)? })
    }

    pub(super) fn time(&self, at: usize) -> Result<Timestamp, StoreError> {
        self.number(at).map(Timestamp::from_millis)
    }

    fn text(&self, at: usize) -> Result<&str, StoreError> {
        let value = self.0.get(at).and_then(Option::as_deref);
        let text = value.and_then(|value| std::str::from_utf8(value).ok());
        text.ok_or_else(|| unexpected("a reply that lacks a word"))
    }

    fn number<N: std::str::FromStr>(&self, at: usize) -> Result<N, StoreError> {
        self.text(at)?.parse().map_err(|_| unexpected("a reply with a word instead of a number"))
    }

    fn operation(&self, at: usize) -> Result<OperationId, StoreError> {
        codec::operation(self.text(at)?.as_bytes()).map_err(unreadable)
    }

    fn outcome(&self) -> Result<onceward_core::Outcome, StoreError> {
        let part = |at: usize| self.0.get(at).cloned().flatten();
        codec::take_outcome([2, 3, 4, 5, 6, 7, 8].map(part)).map_err(unreadable)
    }
}

/// The error of a field that cannot be read.
pub(super) fn unreadable(Undecodable(field): Undecodable) -> StoreError {
    undecodable(field)
}
