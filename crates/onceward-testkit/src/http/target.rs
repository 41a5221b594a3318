//! The server under test, and its promises.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::client::Protocol;
use super::controls::Controls;

/// Header lines as pairs of name and value.
pub type Headers = Vec<(String, String)>;

/// The server under test. The fields are public: take a profile and change what differs.
#[derive(Clone)]
pub struct Target {
    /// Its name in the report.
    pub name: String,
    /// `http://host:port`.
    pub base: String,
    /// The base of a second node on the same store.
    pub peer: Option<String>,
    /// The HTTP version for it.
    pub protocol: Protocol,
    /// The path of a POST that creates something.
    pub create: String,
    /// A request body for an amount, which is given as JSON text (`100`, `1e2`, `"1"`).
    pub body: fn(amount: &str) -> String,
    /// The handler behind the idempotency: our fixture, or another one.
    pub handler: Handler,
    /// Headers of the first caller, sent with every request.
    pub caller: Headers,
    /// Another token of the first caller.
    pub caller_renewed: Option<Headers>,
    /// Another caller of the same tenant.
    pub other_caller: Option<Headers>,
    /// A caller of another tenant.
    pub other_tenant: Option<Headers>,
    /// A request without credentials, where those are refused by 401.
    pub anonymous: Option<Headers>,
    /// A caller whose tenant is malformed, where that is refused by 400.
    pub bad_tenant: Option<Headers>,
    /// A caller with a quota of new keys that may be used up.
    pub flood: Option<Flood>,
    /// Its promises.
    pub expects: Expectations,
    /// Controls for causing trouble, for our own servers.
    pub controls: Option<Arc<dyn Controls>>,
}

/// The handler that the server runs for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handler {
    /// Our [`fixture`](super::fixture): headers steer it, and it counts its executions.
    Fixture,
    /// Something that answers with a JSON object whose `id` is new with each execution.
    Ids,
}

/// A caller whose quota the suite may use up.
#[derive(Debug, Clone)]
pub struct Flood {
    /// Its headers.
    pub caller: Headers,
    /// Number of new keys that it may use before it is refused.
    pub keys_max: usize,
}

/// Promises of a server. [`Expectations::default`] has those of Onceward's default settings.
#[derive(Debug, Clone)]
pub struct Expectations {
    /// Status of a first answer that created something.
    pub created: u16,
    /// Rule for requests without a key.
    pub key: KeyRule,
    /// Syntax of keys.
    pub key_syntax: KeySyntax,
    /// Longest key, if it refuses longer ones by 400.
    pub key_chars_max: Option<usize>,
    /// True if empty keys are refused by 400.
    pub refuses_empty_keys: bool,
    /// Answer to another request under a used key.
    pub mismatch: Mismatch,
    /// Parts of a request that are compared.
    pub compares: Compares,
    /// The status of a replay.
    pub replay_status: ReplayStatus,
    /// Headers that say `true` on replays and are absent otherwise.
    pub replay_marks: Vec<String>,
    /// Answer to a request while the first is running.
    pub in_progress: InProgress,
    /// True if its errors are problem+json with codes, as Onceward's are.
    pub problems: bool,
    /// Answers that are stored.
    pub outcomes: OutcomePolicy,
    /// Meaning of a 500 of the handler.
    pub server_errors: ServerErrors,
    /// True if the handler may say `Onceward-Outcome` in its answer.
    pub outcome_header: bool,
    /// Largest request body, if larger ones are refused by 413.
    pub request_bytes_max: Option<usize>,
    /// Largest answer that is kept, if larger ones are marked as not replayable.
    pub response_bytes_max: Option<usize>,
    /// State of a claim whose owner died.
    pub lapse: Lapse,
    /// Length of a lease.
    pub lease: Duration,
    /// Retention of outcomes.
    pub ttl: Duration,
    /// State of a key after its retention.
    pub expiry: Expiry,
    /// True if records survive a restart of the server.
    pub survives_restarts: bool,
    /// Place of the handler: in the server, or behind it.
    pub role: Role,
}

