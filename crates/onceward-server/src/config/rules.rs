//! How operations are protected: the switches of the protocol.

use std::collections::BTreeMap;

use http::StatusCode;
use onceward_core::{Disposition, Expiry, KnownReference, OnLapse};
use onceward_http as http_layer;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::values::{Bytes, HeaderNameSetting, MethodSetting, Seconds};

macro_rules! switches {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {
        /// The switches of all operations that do not say otherwise.
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct RuleSettings {
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        /// One protected operation, with the switches that are its own.
        #[derive(Debug, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Operation {
            /// Its name, which lets its route change.
            pub name: Option<String>,
            /// POST, PUT, PATCH or DELETE.
            #[serde(default)]
            pub method: MethodSetting,
            /// A path template, such as `/orders/{id}/pay`.
            pub route: String,
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        impl Operation {
            /// Its own switches, and where it has none, the defaults.
            pub fn settings(&self, defaults: &RuleSettings) -> RuleSettings {
                RuleSettings {
                    $($field: self.$field.clone().or_else(|| defaults.$field.clone()),)*
                }
            }
        }
    };
}

switches! {
    /// Whether requests are protected, or only observed.
    mode: Mode,
    /// Refuses requests without a key.
    required: bool,
    /// Where the key is.
    key: KeyFrom,
    /// How keys are written.
    key_syntax: KeySyntax,
    /// Shortest key.
    key_min: usize,
    /// Longest key, at most 255.
    key_max: usize,
    /// What keys look like.
    key_format: KeyFormat,
    /// How long responses are kept.
    ttl: Seconds,
    /// How long a claim lasts without being renewed.
    lease: Seconds,
    /// What becomes of a claim whose owner died.
    on_lapse: Lapse,
    /// What becomes of a key after its time.
    expiry: ExpirySetting,
    /// How long an expired key is remembered, with `expiry = "tombstone"`.
    tombstone: Seconds,
    /// What a retry gets while the first is running.
    in_progress: InProgress,
    /// Longest wait, with `in_progress = "wait"`.
    wait_max: Seconds,
    /// The status of a mismatch.
    mismatch_status: ClientError,
    /// The status of a replay.
    replay_status: ReplayStatus,
    /// Headers that mark a replay.
    replay_headers: Vec<HeaderNameSetting>,
    /// Which responses are kept.
    outcomes: Outcomes,
    /// Largest request body.
    request_max_bytes: Bytes,
    /// Largest response that is kept.
    response_max_bytes: Bytes,
    /// Response headers that are replayed although they are usually dropped.
    response_headers_keep: Vec<HeaderNameSetting>,
    /// Response headers that are not replayed.
    response_headers_drop: Vec<HeaderNameSetting>,
    /// Whether to run unprotected while the store is down.
    store_down: StoreDown,
    /// What the client gets if its response cannot be stored.
    completion_lost: CompletionLost,
    /// Only these fields of a JSON body count: JSON pointers.
    fingerprint_include: Vec<String>,
    /// These do not.
    fingerprint_exclude: Vec<String>,
    /// A header that belongs to the request's meaning.
    fingerprint_api_version: HeaderNameSetting,
    /// The host name that a request was sent to belongs to its meaning.
    fingerprint_host: bool,
    /// Names the fields in which a refused request differs.
    fingerprint_explain: bool,
    /// Where a request has what the business calls it.
    reference: ReferenceFrom,
    /// What another key gets whose reference is known.
    reference_known: ReferenceKnown,
    /// How long a reference is known.
    reference_ttl: Seconds,
}

/// Where the key is: a provider's convention by its name, a header or a member of the body.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyFrom {
    /// `Idempotency-Key`, as the IETF draft, Stripe and Adyen have it.
    Standard,
    /// `PayPal-Request-Id`.
    Paypal,
    /// `idempotency_key` in the JSON body.
    Square,
    /// In a header.
    Header(HeaderNameSetting),
    /// In the JSON body, at a pointer such as `/idempotency_key`.
    Body(String),
}

impl KeyFrom {
    fn place(&self) -> http_layer::KeyFrom {
        let header = |name| http_layer::KeyFrom::Header(http::HeaderName::from_static(name));
        match self {
            Self::Standard => header("idempotency-key"),
            Self::Paypal => header("paypal-request-id"),
            Self::Square => http_layer::KeyFrom::Body("/idempotency_key".into()),
            Self::Header(name) => http_layer::KeyFrom::Header(name.0.clone()),
            Self::Body(pointer) => http_layer::KeyFrom::Body(pointer.clone()),
        }
    }
}

/// Where a request has what the business calls it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReferenceFrom {
    /// In a header.
    Header(HeaderNameSetting),
    /// In the JSON body, at a pointer such as `/payment/reference`.
    Body(String),
}

/// What another key gets whose reference is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReferenceKnown {
    /// The first answer.
    Answer,
    /// 409.
    Conflict,
}

