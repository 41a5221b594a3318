//! Why a store's URL is refused, or the store does not open.

use std::fmt;

use super::{SCHEMES, Support};
#[cfg(feature = "embedded")]
use crate::embedded::OpenError;
#[cfg(feature = "postgres")]
use crate::postgres::OpenError as PostgresError;
#[cfg(feature = "redis")]
use crate::redis::OpenError as RedisOpenError;

/// Why a store's URL is refused, or the store does not open. Names the part of the URL that is
/// wrong, and never shows a part that may hold a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL has no scheme.
    #[error("a store's URL must begin with a scheme and a colon: {}", KnownSchemes)]
    NoScheme,
    /// The scheme is unknown.
    #[error("the scheme `{scheme}:` is unknown: {}", KnownSchemes)]
    UnknownScheme {
        /// The scheme.
        scheme: String,
    },
    /// This build does not have the scheme's store.
    #[error(
        "`{scheme}:` stores are not in this build: turn on the feature `{feature}` of onceward-stores (or of onceward)"
    )]
    MissingFeature {
        /// The scheme.
        scheme: &'static str,
        /// The feature that adds it.
        feature: &'static str,
    },
    /// A part after the scheme is wrong.
    #[error("the {part} of a `{scheme}:` URL {problem}")]
    Part {
        /// The scheme.
        scheme: &'static str,
        /// The part of the URL.
        part: &'static str,
        /// The problem.
        problem: &'static str,
    },
    /// The store does not have the option.
    #[error("`{scheme}:` stores have no option `{option}`; theirs are {known}")]
    UnknownOption {
        /// The scheme.
        scheme: &'static str,
        /// The option.
        option: String,
        /// The options that it has.
        known: String,
    },
    /// An option's value is wrong.
    #[error("the option `{option}` of a `{scheme}:` URL {problem}")]
    Option {
        /// The scheme.
        scheme: &'static str,
        /// The option.
        option: String,
        /// The problem.
        problem: &'static str,
    },
    /// The URL is valid, and the directory does not open.
    #[cfg(feature = "embedded")]
    #[error(transparent)]
    Embedded(OpenError),
    /// The URL is valid, and the database does not open.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(Box<PostgresError>),
    /// The URL is valid, and the server cannot be used.
    #[cfg(feature = "redis")]
    #[error(transparent)]
    Redis(RedisOpenError),
    /// A store of the one URL cannot have a cache of the other.
    #[cfg(feature = "tiered")]
    #[error("`{scheme}:` stores {problem}")]
    Cache {
        /// The scheme that does not fit.
        scheme: &'static str,
        /// The problem.
        problem: &'static str,
    },
    /// The URLs are valid, and the store or its cache does not open.
    #[cfg(feature = "tiered")]
    #[error(transparent)]
    TieredStore(Box<crate::tiered::OpenError>),
    /// The runtime stopped meanwhile.
    #[error("the runtime stopped while the store was being opened")]
    Interrupted,
}

/// Displays the schemes of this build, and those that a feature would add.
struct KnownSchemes;

impl fmt::Display for KnownSchemes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this build knows")?;
        // One example for each kind of store; other spellings of a scheme have none.
        let shown = || SCHEMES.iter().filter(|it| !it.example.is_empty());
        let built = shown().filter(|it| matches!(it.support, Support::Built(_)));
        for (index, scheme) in built.enumerate() {
            write!(f, "{} `{}`", if index == 0 { "" } else { "," }, scheme.example)?;
        }
        for scheme in shown() {
            if let Support::LeftOut(feature) = scheme.support {
                write!(f, ", and with the feature `{feature}` it would `{}`", scheme.example)?;
            }
        }
        Ok(())
    }
}
