//! The settings of an operation: each field is one switch of the protocol.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`Rules`] and its plain switches |
//! | `fate` | whether a response is stored, and whether its request may run again |
//! | `key` | where the key is, and which texts are keys |
//! | `outcomes` | which responses are stored |
//! | `reference` | the business reference |
//! | `response_headers` | which response headers are stored |
//! | `text` | text forms for configuration files (feature `serde`) |
//!
//! A setting of the gateway has the name of its field here, with `_` for `.`: `key_syntax`,
//! `replay_headers`, `request_max_bytes`.

mod fate;
mod key;
mod outcomes;
mod reference;
mod response_headers;
#[cfg(feature = "serde")]
mod text;

use std::time::Duration;

use http::header::HeaderName;
use http::{Method, StatusCode};
use onceward_core::{Expiry, OnLapse, ReplayCheck};

pub use fate::Fate;
pub use key::{KeyFormat, KeyFrom, KeyRules, KeySyntax};
pub use outcomes::{OutcomeMap, Outcomes};
pub use reference::{ReferenceFrom, ReferenceRules};
pub(crate) use response_headers::is_never_stored;
pub use response_headers::{DROPPED_HEADERS, NEVER_STORED_HEADERS, ResponseHeaders};

/// The settings of one operation, with careful defaults.
///
/// ```
/// use onceward_http::{InProgress, Rules};
/// use std::time::Duration;
///
/// let rules = Rules {
///     required: true,
///     in_progress: InProgress::Wait(Duration::from_secs(2)),
///     ..Rules::default()
/// };
/// assert_eq!(rules.mismatch_status.as_u16(), 422);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Protects requests or shadows them ([`Mode::Enforce`]).
    pub mode: Mode,
    /// Where the key is, and which texts are keys.
    pub key: KeyRules,
    /// The protected methods (POST and PATCH); others pass through. GET, HEAD, OPTIONS and TRACE
    /// always pass through.
    pub methods: Vec<Method>,
    /// Refuses requests without a key (no); else they pass through.
    pub required: bool,
    /// Status of a key that was used for another request (422). Not 409 by default: Stripe's SDKs
    /// retry every 409.
    pub mismatch_status: StatusCode,
    /// Answer to a duplicate while the first attempt runs (409 at once).
    pub in_progress: InProgress,
    /// Status and headers of replays.
    pub replay: ReplayRules,
    /// Which responses are stored and replayed.
    pub outcomes: Outcomes,
    /// Largest request body, also after decompression (10 MiB).
    pub request_max_bytes: usize,
    /// Largest response body that is stored for replays (10 MiB). A larger one goes to the first
    /// caller only.
    pub response_max_bytes: usize,
    /// Whether response bodies are stored (they are).
    pub response_body: ResponseBody,
    /// Exceptions to the rule which response headers are stored (none).
    pub response_headers: ResponseHeaders,
    /// Rule for requests while the store is down (they are refused).
    pub store_down: StoreDown,
    /// Answer to the first caller when its outcome cannot be stored in time (its response).
    pub completion_lost: CompletionLost,
    /// Which parts of two requests are compared.
    pub fingerprint: FingerprintRules,
    /// The business reference (none).
    pub reference: Option<ReferenceRules>,
    /// How long a response is replayed (the engine's policy).
    pub ttl: Option<Duration>,
    /// Rule for a key after its `ttl` (the engine's policy).
    pub expiry: Option<Expiry>,
    /// How long a claim lasts without being renewed (the engine's policy).
    pub lease: Option<Duration>,
    /// Rule for a claim whose lease has lapsed (the engine's policy).
    pub on_lapse: Option<OnLapse>,
    /// Whether the source of truth confirms a completed outcome before it is replayed (the engine's
    /// policy). [`ReplayCheck::Resolver`] needs an engine with a
    /// [`Recovery`](onceward_core::Recovery).
    pub replay_check: Option<ReplayCheck>,
    /// `Retry-After` of every refusal that says to retry, and of 202, except of an exceeded quota,
    /// which knows better (the engine's policy). Whole seconds, at most `ttl`: after that a retry
    /// would run again.
    pub retry_after: Option<Duration>,
}

