//! The heart of Onceward: **the same intent has one effect and one outcome.**
//!
//! An [`Intent`] is what somebody wants done: a [`Scope`] (whose key it is, and for which
//! operation), a [`Key`] (their name for it, the same on every attempt) and a
//! [`Fingerprint`] (what exactly they asked for). An [`Engine`] decides about it by a
//! [`Store`]: execute under a [`Permit`], replay an [`Outcome`], or reject.
//!
//! Where nobody can prove what happened the answer is *unknown*, and a [`Resolver`] helps
//! to find out; it is never guessed. The rules are one pure truth table in [`machine`].
//!
//! This crate knows neither HTTP nor a database, and takes time and randomness from
//! outside, so the code that runs in production is the code that the simulator runs.

// A panic in here would make an outcome unknown that is known.
#![warn(clippy::unwrap_used, clippy::expect_used)]

mod bulk;
mod clock;
mod engine;
mod hex;
mod intent;
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
    Begin, BeginError, Drained, Engine, EngineBuilder, Grant, Lost, Permit, Rebuilder, Rejection,
    Settled,
};
pub use intent::{
    BusinessReference, Difference, DownstreamKey, Fingerprint, INTERNAL_TENANT, Identity, Intent,
    InvalidKey, InvalidScope, KEY_CHARS_MAX, Key, KnownReference, OperationId, Part, Place,
    RecordId, SCOPE_PART_BYTES_MAX, SKETCH_PARTS_MAX, Scope, ScopePart, Sketch, ToKey,
};
pub use policy::{Disposition, Expiry, InvalidPolicy, OnLapse, Policy, PolicyBuilder};
pub use record::{
    Content, Ended, Fence, Follow, Holder, Operation, Outcome, OwnerToken, Record, Replay,
    Resource, Retained, Retention, State, StateName, Tag, Unreadable,
};
pub use run::{Done, Failure, Refused, RunError};
pub use store::{
    Claim, ClaimRequest, Effect, Fenced, FullStore, Health, Imported, Lapsed, Lease, LossAccepted,
    MemoryLimits, MemoryStore, Page, Purged, Query, RenewRequest, ResolveRequest, SettleRequest,
    Settlement, Stats, Store, StoreAdmin, StoreError, StoreErrorKind, Verdict, machine,
};
#[cfg(feature = "metrics")]
pub use store::{MeteredStore, Meters};
pub use sweeper::{Sweeper, SweeperSettings, Swept};
pub use unknown::{
    About, BoxError, Decided, Decision, Decisions, Finding, InvalidTemplate, Reconciler,
    ReconcilerSettings, Recovered, Recovery, Resolver, Round, Since, Template, Written,
};
