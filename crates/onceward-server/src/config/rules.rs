//! The rules of operations: the layer's [`Rules`] as a flat list of settings, each of which an
//! operation inherits from `[defaults]` unless it sets it itself.
//!
//! The values are the layer's own types. Only a setting whose type in the layer spans two settings
//! here has a type of its own.

use http::StatusCode;
use onceward_core::{Expiry, KnownReference, OnLapse, ReplayCheck};
use onceward_http::{
    CompletionLost, FingerprintRules, InProgress, KeyFormat, KeyFrom, KeyRules, KeySyntax, Mode,
    Outcomes, ReferenceFrom, ReferenceRules, ReplayRules, ReplayStatus, ResponseBody,
    ResponseHeaders, Rules, StoreDown,
};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::values::{Bytes, HeaderNameSetting, MethodSetting, Seconds};

macro_rules! settings {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {
        /// The settings of `[defaults]`.
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct RuleSettings {
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        /// A protected operation, with its own settings.
        #[derive(Debug, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Operation {
            /// The name. With a name, the route can change.
            pub name: Option<String>,
            /// POST, PUT, PATCH or DELETE.
            #[serde(default)]
            pub method: MethodSetting,
            /// A path template, such as `/orders/{id}/pay`.
            pub route: String,
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        impl Operation {
            /// Returns its own settings, completed by the defaults.
            pub fn settings(&self, defaults: &RuleSettings) -> RuleSettings {
                RuleSettings {
                    $($field: self.$field.clone().or_else(|| defaults.$field.clone()),)*
                }
            }
        }
    };
}

impl Operation {
    /// Returns the layer's operation. It requires a key unless a setting says otherwise.
    pub(crate) fn protected(&self, defaults: &RuleSettings) -> onceward_http::Operation {
        let mut rules = self.settings(defaults).rules();
        rules.required = self.required.or(defaults.required).unwrap_or(true);
        let operation = onceward_http::Operation::new(self.method.0.clone(), &*self.route);
        let operation = operation.rules(rules);
        match &self.name {
            Some(name) => operation.named(name),
            None => operation,
        }
    }
}

settings! {
    /// Protects requests, or shadows them.
    mode: Mode,
    /// Refuses requests without a key.
    required: bool,
    /// Where the key is.
    key: KeyFrom,
    /// Syntax of the key's header.
    key_syntax: KeySyntax,
    /// Shortest key.
    key_min: usize,
    /// Longest key, at most 255.
    key_max: usize,
    /// Format of keys.
    key_format: KeyFormat,
    /// How long responses are stored.
    ttl: Seconds,
    /// How long a claim lasts without being renewed.
    lease: Seconds,
    /// Rule for a claim whose lease has lapsed.
    on_lapse: OnLapse,
    /// Whether the source of truth confirms an outcome before it is replayed.
    replay_check: ReplayCheck,
    /// `Retry-After` of refusals that say to retry.
    retry_after: Seconds,
    /// Rule for a key after its `ttl`.
    expiry: ExpirySetting,
    /// How long an expired key is remembered, with `expiry = "tombstone"`.
    tombstone: Seconds,
    /// Answer to a retry while the first request runs.
    in_progress: InProgressSetting,
    /// Longest wait, with `in_progress = "wait"`.
    wait_max: Seconds,
    /// The status of a mismatch.
    mismatch_status: ClientError,
    /// The status of a replay.
    replay_status: ReplayStatus,
    /// Headers that mark a replay.
    replay_headers: Vec<HeaderNameSetting>,
    /// Which responses are stored.
    outcomes: Outcomes,
    /// Largest request body.
    request_max_bytes: Bytes,
    /// Largest response that is stored.
    response_max_bytes: Bytes,
    /// Whether response bodies are stored.
    response_body: ResponseBody,
    /// Response headers that are replayed although they are usually dropped.
    response_headers_keep: Vec<HeaderNameSetting>,
    /// Response headers that are not replayed.
    response_headers_drop: Vec<HeaderNameSetting>,
    /// Rule for requests while the store is down.
    store_down: StoreDown,
    /// Answer to the first client if its response cannot be stored.
    completion_lost: CompletionLost,
    /// Only these fields of a JSON body count: JSON pointers.
    fingerprint_include: Vec<String>,
    /// These do not.
    fingerprint_exclude: Vec<String>,
    /// A header that belongs to the request's meaning.
    fingerprint_api_version: HeaderNameSetting,
    /// Compares the host name that a request was sent to.
    fingerprint_host: bool,
    /// Names the fields in which a refused request differs.
    fingerprint_explain: bool,
    /// Where the business reference is.
    reference: ReferenceFrom,
    /// Answer to another key with a known reference.
    reference_known: KnownReference,
    /// How long a reference is remembered.
    reference_ttl: Seconds,
}

/// Rule for a key after its `ttl`. [`Expiry`] holds the time of the tombstone too, which is a setting
/// of its own here so that it can be inherited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpirySetting {
    /// The key is new again.
    Forget,
    /// The key is answered as expired.
    Tombstone,
}

