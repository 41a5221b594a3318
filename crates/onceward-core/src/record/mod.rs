//! What a store keeps per intent.

mod holder;
mod key_link;
mod operation;
mod outcome;

use std::fmt;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::intent::{Fingerprint, Key, OperationId, RecordId, Scope, Sketch};

pub use holder::{Fence, Holder, OwnerToken};
pub use key_link::Follow;
pub use operation::Operation;
pub use outcome::{Content, Ended, Outcome, Replay, Resource, Tag, Unreadable};

/// All that is known about one intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Under which it is stored.
    pub id: RecordId,
    /// Its public name. Stays across release and takeover of the same intent.
    pub operation: OperationId,
    /// Whose it is, for operators.
    pub scope: Scope,
    /// The client's key, only where the policy says to keep it.
    pub key: Option<Key>,
    /// What was asked for.
    pub fingerprint: Fingerprint,
    /// What to compare a mismatching request's parts with.
    pub sketch: Sketch,
    /// Where the operation stands.
    pub state: State,
    /// The token of the last grant.
    pub owner: OwnerToken,
    /// The fence of the last grant.
    pub fence: Fence,
    /// How often the intent was granted.
    pub attempts: u32,
    /// Whether an owner before the last one lapsed. Then the last one can say what it did
    /// itself, but not that nothing happened.
    pub taken_over: bool,
    /// First grant, on the store's clock.
    pub created_at: Timestamp,
    /// Last change, on the store's clock.
    pub updated_at: Timestamp,
}

/// Where an operation stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Somebody works on it, as long as the lease lasts. Never ends by a time to live: a
    /// lapsed lease is [`State::Unknown`] to everybody but its own holder.
    Running {
        /// When the lease lapses.
        lease_until: Timestamp,
    },
    /// It succeeded. Final until retention ends.
    Completed {
        /// What it came to.
        outcome: Outcome,
        /// How long that is kept.
        retained: Retained,
    },
    /// It failed for good, and every retry gets the same failure.
    Failed {
        /// What it came to.
        outcome: Outcome,
        /// How long that is kept.
        retained: Retained,
    },
    /// Nothing happened; the key is free. Kept so that the fence goes on increasing and a
    /// late duplicate of the old claim is recognised.
    Released {
        /// How long that is kept.
        retained: Retained,
    },
    /// Nobody can prove what happened. Left only by its holder's late word or by evidence,
    /// never by time.
    Unknown,
    /// The outcome is past its retention and was dropped; the key still is not new.
    Expired {
        /// How long the tombstone is kept.
        retained: Retained,
    },
}

/// How long a settled record counts, on the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retained {
    /// Until then the record answers.
    pub until: Timestamp,
    /// Until then its key is answered as expired; afterwards the key is new. Equal to
    /// `until` where the policy forgets.
    pub tombstone_until: Timestamp,
}

/// A state without its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the states are described at `State`")]
pub enum StateName {
    Running,
    Completed,
    Failed,
    Released,
    Unknown,
    Expired,
}

impl StateName {
    /// All states, in the order of their declaration.
    pub const ALL: [StateName; 6] = [
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Released,
        Self::Unknown,
        Self::Expired,
    ];

    /// Its name for programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Released => "released",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl State {
    /// Which state it is.
    pub const fn name(&self) -> StateName {
        match self {
            Self::Running { .. } => StateName::Running,
            Self::Completed { .. } => StateName::Completed,
            Self::Failed { .. } => StateName::Failed,
            Self::Released { .. } => StateName::Released,
            Self::Unknown => StateName::Unknown,
            Self::Expired { .. } => StateName::Expired,
        }
    }

    /// How long the state is kept; `None` while it is running or unknown.
    pub const fn retained(&self) -> Option<Retained> {
        match self {
            Self::Running { .. } | Self::Unknown => None,
            Self::Completed { retained, .. }
            | Self::Failed { retained, .. }
            | Self::Released { retained }
            | Self::Expired { retained } => Some(*retained),
        }
    }

    /// What the operation came to, where that is settled.
    pub const fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Completed { outcome, .. } | Self::Failed { outcome, .. } => Some(outcome),
            _ => None,
        }
    }
}

impl Record {
    /// Whether `holder` was given the current grant.
    pub fn held_by(&self, holder: &Holder) -> bool {
        self.owner == holder.owner && self.fence == holder.fence
    }

    /// What the stored state means at `now`: a lapsed lease is unknown, what is past its
    /// retention is expired, and what is past that too is gone (`None`).
    ///
    /// A store writes a lapse down when it first tells somebody that the outcome is unknown,
    /// and what is past its time when it sweeps; until then the stored state is as it was.
    pub fn standing(&self, now: Timestamp) -> Option<StateName> {
        match &self.state {
            State::Running { lease_until } if now >= *lease_until => Some(StateName::Unknown),
            State::Running { .. } => Some(StateName::Running),
            State::Unknown => Some(StateName::Unknown),
            settled => {
                let retained = settled.retained()?;
                if now >= retained.tombstone_until {
                    None
                } else if now >= retained.until {
                    Some(StateName::Expired)
                } else {
                    Some(settled.name())
                }
            }
        }
    }

    /// About how much memory the record takes, its heap included.
    pub fn bytes(&self) -> usize {
        size_of::<Record>()
            + self.scope.heap_bytes()
            + self.sketch.as_bytes().len()
            + self.key.as_ref().map_or(0, |key| key.expose().len())
            + self.state.outcome().map_or(0, Outcome::heap_bytes)
    }
}

/// How long to keep what is settled, and how long its tombstone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How long an outcome is replayed after it was settled.
    pub keep: Duration,
    /// How much longer its key is answered as expired; zero forgets it at once.
    pub tombstone: Duration,
}

impl Retention {
    pub(crate) fn from(self, now: Timestamp) -> Retained {
        let until = now + self.keep;
        Retained { until, tombstone_until: until + self.tombstone }
    }
}
