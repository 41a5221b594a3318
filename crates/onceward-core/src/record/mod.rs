//! Records: what a store keeps for each intent.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | `Record`, its states and their retention |
//! | `holder` | fence and owner token of a grant |
//! | `outcome` | the stored result |
//! | `key_link` | the link from a key's record to its business reference |
//! | `operation_status` | a record as a status page shows it |
//! | `unknown_cause` | why an outcome is unknown |

mod holder;
mod key_link;
mod operation_status;
mod outcome;
mod unknown_cause;

use std::fmt;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::intent::{Fingerprint, Key, OperationId, RecordId, RequestPath, Scope, Sketch};

pub use holder::{Fence, Holder, OwnerToken};
pub use key_link::KeyLink;
pub use operation_status::OperationStatus;
pub use outcome::{Content, Ended, ErrorCode, Outcome, Replay, Resource, Tag, Unreadable};
pub use unknown_cause::{CauseText, UnknownCause};

/// The stored state of one intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its id.
    pub id: RecordId,
    /// Its operation's public id. Stays across release and takeover of the same intent.
    pub operation: OperationId,
    /// Tenant, caller and operation name, for operators.
    pub scope: Scope,
    /// The client's key, only where the policy keeps it.
    pub key: Option<Key>,
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// Sketch of the request's parts, to explain a mismatch.
    pub sketch: Sketch,
    /// The path that the request was sent to, for operators.
    pub path: Option<RequestPath>,
    /// The stored state; see [`Record::standing`] for the state at a time.
    pub state: State,
    /// The token of the last grant.
    pub owner: OwnerToken,
    /// The fence of the last grant.
    pub fence: Fence,
    /// Number of grants.
    pub attempts: u32,
    /// True if the lease of an earlier owner lapsed. The last owner can then say what it did
    /// itself, but not that nothing happened.
    pub taken_over: bool,
    /// Time of the first grant, on the store's clock.
    pub created_at: Timestamp,
    /// Time of the last change, on the store's clock.
    pub updated_at: Timestamp,
}

/// A version of a record. Every change of a settled record changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordVersion {
    /// The record's id.
    pub id: RecordId,
    /// The fence of the last grant.
    pub fence: Fence,
    /// The stored state.
    pub state: StateName,
    /// Time of the last change, on the store's clock.
    pub updated_at: Timestamp,
}

/// State of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// An owner works on it while its lease lasts. Time never removes it: a lapsed lease is
    /// [`State::Unknown`] to all but its own holder.
    Running {
        /// When the lease lapses.
        lease_until: Timestamp,
    },
    /// It succeeded. Final until retention ends.
    Completed {
        /// The outcome.
        outcome: Outcome,
        /// End of its retention.
        retained: Retained,
    },
    /// It failed for good, and every retry gets the same failure.
    Failed {
        /// The outcome.
        outcome: Outcome,
        /// End of its retention.
        retained: Retained,
    },
    /// Nothing happened; the key is free. Kept so that fences keep increasing and a late
    /// duplicate of the old claim is recognised.
    Released {
        /// End of its retention.
        retained: Retained,
    },
    /// It cannot be proved what happened. Ends only by its holder's late settlement or by
    /// evidence, never by time.
    Unknown {
        /// Why it is unknown.
        cause: UnknownCause,
    },
    /// The outcome is past its retention and was dropped; the key is not new yet.
    Expired {
        /// End of the tombstone.
        retained: Retained,
    },
}

/// End of a settled record's retention, on the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retained {
    /// Until then the outcome is replayed.
    pub until: Timestamp,
    /// Until then the key is answered as expired; after that it is new. Equal to `until`
    /// where the policy keeps no tombstone.
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

    /// The name in lower case, for programs.
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
    /// The state's name.
    pub const fn name(&self) -> StateName {
        match self {
            Self::Running { .. } => StateName::Running,
            Self::Completed { .. } => StateName::Completed,
            Self::Failed { .. } => StateName::Failed,
            Self::Released { .. } => StateName::Released,
            Self::Unknown { .. } => StateName::Unknown,
            Self::Expired { .. } => StateName::Expired,
        }
    }

    /// The end of its retention; `None` while it is running or unknown.
    pub const fn retained(&self) -> Option<Retained> {
        match self {
            Self::Running { .. } | Self::Unknown { .. } => None,
            Self::Completed { retained, .. }
            | Self::Failed { retained, .. }
            | Self::Released { retained }
            | Self::Expired { retained } => Some(*retained),
        }
    }

    /// The end of the lease, if it is running.
    pub const fn lease_until(&self) -> Option<Timestamp> {
        match self {
            Self::Running { lease_until } => Some(*lease_until),
            _ => None,
        }
    }

    /// True if it is running or unknown: it has no outcome yet.
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Running { .. } | Self::Unknown { .. })
    }

    /// The outcome, if it is completed or failed.
    pub const fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Completed { outcome, .. } | Self::Failed { outcome, .. } => Some(outcome),
            _ => None,
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Completed { outcome, .. } | Self::Failed { outcome, .. } => outcome.heap_bytes(),
            Self::Unknown { cause } => cause.heap_bytes(),
            Self::Running { .. } | Self::Released { .. } | Self::Expired { .. } => 0,
        }
    }
}

impl Record {
    /// True if `holder` has the current grant.
    pub fn held_by(&self, holder: &Holder) -> bool {
        self.owner == holder.owner && self.fence == holder.fence
    }

    /// Its version.
    pub const fn version(&self) -> RecordVersion {
        let Self { id, fence, updated_at, .. } = *self;
        RecordVersion { id, fence, state: self.state.name(), updated_at }
    }

    /// The state at `now`: a lapsed lease stands at unknown, a record past its retention at
    /// expired, and a record past its tombstone is gone (`None`).
    ///
    /// A store writes a lapse when it first answers a claim with unknown, and an expiry when it
    /// sweeps. Until then the stored state is the old one.
    pub fn standing(&self, now: Timestamp) -> Option<StateName> {
        match &self.state {
            State::Running { lease_until } if now >= *lease_until => Some(StateName::Unknown),
            State::Running { .. } => Some(StateName::Running),
            State::Unknown { .. } => Some(StateName::Unknown),
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

    /// Why it stands at unknown at `now`: the stored cause, or the lapse of its lease. `None` if it
    /// does not.
    pub fn unknown_cause(&self, now: Timestamp) -> Option<UnknownCause> {
        match &self.state {
            State::Unknown { cause } => Some(cause.clone()),
            State::Running { lease_until } if now >= *lease_until => Some(UnknownCause::Lapsed),
            _ => None,
        }
    }

    /// About how many bytes of memory the record takes, heap included.
    pub fn bytes(&self) -> usize {
        size_of::<Record>()
            + self.scope.heap_bytes()
            + self.sketch.as_bytes().len()
            + self.path.as_ref().map_or(0, RequestPath::heap_bytes)
            + self.key.as_ref().map_or(0, |key| key.expose().len())
            + self.state.heap_bytes()
    }
}

/// Retention of an outcome, and of a tombstone after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Time after the settlement in which the outcome is replayed.
    pub keep: Duration,
    /// Further time in which the key is answered as expired; zero for none.
    pub tombstone: Duration,
}

impl Retention {
    pub(crate) fn from(self, now: Timestamp) -> Retained {
        let until = now + self.keep;
        Retained { until, tombstone_until: until + self.tombstone }
    }
}
