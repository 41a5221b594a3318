//! Secrets that a configuration names and does not hold.

/// An environment variable that a configuration names is not there.
#[derive(Debug, thiserror::Error)]
#[error("the environment variable {0} is not set, or is not text")]
pub struct NotSet(String);

/// The value of an environment variable.
pub(crate) fn environment(variable: &str) -> Result<String, NotSet> {
    std::env::var(variable).map_err(|_| NotSet(variable.into()))
}