/// Whether requests are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// They are.
    Enforce,
    /// They pass as they come, and what would have become of them is counted.
    Shadow,
}

/// How keys are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeySyntax {
    /// Quoted or bare.
    Lenient,
    /// Quoted.
    SfString,
    /// Bare.
    Bare,
}

/// What keys look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyFormat {
    /// Anything.
    Any,
    /// A UUID.
    Uuid,
}

/// What becomes of a claim whose owner died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lapse {
    /// Its outcome is unknown.
    Unknown,
    /// As `unknown`, and the resolver is asked as soon as somebody retries.
    Resolve,
    /// The next one runs again: only where running twice does no harm.
    Takeover,
}

/// What becomes of a key after its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpirySetting {
    /// It is new.
    Forget,
    /// It is answered as expired.
    Tombstone,
}

/// What a retry gets while the first is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InProgress {
    /// 409.
    Reject,
    /// It waits.
    Wait,
    /// 202.
    Accepted,
}

/// The status of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayStatus {
    /// That of the first response.
    Original,
    /// 200 for what was created.
    Ok,
}

/// Whether to run unprotected while the store is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreDown {
    /// No: 503.
    Closed,
    /// Yes, which can run things twice.
    Open,
}

/// What the client gets if its response cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompletionLost {
    /// The response.
    Respond,
    /// An error.
    Fail,
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

/// Which responses are kept: a policy by its name, or by statuses and classes, as in
/// `{ "5xx" = "keep", "404" = "release" }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcomes {
    /// What is deterministic is kept; a 5xx leaves the outcome unknown.
    Careful,
    /// As Stripe's first version.
    StripeV1,
    /// Only what succeeded.
    SuccessOnly,
    /// By status or class; the rest is careful.
    Custom(BTreeMap<StatusPattern, Disposition>),
}

/// One status, or all of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusPattern {
    /// Such as 404.
    One(u16),
    /// Such as 5 for `5xx`.
    Class(u16),
}

impl<'de> Deserialize<'de> for Outcomes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Named(String),
            Each(BTreeMap<String, String>),
        }
        match Written::deserialize(deserializer)? {
            Written::Named(name) => match name.as_str() {
                "careful" => Ok(Self::Careful),
                "stripe-v1" => Ok(Self::StripeV1),
                "success-only" => Ok(Self::SuccessOnly),
                _ => Err(D::Error::custom(format!(
                    "{name:?} is none of \"careful\", \"stripe-v1\", \"success-only\""
                ))),
            },
            Written::Each(each) => {
                let each =
                    each.iter().map(|(status, what)| Ok((pattern(status)?, disposition(what)?)));
                each.collect::<Result<_, String>>().map(Self::Custom).map_err(D::Error::custom)
            }
        }
    }
}

fn pattern(text: &str) -> Result<StatusPattern, String> {
    let class = text.strip_suffix("xx").and_then(|class| class.parse().ok());
    let one = text.parse().ok().filter(|code| (100..600).contains(code));
    match (class.filter(|class| (1..6).contains(class)), one) {
        (Some(class), _) => Ok(StatusPattern::Class(class)),
        (None, Some(code)) => Ok(StatusPattern::One(code)),
        (None, None) => Err(format!("{text:?} is no status; write \"404\" or \"4xx\"")),
    }
}

