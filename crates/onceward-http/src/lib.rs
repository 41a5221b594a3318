//! The Idempotency-Key protocol as a tower layer: one effect and one response for every retry of an
//! HTTP request. Works with axum, hyper and any tower service over `http` types.
//!
//! [`Onceward::layer`] builds a layer; [`Rules`] are the settings of an operation; a handler reads its
//! [`Execution`], and its response can state its [`Fate`]. `Exchange::answer` in `exchange/mod.rs` is
//! the walk of one request on one screen.
//!
//! Each module uses only those below it:
//!
//! | module | contents |
//! |---|---|
//! | `axum` | extractors (feature `axum`) |
//! | `layer` | the tower layer, its settings and its service |
//! | `exchange` | one protected request: execute, replay or refuse |
//! | `request` | key, scope, fingerprint and reference of a request |
//! | `response` | the stored form of a response, and replays |
//! | `handler` | what a handler can read and state |
//! | `observe` | events, metrics (feature `metrics`), trace spans, log lines |
//! | `body` | buffering, decoding and copying bodies |
//! | `problem` | refusals |
//! | `rules` | the settings of an operation |

#[cfg(feature = "axum")]
pub mod axum;
mod body;
mod exchange;
mod handler;
mod layer;
mod observe;
mod problem;
mod request;
mod response;
mod rules;

pub use body::{Body, accept_only_decodable};
pub use exchange::{Admission, OverQuota};
#[cfg(feature = "postgres")]
pub use exchange::{PgClient, PgTransaction, TransactionEnded};
pub use handler::{Execution, OUTCOME_HEADER, Sensitive, SensitiveReply, take_outcome_header};
pub use layer::{
    InvalidLayer, LayerBuilder, Onceward, OncewardLayer, OncewardService, Operation,
    ResponseFuture, RouteMatch, Scoped, Unscoped,
};
#[cfg(feature = "metrics")]
pub use observe::Metrics;
pub use observe::{DifferingPart, Event, Observer, ShadowDecision, TRACE_TARGET};
pub use problem::{Code, PROBLEM_DOCS, Problem, ProblemDetails, ProblemFormat, Refusal};
pub use request::{
    CREDENTIAL_HEADERS, ClientCertificate, Denied, HeadKey, Source, json_differences,
    json_fingerprint,
};
#[cfg(feature = "jwt")]
pub use request::{InvalidJwks, Jwt};
pub use response::{NeverStored, TAG, outcome_head, outcome_of, outcome_of_all, response_of};
pub use rules::{
    CompletionLost, DROPPED_HEADERS, Fate, FingerprintRules, InProgress, KeyFormat, KeyFrom,
    KeyRules, KeySyntax, Mode, NEVER_STORED_HEADERS, OutcomeMap, Outcomes, ReferenceFrom,
    ReferenceRules, ReplayRules, ReplayStatus, ResponseBody, ResponseHeaders, Rules, StoreDown,
};

/// For this crate's fuzz targets, benchmarks and tests. Not part of the API.
#[doc(hidden)]
pub mod testing {
    pub use crate::request::canonical::*;
    pub use crate::request::fingerprint::multipart::*;

    /// Parses one value of the key's header, by the default rules.
    pub fn read_key(value: &[u8]) -> Result<onceward_core::Key, String> {
        crate::request::parse_key(value, &crate::KeyRules::default())
    }

    /// Decodes a stored response and encodes it again; `None` if it is not one.
    pub fn reply_round_trip(stored: &bytes::Bytes) -> Option<bytes::Bytes> {
        crate::response::round_trip(stored)
    }
}