/// Answer to a retry while the first request runs. [`InProgress`] holds the longest wait too, which is
/// a setting of its own here so that it can be inherited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InProgressSetting {
    /// 409.
    Reject,
    /// The first response, after a wait.
    Wait,
    /// 202.
    Accepted,
}

/// A status from 400 to 499.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientError(pub StatusCode);

impl<'de> Deserialize<'de> for ClientError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let code = u16::deserialize(deserializer)?;
        let status = StatusCode::from_u16(code).ok().filter(StatusCode::is_client_error);
        let refuse = || D::Error::custom(format!("{code} is not a status from 400 to 499"));
        status.map(Self).ok_or_else(refuse)
    }
}

impl RuleSettings {
    /// Takes Stripe's conventions where nothing else is set: its outcomes, 400 for a key that was
    /// used for another request, and one header that marks replays.
    pub fn follow_stripe(&mut self) {
        self.outcomes.get_or_insert(Outcomes::StripeV1);
        self.mismatch_status.get_or_insert(ClientError(StatusCode::BAD_REQUEST));
        let mark = http::HeaderName::from_static("idempotent-replayed");
        self.replay_headers.get_or_insert_with(|| vec![HeaderNameSetting(mark)]);
    }

    /// Returns the layer's rules.
    pub fn rules(&self) -> Rules {
        let base = Rules::default();
        let names = |names: &[HeaderNameSetting]| names.iter().map(|it| it.0.clone()).collect();
        let size = |bytes: Bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX);
        Rules {
            mode: self.mode.unwrap_or(base.mode),
            key: self.key_rules(),
            required: self.required.unwrap_or(base.required),
            mismatch_status: self.mismatch_status.map_or(base.mismatch_status, |it| it.0),
            in_progress: self.in_progress(),
            replay: ReplayRules {
                status: self.replay_status.unwrap_or(base.replay.status),
                headers: self.replay_headers.as_deref().map_or(base.replay.headers, names),
            },
            outcomes: self.outcomes.clone().unwrap_or(base.outcomes),
            request_max_bytes: self.request_max_bytes.map_or(base.request_max_bytes, size),
            response_max_bytes: self.response_max_bytes.map_or(base.response_max_bytes, size),
            response_body: self.response_body.unwrap_or(base.response_body),
            response_headers: ResponseHeaders {
                keep: self.response_headers_keep.as_deref().map(names).unwrap_or_default(),
                drop: self.response_headers_drop.as_deref().map(names).unwrap_or_default(),
            },
            store_down: self.store_down.unwrap_or(base.store_down),
            completion_lost: self.completion_lost.unwrap_or(base.completion_lost),
            fingerprint: self.fingerprint_rules(),
            reference: self.reference_rules(),
            ttl: self.ttl.map(|it| it.0),
            expiry: self.expiry(),
            lease: self.lease.map(|it| it.0),
            on_lapse: self.on_lapse,
            replay_check: self.replay_check,
            retry_after: self.retry_after.map(|it| it.0),
            ..base
        }
    }

    fn key_rules(&self) -> KeyRules {
        let base = KeyRules::default();
        KeyRules {
            from: self.key.clone().unwrap_or(base.from),
            syntax: self.key_syntax.unwrap_or(base.syntax),
            min: self.key_min.unwrap_or(base.min),
            max: self.key_max.unwrap_or(base.max),
            format: self.key_format.unwrap_or(base.format),
        }
    }

    fn fingerprint_rules(&self) -> FingerprintRules {
        let base = FingerprintRules::default();
        FingerprintRules {
            include: self.fingerprint_include.clone().unwrap_or_default(),
            exclude: self.fingerprint_exclude.clone().unwrap_or_default(),
            api_version: self.fingerprint_api_version.as_ref().map(|it| it.0.clone()),
            host: self.fingerprint_host.unwrap_or(base.host),
            explain: self.fingerprint_explain.unwrap_or(base.explain),
            ..base
        }
    }

    fn reference_rules(&self) -> Option<ReferenceRules> {
        let (known, ttl) = (self.reference_known.unwrap_or_default(), self.reference_ttl);
        Some(ReferenceRules { from: self.reference.clone()?, known, ttl: ttl.map(|it| it.0) })
    }

    fn in_progress(&self) -> InProgress {
        match self.in_progress {
            Some(InProgressSetting::Wait) => {
                InProgress::Wait(self.wait_max.unwrap_or(Seconds::new(5)).0)
            }
            Some(InProgressSetting::Accepted) => InProgress::Accepted,
            Some(InProgressSetting::Reject) | None => InProgress::Reject,
        }
    }

    fn expiry(&self) -> Option<Expiry> {
        const MONTH: Seconds = Seconds::new(30 * 24 * 3600);
        self.expiry.map(|expiry| match expiry {
            ExpirySetting::Forget => Expiry::Forget,
            ExpirySetting::Tombstone => Expiry::Tombstone(self.tombstone.unwrap_or(MONTH).0),
        })
    }
}
