//! What the output of `#[idempotent]` calls. Not for hand-written code: it changes without
//! notice.

use std::time::Duration;

use onceward_core::{
    Disposition, Done, Engine, Failure, Fingerprint, Grant, Intent, InvalidKey, Key, Refused,
    RunError, Scope,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The tenant of services without tenants, and the caller where callers share their keys.
pub const ANYONE: &str = "-";

/// What a guarded function returns.
#[diagnostic::on_unimplemented(
    message = "an idempotent function returns `Result<T, E>`, not `{Self}`",
    label = "this is not a `Result`"
)]
pub trait Answer {
    /// The value of a success.
    type Value;
    /// The error.
    type Error;
    /// As the result that it is.
    fn into_result(self) -> Result<Self::Value, Self::Error>;
    /// From the result that it is.
    fn from_result(result: Result<Self::Value, Self::Error>) -> Self;
}

impl<T, E> Answer for Result<T, E> {
    type Value = T;
    type Error = E;

    fn into_result(self) -> Self {
        self
    }

    fn from_result(result: Self) -> Self {
        result
    }
}

/// A value or an error that is stored, and given to retries.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is given to retries, so it must be `serde::Serialize` and `serde::Deserialize`",
    label = "a part of this cannot be stored"
)]
pub trait Stored: Serialize + DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Stored for T {}

/// An error that can say why nothing came of a call.
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
    /// As serde sees it.
    fn to_json(&self) -> Result<Value, serde_json::Error>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + ?Sized> Argument for T {
    fn to_json(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(self)
    }
}

/// What was asked for: the arguments by name.
pub fn fingerprint(arguments: &[(&str, &dyn Argument)]) -> Result<Fingerprint, Refused> {
    let member = |(name, argument): &(_, &dyn Argument)| Ok((*name, argument.to_json()?));
    let members: Result<Vec<_>, _> = arguments.iter().map(member).collect();
    Ok(Fingerprint::of_members(&members.map_err(Refused::Arguments)?))
}

/// What one call is guarded by, as it was given.
#[derive(Debug)]
pub struct Guard<'a> {
    /// The engine to decide.
    pub engine: &'a Engine,
    /// How long the outcome is kept, where the engine's policy does not say it.
    pub ttl: Option<Duration>,
    /// What is done.
    pub operation: &'static str,
    /// Whose data it is.
    pub tenant: &'a str,
    /// Who asked.
    pub caller: &'a str,
    /// Their name for it.
    pub key: Result<Key, InvalidKey>,
    /// What was asked for.
    pub fingerprint: Result<Fingerprint, Refused>,
}

/// What one call is guarded by, checked.
#[derive(Debug)]
pub struct Guarded {
    engine: Engine,
    intent: Intent,
}

impl Guard<'_> {
    /// Checks it all, once.
    pub fn stand(self) -> Result<Guarded, Refused> {
        let scope = Scope::new(self.tenant, self.caller, self.operation)?;
        let intent = Intent::new(scope, self.key?, self.fingerprint?);
        Ok(Guarded { engine: keeping(self.engine, self.ttl)?, intent })
    }
}

/// The engine with the function's own retention.
fn keeping(engine: &Engine, ttl: Option<Duration>) -> Result<Engine, Refused> {
    match ttl {
        Some(ttl) if ttl != engine.policy().retention().keep => {
            let policy = engine.policy().to_builder().retention(ttl).build()?;
            Ok(engine.with_policy(policy))
        }
        Some(_) | None => Ok(engine.clone()),
    }
}

/// What an error means; `None` leaves it to the policy.
pub type Meaning<E> = fn(&E) -> Option<Disposition>;

/// Runs a function's block in a task of its own.
pub async fn run<R, F, W>(
    guarded: Result<Guarded, Refused>,
    work: F,
    meaning: Meaning<R::Error>,
) -> R
where
    R: Answer + 'static,
    R::Value: Stored + Send + 'static,
    R::Error: Stored + FromRefused + Send + 'static,
    F: FnOnce(Grant) -> W,
    W: Future<Output = R> + Send + 'static,
{
    match guarded {
        Ok(Guarded { engine, intent }) => {
            answer(engine.run(&intent, |grant| classified(work(grant), meaning)).await)
        }
        Err(refused) => R::from_result(Err(refused.into())),
    }
}

/// Runs a function's block as a part of the caller's future.
pub async fn run_inline<R, F, W>(
    guarded: Result<Guarded, Refused>,
    work: F,
    meaning: Meaning<R::Error>,
) -> R
where
    R: Answer,
    R::Value: Stored,
    R::Error: Stored + FromRefused,
    F: FnOnce(Grant) -> W,
    W: Future<Output = R>,
{
    match guarded {
        Ok(Guarded { engine, intent }) => {
            answer(engine.run_inline(&intent, |grant| classified(work(grant), meaning)).await)
        }
        Err(refused) => R::from_result(Err(refused.into())),
    }
}

/// The block's result, with what its error says about the effect.
async fn classified<R: Answer>(
    work: impl Future<Output = R>,
    meaning: Meaning<R::Error>,
) -> Result<R::Value, Failure<R::Error>> {
    work.await.into_result().map_err(|error| match meaning(&error) {
        Some(Disposition::Keep) => Failure::Keep(error),
        Some(Disposition::Release) => Failure::Release(error),
        Some(Disposition::Unknown) => Failure::Unknown(error),
        None => Failure::Unclassified(error),
    })
}

fn answer<R: Answer>(result: Result<Done<R::Value>, RunError<R::Error>>) -> R
where
    R::Error: FromRefused,
{
    let result = result.map(|done| done.value);
    R::from_result(result.map_err(|error| error.into_work_error().unwrap_or_else(R::Error::from)))
}
