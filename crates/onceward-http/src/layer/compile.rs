//! Checks the rules of an operation, and prepares them for requests.

use std::time::Duration;

use http::Method;
use http::header::HeaderName;
use onceward_core::{
    Engine, InvalidPolicy, OnLapse, Policy, PolicyBuilder, ReplayCheck, SCOPE_PART_BYTES_MAX,
    ScopePart,
};

use super::operation::Operation;
use crate::exchange::{NamedOperation, PermitKind, ProtectedOperation};
use crate::observe::LogLimits;
use crate::request::Fingerprinter;
use crate::request::canonical::{InvalidPointer, Selection};
use crate::rules::{
    InProgress, KeyFrom, Mode, ReferenceFrom, ReferenceRules, Rules, is_never_stored,
};

/// Prepares the operations of one layer.
pub(super) struct Compiler<'l> {
    pub(super) engine: &'l Engine,
    pub(super) permits: &'l PermitKind,
    /// A key is bound to the credentials of its first request.
    pub(super) bind_credentials: bool,
    /// The header with the API version, if that is a part of the scope.
    pub(super) version_header: Option<&'l HeaderName>,
}

impl Compiler<'_> {
    pub(super) fn named(&self, operation: Operation) -> Result<ProtectedOperation, InvalidLayer> {
        let Operation { method, route, name, mut rules } = operation;
        // The name tells a fixed path.
        rules.record_path &= route.contains('{');
        if method.is_safe() {
            return Err(InvalidLayer::Method { method, route });
        }
        rules.methods = vec![method.clone()];
        let name = name.unwrap_or_else(|| format!("{method} {route}"));
        if name.is_empty() || name.len() > SCOPE_PART_BYTES_MAX {
            return Err(InvalidLayer::Name { route, length: name.len() });
        }
        self.operation(Some(NamedOperation { method, name: name.into() }), rules)
    }

    pub(super) fn operation(
        &self,
        named: Option<NamedOperation>,
        rules: Rules,
    ) -> Result<ProtectedOperation, InvalidLayer> {
        let forbidden = rules.response_headers.keep.iter().find(|name| is_never_stored(name));
        if let Some(name) = forbidden {
            return Err(InvalidLayer::Header(name.to_string()));
        }
        if rules.key.min > rules.key.max || rules.key.max > onceward_core::KEY_CHARS_MAX {
            return Err(InvalidLayer::KeyLength { min: rules.key.min, max: rules.key.max });
        }
        if !rules.mismatch_status.is_client_error() {
            return Err(InvalidLayer::MismatchStatus(rules.mismatch_status.as_u16()));
        }
        if let (Some(compared), Some(scoped)) =
            (&rules.fingerprint.api_version, self.version_header)
            && compared == scoped
        {
            return Err(InvalidLayer::ApiVersion(scoped.to_string()));
        }
        if let Some(ReferenceRules { from: ReferenceFrom::Body(pointer), .. }) = &rules.reference {
            check_pointer(pointer)?;
        }
        if let KeyFrom::Body(pointer) = &rules.key.from {
            check_pointer(pointer)?;
        }
        let engine = engine_for(&rules, self.engine)?;
        let permits = self.permits.under(&engine);
        let fingerprinter = Fingerprinter::new(&rules.fingerprint, self.bind_credentials)?;
        let log_limits = LogLimits::default();
        Ok(ProtectedOperation { named, rules, engine, permits, fingerprinter, log_limits })
    }
}

fn check_pointer(pointer: &str) -> Result<(), InvalidPointer> {
    Selection::new(&[pointer], &[""; 0]).map(drop)
}

/// Returns the engine with the rules' own policy.
fn engine_for(rules: &Rules, engine: &Engine) -> Result<Engine, InvalidLayer> {
    let engine = engine.with_policy(rules.policy(engine.policy())?);
    if engine.policy().replay_check() == ReplayCheck::Resolver && !engine.has_recovery() {
        return Err(InvalidLayer::NoResolver);
    }
    match rules.retry_after {
        Some(delay) => check_retry_after(delay, engine.policy().retention().keep).map(|()| engine),
        None => Ok(engine),
    }
}

/// Shortest `Retry-After`: the header counts whole seconds, and zero would ask for a storm.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

fn check_retry_after(delay: Duration, ttl: Duration) -> Result<(), InvalidLayer> {
    if (RETRY_AFTER_MIN..=ttl).contains(&delay) {
        return Ok(());
    }
    Err(InvalidLayer::RetryAfter { delay, ttl })
}