/// Largest bodies that are buffered. Ten of them at once are still only 100 MiB.
const BODY_BYTES_MAX: usize = 10 * 1024 * 1024;

impl Default for Rules {
    fn default() -> Self {
        Self {
            mode: Mode::Enforce,
            key: KeyRules::default(),
            methods: vec![Method::POST, Method::PATCH],
            required: false,
            mismatch_status: StatusCode::UNPROCESSABLE_ENTITY,
            in_progress: InProgress::Reject,
            replay: ReplayRules::default(),
            outcomes: Outcomes::Careful,
            request_max_bytes: BODY_BYTES_MAX,
            response_max_bytes: BODY_BYTES_MAX,
            response_body: ResponseBody::Store,
            response_headers: ResponseHeaders::default(),
            store_down: StoreDown::Closed,
            completion_lost: CompletionLost::Respond,
            fingerprint: FingerprintRules::default(),
            reference: None,
            ttl: None,
            expiry: None,
            lease: None,
            on_lapse: None,
            replay_check: None,
            retry_after: None,
        }
    }
}

/// Protection or shadow mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Mode {
    /// Requests are protected: retries get the first response, violations are refused.
    Enforce,
    /// Shadow mode: requests pass unchanged, and the decision that protection would have made is reported
    /// ([`Event::Shadow`](crate::Event::Shadow)). It comes from a claim beside the request, in
    /// records that protected requests never read and that contain nothing of a response.
    ///
    /// After a change to [`Enforce`](Self::Enforce) every key is new: its next request runs.
    Shadow,
}

/// Answer to a duplicate while the first attempt runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InProgress {
    /// 409 with `Retry-After`, at once.
    Reject,
    /// The first response if it comes within this time, else 409.
    Wait(Duration),
    /// 202 with the `Location` of the operation's status page.
    Accepted,
}

/// Status and headers of replays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayRules {
    /// The status (the original one).
    pub status: ReplayStatus,
    /// Headers that mark a replay, each with the value `true` (both usual names).
    pub headers: Vec<HeaderName>,
}

impl Default for ReplayRules {
    fn default() -> Self {
        let headers = ["idempotent-replayed", "idempotency-replayed"];
        let headers = headers.into_iter().map(HeaderName::from_static).collect();
        Self { status: ReplayStatus::Original, headers }
    }
}

/// Status of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum ReplayStatus {
    /// The status of the first response.
    Original,
    /// 200 instead of 201, because a replay creates nothing; other statuses stay.
    Ok,
}

/// Whether the bodies of stored responses are stored with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum ResponseBody {
    /// They are.
    Store,
    /// They are not, because they are sensitive: each response that is stored has the fate
    /// [`Fate::FinalHead`], also where its handler says [`Fate::Final`].
    Omit,
}

/// Rule for requests while the store is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum StoreDown {
    /// 503, and nothing is executed.
    Closed,
    /// The handler runs unprotected. **Unsafe**: a retry runs again. Each such request is logged as
    /// a warning and reported ([`Event::Unprotected`](crate::Event::Unprotected)).
    Open,
}

/// Answer to the first caller when its outcome could not be stored in time. The key is never
/// released; a retry gets the outcome once it is stored, else *unknown*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum CompletionLost {
    /// The response, while storing goes on.
    Respond,
    /// 500 with the code `IDEMPOTENCY_OUTCOME_UNKNOWN`.
    Fail,
}

/// Which parts of two requests are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FingerprintRules {
    /// JSON pointers of the only members that count; empty means all of them.
    pub include: Vec<String>,
    /// JSON pointers of members that do not count.
    pub exclude: Vec<String>,
    /// A header whose value is part of the request's meaning, such as an API version.
    pub api_version: Option<HeaderName>,
    /// Compares the host name that a request was sent to (yes): the same key at another host is
    /// another request. Addresses and `localhost` are not compared.
    pub host: bool,
    /// Compares requests at all (yes). If not, any request under a known key is a retry: only for
    /// clients that never reuse a key.
    pub compare: bool,
    /// Names the parts that differ in a mismatch (yes).
    pub explain: bool,
}

impl Default for FingerprintRules {
    fn default() -> Self {
        let (include, exclude) = (Vec::new(), Vec::new());
        Self { include, exclude, api_version: None, host: true, compare: true, explain: true }
    }
}