fn disposition(text: &str) -> Result<Disposition, String> {
    match text {
        "keep" => Ok(Disposition::Keep),
        "release" => Ok(Disposition::Release),
        "unknown" => Ok(Disposition::Unknown),
        _ => Err(format!("{text:?} is none of \"keep\", \"release\", \"unknown\"")),
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

    /// The layer's rules, for something behind a connection.
    pub fn rules(&self) -> http_layer::Rules {
        let base = http_layer::Rules::default();
        let names = |names: &[HeaderNameSetting]| names.iter().map(|it| it.0.clone()).collect();
        let size = |bytes: Bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX);
        http_layer::Rules {
            enforcement: match self.mode {
                Some(Mode::Shadow) => http_layer::Enforcement::Observe,
                Some(Mode::Enforce) | None => http_layer::Enforcement::Enforce,
            },
            key: self.key_rules(),
            required: self.required.unwrap_or(base.required),
            mismatch_status: self.mismatch_status.map_or(base.mismatch_status, |it| it.0),
            in_progress: self.in_progress(),
            replay: http_layer::ReplayRules {
                status: match self.replay_status {
                    Some(ReplayStatus::Ok) => http_layer::ReplayStatus::Ok,
                    Some(ReplayStatus::Original) | None => http_layer::ReplayStatus::Original,
                },
                marks: self.replay_headers.as_deref().map_or(base.replay.marks, names),
            },
            outcomes: self.outcomes(),
            request_bytes_max: self.request_max_bytes.map_or(base.request_bytes_max, size),
            response_bytes_max: self.response_max_bytes.map_or(base.response_bytes_max, size),
            response_headers: http_layer::ResponseHeaders {
                keep: self.response_headers_keep.as_deref().map(names).unwrap_or_default(),
                drop: self.response_headers_drop.as_deref().map(names).unwrap_or_default(),
            },
            store_down: match self.store_down {
                Some(StoreDown::Open) => http_layer::StoreDown::Open,
                Some(StoreDown::Closed) | None => http_layer::StoreDown::Closed,
            },
            completion_lost: match self.completion_lost {
                Some(CompletionLost::Fail) => http_layer::CompletionLost::Fail,
                Some(CompletionLost::Respond) | None => http_layer::CompletionLost::Respond,
            },
            fingerprint: self.fingerprint_rules(),
            reference: self.reference_rules(),
            ttl: self.ttl.map(|it| it.0),
            expiry: self.expiry(),
            lease: self.lease.map(|it| it.0),
            on_lapse: self.on_lapse.map(|lapse| match lapse {
                Lapse::Unknown => OnLapse::Unknown,
                Lapse::Resolve => OnLapse::Resolve,
                Lapse::Takeover => OnLapse::Takeover,
            }),
            ..base
        }
    }

    fn key_rules(&self) -> http_layer::KeyRules {
        let base = http_layer::KeyRules::default();
        http_layer::KeyRules {
            from: self.key.as_ref().map_or(base.from, KeyFrom::place),
            syntax: match self.key_syntax {
                Some(KeySyntax::SfString) => http_layer::KeySyntax::SfString,
                Some(KeySyntax::Bare) => http_layer::KeySyntax::Bare,
                Some(KeySyntax::Lenient) | None => http_layer::KeySyntax::Lenient,
            },
            min: self.key_min.unwrap_or(base.min),
            max: self.key_max.unwrap_or(base.max),
            format: match self.key_format {
                Some(KeyFormat::Uuid) => http_layer::KeyFormat::Uuid,
                Some(KeyFormat::Any) | None => http_layer::KeyFormat::Any,
            },
        }
    }

    fn fingerprint_rules(&self) -> http_layer::FingerprintRules {
        let base = http_layer::FingerprintRules::default();
        http_layer::FingerprintRules {
            include: self.fingerprint_include.clone().unwrap_or_default(),
            exclude: self.fingerprint_exclude.clone().unwrap_or_default(),
            api_version: self.fingerprint_api_version.as_ref().map(|it| it.0.clone()),
            host: self.fingerprint_host.unwrap_or(base.host),
            explain: self.fingerprint_explain.unwrap_or(base.explain),
            ..base
        }
    }

    fn reference_rules(&self) -> Option<http_layer::ReferenceRules> {
        let from = match self.reference.clone()? {
            ReferenceFrom::Header(name) => http_layer::ReferenceFrom::Header(name.0),
            ReferenceFrom::Body(pointer) => http_layer::ReferenceFrom::Body(pointer),
        };
        let known = match self.reference_known {
            Some(ReferenceKnown::Conflict) => KnownReference::Conflict,
            Some(ReferenceKnown::Answer) | None => KnownReference::Replay,
        };
        let ttl = self.reference_ttl.map(|it| it.0);
        Some(http_layer::ReferenceRules { from, known, ttl })
    }

    fn in_progress(&self) -> http_layer::InProgress {
        match self.in_progress {
            Some(InProgress::Wait) => {
                http_layer::InProgress::Wait(self.wait_max.unwrap_or(Seconds::new(5)).0)
            }
            Some(InProgress::Accepted) => http_layer::InProgress::Accepted,
            Some(InProgress::Reject) | None => http_layer::InProgress::Reject,
        }
    }

    fn expiry(&self) -> Option<Expiry> {
        const MONTH: Seconds = Seconds::new(30 * 24 * 3600);
        self.expiry.map(|expiry| match expiry {
            ExpirySetting::Forget => Expiry::Forget,
            ExpirySetting::Tombstone => Expiry::Tombstone(self.tombstone.unwrap_or(MONTH).0),
        })
    }

    fn outcomes(&self) -> http_layer::Outcomes {
        match self.outcomes.as_ref().unwrap_or(&Outcomes::Careful) {
            Outcomes::Careful => http_layer::Outcomes::Careful,
            Outcomes::StripeV1 => http_layer::Outcomes::StripeV1,
            Outcomes::SuccessOnly => http_layer::Outcomes::SuccessOnly,
            Outcomes::Custom(each) => {
                let add = |map: http_layer::OutcomeMap, (status, what): (&_, &_)| match *status {
                    StatusPattern::One(code) => map.status(code, *what),
                    StatusPattern::Class(class) => map.class(class, *what),
                };
                http_layer::Outcomes::Custom(
                    each.iter().fold(http_layer::OutcomeMap::default(), add),
                )
            }
        }
    }
}
