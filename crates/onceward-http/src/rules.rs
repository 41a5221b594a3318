//! How an operation is guarded over HTTP: each field is one switch of the protocol.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::HeaderName;
use http::{Method, StatusCode};
use onceward_core::{Disposition, Expiry, KnownReference, OnLapse};

use crate::response_headers::ResponseHeaders;

/// The settings of one operation, with the protocol's careful defaults.
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
    /// Whether requests are guarded (yes), or only observed.
    pub enforcement: Enforcement,
    /// Where the key is, and what it may look like.
    pub key: KeyRules,
    /// Which methods are guarded; others pass through (POST and PATCH). GET, HEAD, OPTIONS
    /// and TRACE always pass through.
    pub methods: Vec<Method>,
    /// Whether a request without a key is refused (no) or passes through.
    pub required: bool,
    /// The status of a key's reuse for another request (422). Not 409 by default: Stripe's
    /// SDKs retry every 409 by themselves.
    pub mismatch_status: StatusCode,
    /// What a duplicate gets while the first attempt runs (409 at once).
    pub in_progress: InProgress,
    /// What a replay looks like.
    pub replay: ReplayRules,
    /// Which answers are kept and replayed.
    pub outcomes: Outcomes,
    /// Largest request body, also after decompression (10 MiB).
    pub request_bytes_max: usize,
    /// Largest response body that is kept for replays (10 MiB). A larger one goes to the
    /// first caller only.
    pub response_bytes_max: usize,
    /// Exceptions to the rule which response headers are stored (none).
    pub response_headers: ResponseHeaders,
    /// What happens when the store cannot be asked.
    pub store_down: StoreDown,
    /// What the first caller gets when its outcome cannot be stored in time.
    pub completion_lost: CompletionLost,
    /// What makes two requests the same.
    pub fingerprint: FingerprintRules,
    /// What the business calls the request's intent (nothing).
    pub reference: Option<ReferenceRules>,
    /// How long an outcome is replayed (the engine's policy).
    pub ttl: Option<Duration>,
    /// What becomes of a key afterwards (the engine's policy).
    pub expiry: Option<Expiry>,
    /// How long a crash stays unnoticed (the engine's policy).
    pub lease: Option<Duration>,
    /// What happens when an owner's lease lapses (the engine's policy).
    pub on_lapse: Option<OnLapse>,
}

/// The largest bodies that are kept in memory.
const BODY_BYTES_MAX: usize = 10 * 1024 * 1024;

impl Default for Rules {
    fn default() -> Self {
        Self {
            enforcement: Enforcement::Enforce,
            key: KeyRules::default(),
            methods: vec![Method::POST, Method::PATCH],
            required: false,
            mismatch_status: StatusCode::UNPROCESSABLE_ENTITY,
            in_progress: InProgress::Reject,
            replay: ReplayRules::default(),
            outcomes: Outcomes::Careful,
            request_bytes_max: BODY_BYTES_MAX,
            response_bytes_max: BODY_BYTES_MAX,
            response_headers: ResponseHeaders::default(),
            store_down: StoreDown::Closed,
            completion_lost: CompletionLost::Respond,
            fingerprint: FingerprintRules::default(),
            reference: None,
            ttl: None,
            expiry: None,
            lease: None,
            on_lapse: None,
        }
    }
}

/// Whether requests are guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcement {
    /// They are: retries are answered, and what breaks the rules is refused.
    Enforce,
    /// Nothing changes for anybody, and what would have become of each request is counted
    /// ([`Event::Observed`](crate::Event::Observed)). Claims are made beside the request, in
    /// records that no guarded request ever meets and that hold nothing of a response.
    ///
    /// So from observing to guarding, every key begins anew: its next request runs.
    Observe,
}

/// Where the key is, and what it may look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRules {
    /// Where it is (the header `Idempotency-Key`).
    pub from: KeyFrom,
    /// How a header's value is read (leniently).
    pub syntax: KeySyntax,
    /// Fewest characters (1).
    pub min: usize,
    /// Most characters (255).
    pub max: usize,
    /// Which texts are keys (any).
    pub format: KeyFormat,
}

