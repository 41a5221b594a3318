//! Functions that the output of `#[idempotent]` calls. Not part of the API: they change without
//! notice.

use std::time::Duration;

use onceward_core::{
    Disposition, Done, Engine, Failure, Fingerprint, Grant, Intent, InvalidKey, Key, Refused,
    RunError, Scope,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Tenant of services without tenants, and caller where callers share their keys.
pub const ANYONE: &str = "-";

/// The result of an idempotent function.
#[diagnostic::on_unimplemented(
    message = "an idempotent function returns `Result<T, E>`, not `{Self}`",
    label = "this is not a `Result`"
)]
pub trait ResultLike {
    /// The success.
    type Value;
    /// The error.
    type Error;
    /// Converts to a `Result`.
    fn into_result(self) -> Result<Self::Value, Self::Error>;
    /// Converts from a `Result`.
    fn from_result(result: Result<Self::Value, Self::Error>) -> Self;
}

impl<T, E> ResultLike for Result<T, E> {
    type Value = T;
    type Error = E;

    fn into_result(self) -> Self {
        self
    }

    fn from_result(result: Self) -> Self {
        result
    }
}

/// A value or an error that is stored and replayed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is given to retries, so it must be `serde::Serialize` and `serde::Deserialize`",
    label = "a part of this cannot be stored"
)]
pub trait Stored: Serialize + DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Stored for T {}

/// An error that can hold a refusal.
#[diagnostic::on_unimplemented(
    message = "the error `{Self}` cannot tell that a call was refused",
    label = "this error does not implement `From<onceward::Refused>`"
)]
pub trait FromRefused: From<Refused> {}

#[diagnostic::do_not_recommend]
impl<T: From<Refused>> FromRefused for T {}

/// An argument that is part of the fingerprint.
#[diagnostic::on_unimplemented(
    message = "the argument's type `{Self}` is not `serde::Serialize`, so it has no fingerprint",
    label = "this argument is part of the fingerprint",
    note = "derive `serde::Serialize` for it, or leave it out by `skip(..)` if it does not say what is asked for"
)]
pub trait Argument {
    /// Serializes the argument.
    fn to_json(&self) -> Result<Value, serde_json::Error>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + ?Sized> Argument for T {
    fn to_json(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(self)
    }
}

/// The compared arguments by name.
pub fn fingerprint(arguments: &[(&str, &dyn Argument)]) -> Result<Fingerprint, Refused> {
    let member = |(name, argument): &(_, &dyn Argument)| Ok((*name, argument.to_json()?));
    let members: Result<Vec<_>, _> = arguments.iter().map(member).collect();
    Ok(Fingerprint::of_members(&members.map_err(Refused::Arguments)?))
}

/// The settings of one call.
#[derive(Debug)]
pub struct CallSettings<'a> {
    /// The engine.
    pub engine: &'a Engine,
    /// How long the outcome is stored; `None` for the engine's policy.
    pub ttl: Option<Duration>,
    /// The operation.
    pub operation: &'static str,
    /// The tenant.
    pub tenant: &'a str,
    /// The caller.
    pub caller: &'a str,
    /// The key.
    pub key: Result<Key, InvalidKey>,
    /// The fingerprint.
    pub fingerprint: Result<Fingerprint, Refused>,
}

/// The settings of one call, checked.
#[derive(Debug)]
pub struct CheckedCall {
    engine: Engine,
    intent: Intent,
}

impl CallSettings<'_> {
    /// Checks the settings.
    pub fn check(self) -> Result<CheckedCall, Refused> {
        let scope = Scope::new(self.tenant, self.caller, self.operation)?;
        let intent = Intent::new(scope, self.key?, self.fingerprint?);
        Ok(CheckedCall { engine: with_ttl(self.engine, self.ttl)?, intent })
    }
}

/// Returns the engine with the function's own retention.
fn with_ttl(engine: &Engine, ttl: Option<Duration>) -> Result<Engine, Refused> {
    match ttl {
        Some(ttl) if ttl != engine.policy().retention().keep => {
            let policy = engine.policy().to_builder().retention(ttl).build()?;
            Ok(engine.with_policy(policy))
        }
        Some(_) | None => Ok(engine.clone()),
    }
}

/// Classification of an error; `None` leaves it to the policy.
pub type Classify<E> = fn(&E) -> Option<Disposition>;

/// Runs a function's block in its own task.
pub async fn run<R, F, W>(
    call: Result<CheckedCall, Refused>,
    work: F,
    classify: Classify<R::Error>,
) -> R
where
    R: ResultLike + 'static,
    R::Value: Stored + Send + 'static,
    R::Error: Stored + FromRefused + Send + 'static,
    F: FnOnce(Grant) -> W,
    W: Future<Output = R> + Send + 'static,
{
    match call {
        Ok(CheckedCall { engine, intent }) => {
            answer(engine.run(&intent, |grant| classified(work(grant), classify)).await)
        }
        Err(refused) => R::from_result(Err(refused.into())),
    }
}

/// Runs a function's block in the caller's future.
pub async fn run_inline<R, F, W>(
    call: Result<CheckedCall, Refused>,
    work: F,
    classify: Classify<R::Error>,
) -> R
where
    R: ResultLike,
    R::Value: Stored,
    R::Error: Stored + FromRefused,
    F: FnOnce(Grant) -> W,
    W: Future<Output = R>,
{
    match call {
        Ok(CheckedCall { engine, intent }) => {
            answer(engine.run_inline(&intent, |grant| classified(work(grant), classify)).await)
        }
        Err(refused) => R::from_result(Err(refused.into())),
    }
}

/// Returns the block's result with the classification of its error.
async fn classified<R: ResultLike>(
    work: impl Future<Output = R>,
    classify: Classify<R::Error>,
) -> Result<R::Value, Failure<R::Error>> {
    work.await.into_result().map_err(|error| match classify(&error) {
        Some(Disposition::Keep) => Failure::Keep(error),
        Some(Disposition::Release) => Failure::Release(error),
        Some(Disposition::Unknown) => Failure::Unknown(error),
        None => Failure::Unclassified(error),
    })
}

fn answer<R: ResultLike>(result: Result<Done<R::Value>, RunError<R::Error>>) -> R
where
    R::Error: FromRefused,
{
    let result = result.map(|done| done.value);
    R::from_result(result.map_err(|error| error.into_work_error().unwrap_or_else(R::Error::from)))
}