/// Rule for requests without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRule {
    /// They are refused by 400.
    Required,
    /// They run each time.
    Optional,
}

/// Syntax of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySyntax {
    /// Quoted keys strictly as structured-field strings, others as they are; `"k"` is `k`.
    Lenient,
    /// Only structured-field strings.
    SfString,
    /// Any text: a quote is a character like others.
    Opaque,
}

/// Answer to another request under a used key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// It is refused with this status.
    Refused(u16),
    /// Nothing is compared: the first answer is replayed.
    Ignored,
}

/// Parts of a request that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compares {
    /// Method, path, query, media type and the body's meaning.
    Requests,
    /// The bytes of the body.
    Bytes,
    /// Some members of the body, the amount among them.
    Members,
}

/// The status of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayStatus {
    /// That of the first answer.
    Original,
    /// 200 for what was created.
    Ok,
}

/// Answer to a request while the first is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InProgress {
    /// 409 at once.
    Reject,
    /// The answer waits for the first request for at most this time, then 409.
    Wait(Duration),
    /// 202 with the location of the operation's status.
    Accepted,
}

/// Answers that are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomePolicy {
    /// Deterministic ones; 401, 403, 408 and 429 are not.
    Careful,
    /// Nothing is promised.
    Unstated,
}

/// Meaning of a 500 of the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerErrors {
    /// It is stored and replayed.
    Kept,
    /// The key is free again.
    Released,
    /// The outcome is unknown.
    Unknown,
    /// Nothing is promised.
    Unstated,
}

/// State of a claim whose owner died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapse {
    /// The outcome is unknown.
    Unknown,
    /// The next request runs again.
    Takeover,
    /// Absent: handlers run in a transaction, which ends with their process. A handler that panics
    /// or says *unknown* leaves nothing either.
    RolledBack,
}

/// State of a key after its retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// It is new.
    Forget,
    /// It is answered as expired.
    Tombstone,
}

/// Place of the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The handler is in the same process.
    Library,
    /// The handler is behind a connection.
    Gateway {
        /// The gateway's time limit for its response.
        timeout: Duration,
    },
}

impl Default for Expectations {
    fn default() -> Self {
        Self {
            created: 201,
            key: KeyRule::Required,
            key_syntax: KeySyntax::Lenient,
            key_chars_max: Some(255),
            refuses_empty_keys: true,
            mismatch: Mismatch::Refused(422),
            compares: Compares::Requests,
            replay_status: ReplayStatus::Original,
            replay_marks: vec!["Idempotent-Replayed".into(), "Idempotency-Replayed".into()],
            in_progress: InProgress::Reject,
            problems: true,
            outcomes: OutcomePolicy::Careful,
            server_errors: ServerErrors::Unknown,
            outcome_header: true,
            request_bytes_max: None,
            response_bytes_max: Some(10 * 1024 * 1024),
            lapse: Lapse::Unknown,
            lease: Duration::from_secs(30),
            ttl: Duration::from_secs(24 * 3600),
            expiry: Expiry::Forget,
            survives_restarts: true,
            role: Role::Library,
        }
    }
}

impl Expectations {
    /// Those of the orders service of seed 003 in its production mode: 201, then 200 with one mark;
    /// 409 for another request, compared byte by byte, and for one that is still running.
    fn seed_003() -> Self {
        Self {
            key: KeyRule::Optional,
            key_syntax: KeySyntax::Opaque,
            mismatch: Mismatch::Refused(409),
            compares: Compares::Bytes,
            replay_status: ReplayStatus::Ok,
            replay_marks: vec!["Idempotent-Replayed".into()],
            problems: false,
            outcomes: OutcomePolicy::Unstated,
            server_errors: ServerErrors::Unstated,
            outcome_header: false,
            response_bytes_max: None,
            survives_restarts: false,
            ..Self::default()
        }
    }
}

