//! The terms of one operation.

use std::time::Duration;

use http::{HeaderName, Method};
use onceward_core::{InvalidPolicy, KnownReference, OnLapse, Policy, ReplayCheck};
use onceward_http::{
    CompletionLost, FingerprintRules, InProgress, KeyFormat, KeyFrom, KeyRules, KeySyntax, Mode,
    ReferenceFrom, ReferenceRules, ReplayRules, ReplayStatus, ResponseHeaders, Rules, StoreDown,
};
use serde::{Serialize, Serializer};

use super::responses::ResponseTerms;
use crate::config::{Operation, RuleSettings};

/// The promises to clients about one operation.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Terms {
    pub(super) requests: Requests,
    pub(super) promise: Promise,
    pub(super) key: KeyTerms,
    pub(super) same_request: SameRequest,
    pub(super) mismatch_status: u16,
    pub(super) while_running: WhileRunning,
    pub(super) responses: ResponseTerms,
    pub(super) replay: ReplayTerms,
    /// How long a stored response is kept.
    #[serde(rename = "retention_ms", serialize_with = "milliseconds")]
    pub(super) retention: Duration,
    /// How long after that the key is refused as expired.
    #[serde(rename = "expired_ms", serialize_with = "milliseconds")]
    pub(super) expired: Duration,
    pub(super) request_bytes_max: usize,
    pub(super) response_bytes_max: usize,
    pub(super) reference: Option<ReferenceTerms>,
    /// How long a request counts as running after the server that executed it has failed.
    #[serde(rename = "crash_noticed_ms", serialize_with = "milliseconds")]
    pub(super) crash_noticed: Duration,
    /// After that, a retry is executed.
    pub(super) runs_again_after_crash: bool,
    /// While keys cannot be checked, requests are executed unprotected.
    pub(super) unprotected_during_outage: bool,
    /// A completed outcome is confirmed by its source of truth before it is replayed.
    pub(super) confirms_replays: bool,
    /// The first client gets an error instead of a response that could not be stored.
    pub(super) withholds_unstored_responses: bool,
}

/// The requests of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Requests {
    pub(super) methods: Vec<String>,
    /// A path template; `None` for all requests that match no other operation.
    pub(super) route: Option<String>,
    pub(super) name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Promise {
    Protected,
    /// On trial: every request is executed.
    None,
}

/// Where the key is, and which texts are keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct KeyTerms {
    pub(super) required: bool,
    pub(super) place: Place,
    pub(super) syntax: Syntax,
    pub(super) chars_min: usize,
    pub(super) chars_max: usize,
    pub(super) uuid: bool,
}

/// A place in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Place {
    Header(String),
    /// A JSON pointer.
    Body(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Syntax {
    QuotedOrBare,
    Quoted,
    Bare,
    /// A string of the JSON body.
    Json,
}

/// Which requests are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct SameRequest {
    /// JSON pointers of the only members that count; all if empty.
    pub(super) only: Vec<String>,
    /// JSON pointers of members that do not count.
    pub(super) except: Vec<String>,
    pub(super) version_header: Option<String>,
    pub(super) host: bool,
    /// A refusal names the parts that differ.
    pub(super) names_differences: bool,
}

/// The response to a retry while the first request runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct WhileRunning {
    pub(super) answer: WhileRunningAnswer,
    #[serde(rename = "retry_after_ms", serialize_with = "milliseconds")]
    pub(super) retry_after: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WhileRunningAnswer {
    Refused,
    /// It waits for the first response, at most this long.
    #[serde(rename = "waits_ms", serialize_with = "milliseconds")]
    Waits(Duration),
    Accepted,
}

/// Status and headers of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ReplayTerms {
    /// 200 instead of 201.
    pub(super) ok_instead_of_created: bool,
    /// Headers that mark a replay.
    pub(super) marks: Vec<String>,
    /// Response headers that replays have, although they usually do not.
    pub(super) headers_kept: Vec<String>,
    /// Response headers that replays do not have.
    pub(super) headers_dropped: Vec<String>,
}

/// The business reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ReferenceTerms {
    pub(super) place: Place,
    /// Another key with a known reference gets the first response.
    pub(super) replays: bool,
    #[serde(rename = "known_ms", serialize_with = "milliseconds")]
    pub(super) known: Duration,
}

impl Terms {
    /// The terms of a named operation.
    pub(super) fn named(
        operation: &Operation,
        defaults: &RuleSettings,
    ) -> Result<Self, InvalidPolicy> {
        let requests = Requests {
            methods: vec![operation.method.0.to_string()],
            route: Some(operation.route.clone()),
            name: operation.name.clone(),
        };
        Self::new(requests, operation.rules(defaults))
    }

    /// The terms of requests that match no named operation.
    pub(super) fn others(defaults: &RuleSettings) -> Result<Self, InvalidPolicy> {
        let rules = defaults.rules();
        let methods = rules.methods.iter().map(Method::to_string).collect();
        Self::new(Requests { methods, route: None, name: None }, rules)
    }