impl Rules {
    /// Returns the policy of an operation with these rules: `base` is the engine's.
    pub fn policy(&self, base: &Policy) -> Result<Policy, InvalidPolicy> {
        let mut policy = base.to_builder();
        if let Some(ttl) = self.ttl {
            policy = policy.retention(ttl);
        }
        if let Some(ttl) = self.reference.as_ref().and_then(|reference| reference.ttl) {
            policy = policy.reference_retention(ttl);
        }
        if let Some(expiry) = self.expiry {
            policy = policy.expiry(expiry);
        }
        if let Some(lease) = self.lease {
            policy = policy.lease(lease);
        }
        let on_lapse = self.on_lapse.unwrap_or(base.on_lapse());
        policy = policy.on_lapse(on_lapse);
        if let Some(delay) = self.retry_after {
            policy = policy.retry_after(delay);
        }
        if let Some(check) = self.replay_check {
            policy = policy.replay_check(check);
        }
        policy = match self.in_progress {
            InProgress::Wait(longest) => policy.wait(longest),
            InProgress::Reject | InProgress::Accepted => policy.wait(Duration::ZERO),
        };
        if self.mode == Mode::Shadow {
            policy = shadowing(policy, on_lapse);
        }
        policy.build()
    }
}

/// Changes a policy for shadow mode: claims give up early, because no request waits for them, and no
/// resolver is asked about requests that were never protected, or before replays that never happen.
fn shadowing(policy: PolicyBuilder, on_lapse: OnLapse) -> PolicyBuilder {
    const PATIENCE: Duration = Duration::from_secs(2);
    let policy = policy.claim_patience(PATIENCE).settle_wait(PATIENCE).settle_patience(PATIENCE);
    let policy = policy.replay_check(ReplayCheck::Never);
    match on_lapse {
        OnLapse::Resolve => policy.on_lapse(OnLapse::Unknown),
        OnLapse::Unknown | OnLapse::Takeover => policy,
    }
}

/// Why the settings of a layer are refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLayer {
    /// An invalid route template, or two that match the same paths.
    #[error("the route {route:?} cannot be used: {why}")]
    Route {
        /// The template.
        route: String,
        /// The cause.
        why: String,
    },
    /// A safe method.
    #[error("{method} {route} changes nothing and always passes; use POST, PUT, PATCH or DELETE")]
    Method {
        /// The method.
        method: Method,
        /// The route.
        route: String,
    },
    /// An operation's name that is empty or too long.
    #[error(
        "the operation at {route:?} has a name of {length} bytes; \
         give it one of 1 to {SCOPE_PART_BYTES_MAX}"
    )]
    Name {
        /// The route.
        route: String,
        /// The length of the name.
        length: usize,
    },
    /// Credentials as another part of the scope than the caller.
    #[error("credentials bind the keys of a caller and name no {0}; use them as the caller")]
    Credentials(ScopePart),
    /// A path parameter of the parent resource that no route has.
    #[error(
        "no operation's route has the parameter {{{0}}} of the parent resource; add it to a route, \
         as in /carts/{{cart}}/orders"
    )]
    PathParameter(String),
    /// One header as the API version of the scope and of the fingerprint.
    #[error(
        "the header {0} is the API version of both the scope and the fingerprint: another version \
         is another key, so the fingerprint never compares it; keep fingerprint.api_version, which \
         refuses a retry under another version instead of running it"
    )]
    ApiVersion(String),
    /// A header that must not be stored.
    #[error("the response header {0} belongs to one caller or one connection and is never stored")]
    Header(String),
    /// Invalid lengths of keys.
    #[error("keys of {min} to {max} characters are impossible; the widest range is 1 to 255")]
    KeyLength {
        /// The shortest key.
        min: usize,
        /// The longest key.
        max: usize,
    },
    /// A status that is not a client error.
    #[error("mismatch_status is {0}; it must be a 4xx status, such as 422 or 409")]
    MismatchStatus(u16),
    /// Replays are to be checked, and there is nothing to ask.
    #[error("replay_check needs a resolver: build the engine with a Recovery")]
    NoResolver,
    /// A `Retry-After` of less than a second, or longer than responses are stored.
    #[error(
        "retry_after is {delay:?}; it must be between 1s and ttl ({ttl:?}), after which a retry \
         would run again"
    )]
    RetryAfter {
        /// The delay.
        delay: Duration,
        /// The retention of responses.
        ttl: Duration,
    },
    /// Durations that contradict each other.
    #[error(transparent)]
    Policy(#[from] InvalidPolicy),
    /// An invalid JSON pointer.
    #[error(transparent)]
    Pointer(#[from] InvalidPointer),
}