impl Default for KeyRules {
    fn default() -> Self {
        Self {
            from: KeyFrom::Header(HeaderName::from_static("idempotency-key")),
            syntax: KeySyntax::Lenient,
            min: 1,
            max: onceward_core::KEY_CHARS_MAX,
            format: KeyFormat::Any,
        }
    }
}

/// Where the key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyFrom {
    /// In this header.
    Header(HeaderName),
    /// In the JSON body, at this pointer: a text. Every request of the operation is then held
    /// whole, since only its body tells whether it has a key.
    Body(String),
}

/// How the key's header is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySyntax {
    /// A value that begins with a quote is a structured-field string, any other one is
    /// taken as it is; `"k"` and `k` name the same key.
    Lenient,
    /// Only a structured-field string, as the IETF draft has it.
    SfString,
    /// Only the bare characters, as Stripe has it.
    Bare,
}

/// Which texts are keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFormat {
    /// Any text of the allowed length.
    Any,
    /// Only UUIDs.
    Uuid,
}

/// What a duplicate gets while the first attempt runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InProgress {
    /// 409 with `Retry-After`, at once.
    Reject,
    /// The first one's answer if it comes within this time, else 409.
    Wait(Duration),
    /// 202 with the `Location` of the operation's status page.
    Accepted,
}

/// What a replay looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayRules {
    /// Its status (the original one).
    pub status: ReplayStatus,
    /// Headers that mark it, each with the value `true` (both usual names).
    pub marks: Vec<HeaderName>,
}

impl Default for ReplayRules {
    fn default() -> Self {
        let marks = ["idempotent-replayed", "idempotency-replayed"];
        let marks = marks.into_iter().map(HeaderName::from_static).collect();
        Self { status: ReplayStatus::Original, marks }
    }
}

/// The status of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayStatus {
    /// As the first time.
    Original,
    /// 200 instead of 201, since this time nothing was created; all others keep theirs.
    Ok,
}

/// What happens when the store cannot be asked before the handler runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreDown {
    /// 503, and nothing is executed.
    Closed,
    /// The handler runs unguarded. **Unsafe**: a retry runs again. Each one is logged as a
    /// warning and counted.
    Open,
}

/// What the first caller gets when its outcome could not be stored in time. The record is
/// never released; a retry gets the outcome once it has landed, else *unknown*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionLost {
    /// The true answer, while storing goes on.
    Respond,
    /// 500 with the code `IDEMPOTENCY_OUTCOME_UNKNOWN`.
    Fail,
}

/// What makes two requests the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FingerprintRules {
    /// JSON pointers of the only members that matter; empty means all of them.
    pub include: Vec<String>,
    /// JSON pointers of members that do not matter.
    pub exclude: Vec<String>,
    /// A header whose value is part of the request's meaning, such as an API version.
    pub api_version: Option<HeaderName>,
    /// Whether the host name that a request was sent to is part of its meaning (yes): the same
    /// key at another host is another request. Addresses and `localhost` are no names.
    pub host: bool,
    /// Whether requests are compared at all. Without it any request under a known key is a
    /// retry: only for clients that are known never to reuse a key.
    pub compare: bool,
    /// Whether a mismatch names the parts that differ (yes).
    pub explain: bool,
}

impl Default for FingerprintRules {
    fn default() -> Self {
        let (include, exclude) = (Vec::new(), Vec::new());
        Self { include, exclude, api_version: None, host: true, compare: true, explain: true }
    }
}

/// What the business calls a request's intent, such as the payment reference that a bank prints.
/// Known for longer than any key, and whatever key it comes with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceRules {
    /// Where it is. A request without it is known by its key alone.
    pub from: ReferenceFrom,
    /// What another key gets whose reference is known (the first answer).
    pub known: KnownReference,
    /// How long it is known (the engine's policy: a year).
    pub ttl: Option<Duration>,
}

impl ReferenceRules {
    /// A reference in a header.
    pub fn header(name: HeaderName) -> Self {
        Self { from: ReferenceFrom::Header(name), known: KnownReference::Replay, ttl: None }
    }

    /// A reference in a JSON body, by its pointer: `/payment/reference`.
    pub fn body(pointer: impl Into<String>) -> Self {
        Self { from: ReferenceFrom::Body(pointer.into()), known: KnownReference::Replay, ttl: None }
    }
}