const TENANT_A: &str = "2b8de313-9c3c-4a15-a9b8-0cd1e34be3da";
const TENANT_B: &str = "7f1f0a60-6f55-4c0f-8a7e-5a3f3c1d9b42";

impl Target {
    /// One of our own servers, around [`fixture`](super::fixture), with the default
    /// settings: the tenant is in `X-Tenant-ID`, the caller in `X-Caller`, and a
    /// request without `Authorization` is refused by
    /// [`refuse_anonymous`](super::fixture::refuse_anonymous) before anything else.
    pub fn onceward(base: impl Into<String>) -> Self {
        Self {
            name: "onceward".into(),
            base: base.into(),
            peer: None,
            protocol: Protocol::Http1,
            create: "/orders".into(),
            body: |amount| format!(r#"{{"amount":{amount}}}"#),
            handler: Handler::Fixture,
            caller: identity(TENANT_A, "alice", "alice-1"),
            caller_renewed: Some(identity(TENANT_A, "alice", "alice-2")),
            other_caller: Some(identity(TENANT_A, "bob", "bob-1")),
            other_tenant: Some(identity(TENANT_B, "alice", "alice-1")),
            anonymous: Some(headers(&[("X-Tenant-ID", TENANT_A), ("X-Caller", "alice")])),
            bad_tenant: None,
            flood: None,
            expects: Expectations::default(),
            controls: None,
        }
    }

    /// The orders service of seed 003 in its production mode: a filter compares the bytes
    /// of the body, and a request without a key passes through.
    pub fn orders(base: impl Into<String>) -> Self {
        Self {
            name: "orders".into(),
            create: "/api/orders".into(),
            body: |amount| {
                let customer = "25dfc44e-3ed7-4eb4-b412-6a6df8c6d355";
                format!(r#"{{"customerId":"{customer}","amount":{amount}}}"#)
            },
            handler: Handler::Ids,
            caller: headers(&[("X-Tenant-ID", TENANT_A)]),
            caller_renewed: None,
            other_caller: None,
            other_tenant: Some(headers(&[("X-Tenant-ID", TENANT_B)])),
            anonymous: None,
            bad_tenant: Some(headers(&[("X-Tenant-ID", "no-uuid")])),
            expects: Expectations::seed_003(),
            ..Self::onceward(base)
        }
    }

    /// The orders service in its mature mode: a key is required, and the customer and the
    /// amount are compared.
    pub fn orders_mature(base: impl Into<String>) -> Self {
        let mut target = Self::orders(base);
        target.name = "orders, mature".into();
        target.expects.key = KeyRule::Required;
        target.expects.compares = Compares::Members;
        target
    }

    /// The orders service in its easy mode: a key is required and stands for the order, for every
    /// sender and every amount.
    pub fn orders_easy(base: impl Into<String>) -> Self {
        let mut target = Self::orders(base);
        target.name = "orders, easy".into();
        target.caller.clear();
        target.other_tenant = None;
        target.bad_tenant = None;
        target.expects.key = KeyRule::Required;
        target.expects.mismatch = Mismatch::Ignored;
        target.expects.key_chars_max = None;
        target.expects.refuses_empty_keys = false;
        target
    }

    /// The same server over another protocol.
    #[must_use]
    pub fn over(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// The same server with a way to cause trouble.
    #[must_use]
    pub fn controlled(mut self, controls: Arc<dyn Controls>) -> Self {
        self.controls = Some(controls);
        self
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Callers' headers hold credentials.
        f.debug_struct("Target")
            .field("name", &self.name)
            .field("base", &self.base)
            .field("protocol", &self.protocol)
            .field("expects", &self.expects)
            .finish_non_exhaustive()
    }
}

fn identity(tenant: &str, caller: &str, token: &str) -> Headers {
    let bearer = format!("Bearer {token}");
    headers(&[("X-Tenant-ID", tenant), ("X-Caller", caller), ("Authorization", &bearer)])
}

fn headers(pairs: &[(&str, &str)]) -> Headers {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