    fn new(requests: Requests, rules: Rules) -> Result<Self, InvalidPolicy> {
        let policy = rules.policy(&Policy::default())?;
        let Rules {
            mode,
            key,
            methods: _, // of the requests
            required,
            mismatch_status,
            in_progress,
            replay,
            outcomes,
            request_max_bytes,
            response_max_bytes,
            response_headers,
            store_down,
            completion_lost,
            fingerprint,
            reference,
            response_body,
            replay_check: _, // in the policy, as the following are
            retry_after: _,
            record_path: _, // only operators see it
            ttl: _,
            expiry: _,
            lease: _,
            on_lapse: _,
        } = rules;
        let takeover = policy.on_lapse() == OnLapse::Takeover;
        Ok(Self {
            requests,
            promise: match mode {
                Mode::Enforce => Promise::Protected,
                Mode::Shadow => Promise::None,
            },
            key: KeyTerms::of(key, required),
            same_request: SameRequest::of(fingerprint),
            mismatch_status: mismatch_status.as_u16(),
            while_running: WhileRunning::of(in_progress, &policy),
            responses: ResponseTerms::of(&outcomes, response_body),
            replay: ReplayTerms::of(replay, response_headers),
            retention: policy.retention().keep,
            expired: policy.retention().tombstone,
            request_bytes_max: request_max_bytes,
            response_bytes_max: response_max_bytes,
            reference: reference.map(|rules| ReferenceTerms::of(rules, &policy)),
            crash_noticed: policy.lease(),
            runs_again_after_crash: takeover,
            unprotected_during_outage: store_down == StoreDown::Open,
            confirms_replays: policy.replay_check() == ReplayCheck::Resolver,
            withholds_unstored_responses: takeover || completion_lost == CompletionLost::Fail,
        })
    }

    pub(super) fn is_protected(&self) -> bool {
        self.promise == Promise::Protected
    }

    /// Returns whether a place in a JSON body matters.
    pub(super) fn has_pointers(&self) -> bool {
        let reference = self.reference.as_ref().map(|reference| &reference.place);
        let places = [Some(&self.key.place), reference];
        let SameRequest { only, except, .. } = &self.same_request;
        places.into_iter().flatten().any(|place| matches!(place, Place::Body(_)))
            || !(only.is_empty() && except.is_empty())
    }
}

impl KeyTerms {
    fn of(rules: KeyRules, required: bool) -> Self {
        let KeyRules { from, syntax, min, max, format } = rules;
        let (place, syntax) = match (from, syntax) {
            (KeyFrom::Body(pointer), _) => (Place::Body(pointer), Syntax::Json),
            (KeyFrom::Header(name), KeySyntax::Lenient) => (header(&name), Syntax::QuotedOrBare),
            (KeyFrom::Header(name), KeySyntax::SfString) => (header(&name), Syntax::Quoted),
            (KeyFrom::Header(name), KeySyntax::Bare) => (header(&name), Syntax::Bare),
        };
        let uuid = format == KeyFormat::Uuid;
        Self { required, place, syntax, chars_min: min, chars_max: max, uuid }
    }
}

impl SameRequest {
    fn of(rules: FingerprintRules) -> Self {
        // No setting of the gateway turns comparing off.
        let FingerprintRules { include, exclude, api_version, host, compare: _, explain } = rules;
        Self {
            only: include,
            except: exclude,
            version_header: api_version.map(|name| name.to_string()),
            host,
            names_differences: explain,
        }
    }
}

impl WhileRunning {
    fn of(in_progress: InProgress, policy: &Policy) -> Self {
        let answer = match in_progress {
            InProgress::Reject => WhileRunningAnswer::Refused,
            InProgress::Wait(longest) => WhileRunningAnswer::Waits(longest),
            InProgress::Accepted => WhileRunningAnswer::Accepted,
        };
        Self { answer, retry_after: policy.retry_after() }
    }
}

impl ReplayTerms {
    fn of(rules: ReplayRules, stored: ResponseHeaders) -> Self {
        let ReplayRules { status, headers } = rules;
        let ResponseHeaders { keep, drop } = stored;
        let names = |names: Vec<HeaderName>| names.iter().map(HeaderName::to_string).collect();
        Self {
            ok_instead_of_created: status == ReplayStatus::Ok,
            marks: names(headers),
            headers_kept: names(keep),
            headers_dropped: names(drop),
        }
    }
}

impl ReferenceTerms {
    fn of(rules: ReferenceRules, policy: &Policy) -> Self {
        let ReferenceRules { from, known, ttl: _ } = rules;
        let place = match from {
            ReferenceFrom::Header(name) => header(&name),
            ReferenceFrom::Body(pointer) => Place::Body(pointer),
        };
        let replays = match known {
            KnownReference::Replay => true,
            KnownReference::Conflict => false,
        };
        Self { place, replays, known: policy.reference_retention() }
    }
}

fn header(name: &HeaderName) -> Place {
    Place::Header(name.to_string())
}

/// Writes a duration as whole milliseconds.
pub(super) fn milliseconds<S: Serializer>(time: &Duration, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
