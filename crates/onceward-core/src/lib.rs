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
mod decision;
mod engine;
mod fingerprint;
mod ids;
mod intent;
mod key;
mod lanes;
pub mod machine;
mod memory;
#[cfg(feature = "metrics")]
mod metered;
mod operation;
mod outcome;
mod policy;
mod reconciler;
mod record;
mod reference;
mod resolver;
mod run;
mod scope;
mod since;
mod sketch;
mod store;
mod sweeper;
mod template;

pub use bulk::{Bulk, BulkDone, BulkError, BulkItem, InvalidBulk, ItemResult};
pub use clock::{Ambient, Clock, SystemAmbient, Timestamp};
pub use decision::{Decided, Decision, Decisions, INTERNAL_TENANT, Written};
pub use engine::{
    Begin, BeginError, Drained, Engine, EngineBuilder, Grant, Lost, Permit, Rejection, Settled,
};
pub use fingerprint::Fingerprint;
pub use ids::{DownstreamKey, Fence, Holder, OperationId, OwnerToken};
pub use intent::{Identity, Intent, RecordId};
pub use key::{InvalidKey, KEY_CHARS_MAX, Key, ToKey};
pub use memory::{MemoryLimits, MemoryStore};
#[cfg(feature = "metrics")]
pub use metered::{MeteredStore, Meters};
pub use operation::Operation;
pub use outcome::{Content, Ended, Outcome, Replay, Resource, Tag, Unreadable};
pub use policy::{Disposition, Expiry, InvalidPolicy, OnLapse, Policy, PolicyBuilder};
pub use reconciler::{Reconciler, ReconcilerSettings, Round};
pub use record::{Record, Retained, Retention, State, StateName};
pub use reference::{BusinessReference, Follow, KnownReference, Place};
pub use resolver::{BoxError, Finding, Rebuilder, Recovered, Recovery, Resolver};
pub use run::{Done, Failure, Refused, RunError};
pub use scope::{InvalidScope, SCOPE_PART_BYTES_MAX, Scope, ScopePart};
pub use since::Since;
pub use sketch::{Difference, Part, SKETCH_PARTS_MAX, Sketch};
pub use store::{
    Claim, ClaimRequest, Effect, Fenced, FullStore, Health, Imported, Lapsed, Lease, LossAccepted,
    Page, Purged, Query, RenewRequest, ResolveRequest, SettleRequest, Settlement, Stats, Store,
    StoreAdmin, StoreError, StoreErrorKind, Verdict,
};
pub use sweeper::{Sweeper, SweeperSettings, Swept};
pub use template::{About, InvalidTemplate, Template};
