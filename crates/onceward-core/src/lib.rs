//! The heart of Onceward: **the same intent has one effect and one outcome.**
//!
//! An [`Intent`] is one thing to be done: a [`Scope`] (whose key it is, and for which
//! operation), a [`Key`] (the client's name for it, the same on every attempt) and a
//! [`Fingerprint`] (what exactly is asked for). An [`Engine`] looks at its [`Store`] and
//! decides: execute under a [`Permit`], replay an [`Outcome`], or reject.
//!
//! Where it cannot be proved what happened, the outcome is *unknown* and never guessed; a
//! [`Resolver`] finds it out. The rules are one pure truth table, [`machine`].
//!
//! This crate knows neither HTTP nor a database, and takes time and randomness from
//! outside, so the simulator runs the code that runs in production.
//!
//! Each module uses only those below it:
//!
//! | module | contents |
//! |---|---|
//! | `bulk` | many items under one key |
//! | `run` | typed results of any async function |
//! | `engine` | execute, replay or reject; leases, waiting, shutdown |
//! | `unknown` | resolvers, the reconciler, the decision log |
//! | `sweeper` | removal of expired records |
//! | `policy` | how an operation is protected: every limit with its reason |
//! | `store` | the `Store` traits, the truth table, the memory store, metrics |
//! | `record` | what a store keeps: record, state, outcome |
//! | `intent` | scope, key, fingerprint, business reference, and the ids made from them |
//! | `clock` | time and randomness |
//! | `log` | the fields of log lines about operations; their rate limit |
//! | `per_thread`, `hex` | a value for each thread; bytes as text |

// A panic here would make a known outcome unknown.
#![warn(clippy::unwrap_used, clippy::expect_used)]

mod bulk;
mod clock;
mod engine;
mod hex;
mod intent;
#[doc(hidden)]
pub mod log;
mod per_thread;
mod policy;
mod record;
mod run;
mod store;
mod sweeper;
mod unknown;

pub use bulk::{Bulk, BulkDone, BulkError, BulkItem, InvalidBulk, ItemResult};
pub use clock::{Ambient, Clock, SystemAmbient, Timestamp};
pub use engine::{
    Begin, BeginError, Drained, Engine, EngineBuilder, Grant, LeaseLost, Permit, Rebuilder,
    Rejection, Settled, TokenSource,
};
pub use intent::{
    BusinessReference, Difference, DownstreamKey, Fingerprint, INTERNAL_TENANT, Identity, Intent,
    InvalidKey, InvalidScope, KEY_CHARS_MAX, Key, KnownReference, OperationId, Part, RecordId,
    ReferenceTarget, SCOPE_PART_BYTES_MAX, SKETCH_PARTS_MAX, Scope, ScopePart, Sketch, ToKey,
};
pub use policy::{Disposition, Expiry, InvalidPolicy, OnLapse, Policy, PolicyBuilder, ReplayCheck};
pub use record::{
    CauseText, Content, Ended, ErrorCode, Fence, Holder, KeyLink, OperationStatus, Outcome,
    OwnerToken, Record, Replay, Resource, Retained, Retention, State, StateName, Tag, UnknownCause,
    Unreadable,
};
pub use run::{Done, Failure, Refused, RunError};
pub use store::{
    Claim, ClaimRequest, Effect, Fenced, FullStore, Health, Imported, Lapsed, Lease, LossAccepted,
    MemoryLimits, MemoryStore, Page, Purged, Query, RenewRequest, ResolveRequest, SettleRequest,
    Settlement, Stats, Store, StoreAdmin, StoreError, StoreErrorKind, Verdict, machine,
};
#[cfg(feature = "metrics")]
pub use store::{MeteredStore, Meters};
pub use sweeper::{Sweeper, SweeperRound, SweeperSettings};
pub use unknown::{
    BoxError, Decision, DecisionKind, DecisionLog, Finding, InvalidTemplate, LoggedDecision,
    Placeholder, Reconciler, ReconcilerRound, ReconcilerSettings, Recovery, RecoveryObserver,
    RecoveryStatus, ReplayVerdict, Resolver, Since, Template,
};
