//! The Idempotency-Key protocol as a tower layer: one effect and one answer for every
//! retry of an HTTP request.
//!
//! [`Onceward::layer`] begins; [`Rules`] are the protocol's switches; a handler learns about
//! its [`Execution`] and says its [`Fate`]. `exchange.rs` tells the whole story of a request
//! on one screen. Works with axum, hyper and any tower service over `http` types.

mod admission;
#[cfg(feature = "axum")]
pub mod axum;
mod body;
mod canonical;
mod coding;
mod credentials;
mod exchange;
mod fingerprint;
mod form;
mod header;
mod host;
mod json;
#[cfg(feature = "jwt")]
mod jwt;
mod layer;
mod multipart;
mod observe;
mod outlive;
mod overhear;
mod problem;
mod reference;
mod replay;
mod reply;
mod response_headers;
mod right;
mod rules;
mod scope;
mod seen;
mod service;
mod shadow;
mod speak;
mod status;
mod trace;
#[cfg(feature = "postgres")]
mod transaction;

pub use admission::Admission;
pub use body::Body;
pub use coding::accept_only_decodable;
pub use credentials::{CREDENTIAL_HEADERS, ClientCertificate};
pub use json::{json_differences, json_fingerprint};
#[cfg(feature = "jwt")]
pub use jwt::{InvalidJwks, Jwt};
pub use layer::{InvalidLayer, LayerBuilder, Onceward, OncewardLayer, Operation, Scoped, Unscoped};
pub use observe::{Differing, Event, Observer, Would};
pub use problem::{Code, PROBLEM_DOCS, Problem, ProblemDetails, ProblemFormat, Refusal};
pub use reply::{NeverKept, TAG, outcome_of, outcome_of_all, response_of};
pub use response_headers::{DROPPED_HEADERS, NEVER_STORED_HEADERS, ResponseHeaders};
pub use rules::{
    CompletionLost, Enforcement, FingerprintRules, InProgress, KeyFormat, KeyFrom, KeyRules,
    KeySyntax, OutcomeMap, Outcomes, ReferenceFrom, ReferenceRules, ReplayRules, ReplayStatus,
    Rules, StoreDown,
};
pub use scope::{Denied, Source};
pub use service::{OncewardService, ResponseFuture};
pub use speak::{Execution, Fate, OUTCOME_HEADER, Reference, Sensitive};
pub use trace::TRACE_TARGET;
#[cfg(feature = "postgres")]
pub use transaction::{PgClient, PgTransaction, TransactionEnded};

/// For this crate's fuzz targets, benchmarks and tests. Not part of the API.
#[doc(hidden)]
pub mod testing {
    pub use crate::canonical::*;
    pub use crate::multipart::*;

    /// Reads one value of the key's header, by the default rules.
    pub fn read_key(value: &[u8]) -> Result<onceward_core::Key, String> {
        crate::header::read(value, &crate::KeyRules::default())
    }

    /// Reads a stored reply and writes it again; `None` if it is none.
    pub fn reply_round_trip(stored: &bytes::Bytes) -> Option<bytes::Bytes> {
        crate::reply::round_trip(stored)
    }
}