/// Where a business reference is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReferenceFrom {
    /// In this header.
    Header(HeaderName),
    /// In the JSON body, at this pointer: a text or a number.
    Body(String),
}

/// Which answers are kept and replayed, which ones free the key, and which ones leave the
/// outcome unknown. A handler's own word ([`Fate`](crate::Fate)) goes before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcomes {
    /// All are kept, but for those that say by themselves that nothing happened: 401, 403,
    /// 405, 407, 408, 413, 414, 415, 421, 425, 429, 431.
    Careful,
    /// As Stripe's v1: 400, 401, 403, 409 and 429 free the key, all others are kept.
    StripeV1,
    /// 1xx to 3xx are kept, every error frees the key. Only where an error means that
    /// nothing happened.
    SuccessOnly,
    /// By status or by class of statuses, and careful for the rest.
    Custom(OutcomeMap),
}

/// Dispositions by status and by class of statuses.
///
/// ```
/// use onceward_core::Disposition;
/// use onceward_http::OutcomeMap;
///
/// let map = OutcomeMap::default()
///     .status(503, Disposition::Release)
///     .class(5, Disposition::Unknown);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutcomeMap {
    statuses: BTreeMap<u16, Disposition>,
    classes: BTreeMap<u16, Disposition>,
}

impl OutcomeMap {
    /// What one status means.
    #[must_use]
    pub fn status(mut self, status: u16, disposition: Disposition) -> Self {
        self.statuses.insert(status, disposition);
        self
    }

    /// What a class of statuses means: 4 for all 4xx.
    #[must_use]
    pub fn class(mut self, class: u16, disposition: Disposition) -> Self {
        self.classes.insert(class, disposition);
        self
    }
}

impl Outcomes {
    /// What an answer of this status means for its key.
    pub fn disposition(&self, status: StatusCode) -> Disposition {
        let code = status.as_u16();
        match self {
            Self::Careful => careful(code),
            Self::StripeV1 => release_if(matches!(code, 400 | 401 | 403 | 409 | 429)),
            Self::SuccessOnly => release_if(code >= 400),
            Self::Custom(map) => map
                .statuses
                .get(&code)
                .or_else(|| map.classes.get(&(code / 100)))
                .copied()
                .unwrap_or_else(|| careful(code)),
        }
    }
}

fn careful(code: u16) -> Disposition {
    let refused_before_the_handler =
        matches!(code, 401 | 403 | 405 | 407 | 408 | 413 | 414 | 415 | 421 | 425 | 429 | 431);
    release_if(refused_before_the_handler)
}

fn release_if(nothing_happened: bool) -> Disposition {
    if nothing_happened { Disposition::Release } else { Disposition::Keep }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Disposition::{Keep, Release, Unknown};

    fn of(outcomes: &Outcomes, code: u16) -> Disposition {
        outcomes.disposition(StatusCode::from_u16(code).unwrap())
    }

    #[test]
    fn each_policy_keeps_what_it_says() {
        for (code, careful, stripe, success) in [
            (201, Keep, Keep, Keep),
            (303, Keep, Keep, Keep),
            (400, Keep, Release, Release),
            (402, Keep, Keep, Release),
            (409, Keep, Release, Release),
            (422, Keep, Keep, Release),
            (429, Release, Release, Release),
            (500, Keep, Keep, Release),
        ] {
            assert_eq!(of(&Outcomes::Careful, code), careful, "careful {code}");
            assert_eq!(of(&Outcomes::StripeV1, code), stripe, "stripe {code}");
            assert_eq!(of(&Outcomes::SuccessOnly, code), success, "success-only {code}");
        }
    }

    #[test]
    fn a_status_goes_before_its_class_and_the_rest_is_careful() {
        let map = OutcomeMap::default().class(5, Unknown).status(503, Release);
        let outcomes = Outcomes::Custom(map);
        assert_eq!(of(&outcomes, 500), Unknown);
        assert_eq!(of(&outcomes, 503), Release);
        assert_eq!(of(&outcomes, 429), Release);
        assert_eq!(of(&outcomes, 201), Keep);
    }
}
