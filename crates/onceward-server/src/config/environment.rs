//! Secrets in environment variables, which a configuration only names.

/// An environment variable that a configuration names is not set.
#[derive(Debug, thiserror::Error)]
#[error("the environment variable {0} is not set, or is not text")]
pub struct NotSet(String);

/// The value of an environment variable.
pub(crate) fn environment(variable: &str) -> Result<String, NotSet> {
    std::env::var(variable).map_err(|_| NotSet(variable.into()))
}
