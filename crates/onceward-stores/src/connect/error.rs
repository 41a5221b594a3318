//! Why a URL does not lead to a store, in words that say what to do.

use std::fmt;

use super::{SCHEMES, Support};
#[cfg(feature = "embedded")]
use crate::embedded::OpenError;
#[cfg(feature = "postgres")]
use crate::postgres::OpenError as PostgresError;
#[cfg(feature = "redis")]
use crate::redis::OpenError as RedisOpenError;

/// Why a URL does not lead to a store. Names the part of it that is wrong, and shows no part
/// that may hold a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// There is no scheme.
    #[error("a store's URL begins with a scheme and a colon, this one does not: {}", Known)]
    NoScheme,
    /// Nobody knows the scheme.
    #[error("the scheme `{scheme}:` is not known: {}", Known)]
    UnknownScheme {
        /// The scheme.
        scheme: String,
    },
    /// The scheme's store was left out of this build.
    #[error(
        "`{scheme}:` stores are not in this build: turn on the feature `{feature}` of onceward-stores (or of onceward)"
    )]
    MissingFeature {
        /// The scheme.
        scheme: &'static str,
        /// The feature that brings it.
        feature: &'static str,
    },
    /// What follows the scheme is wrong.
    #[error("the {part} of a `{scheme}:` URL {problem}")]
    Part {
        /// The scheme.
        scheme: &'static str,
        /// Which part of the URL.
        part: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The store does not have the option.
    #[error("`{scheme}:` stores have no option `{option}`; theirs are {known}")]
    UnknownOption {
        /// The scheme.
        scheme: &'static str,
        /// The option.
        option: String,
        /// Those that it has.
        known: String,
    },
    /// An option's value is wrong.
    #[error("the option `{option}` of a `{scheme}:` URL {problem}")]
    Option {
        /// The scheme.
        scheme: &'static str,
        /// The option.
        option: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The URL is right, and the directory does not open.
    #[cfg(feature = "embedded")]
    #[error(transparent)]
    Embedded(OpenError),
    /// The URL is right, and the database does not open.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(Box<PostgresError>),
    /// The URL is right, and the server cannot be used.
    #[cfg(feature = "redis")]
    #[error(transparent)]
    Redis(RedisOpenError),
    /// The two URLs do not go together.
    #[cfg(feature = "tiered")]
    #[error("`{scheme}:` stores {problem}")]
    Cache {
        /// The scheme that does not fit.
        scheme: &'static str,
        /// Why not.
        problem: &'static str,
    },
    /// The URLs are right, and the cache cannot be put before the store.
    #[cfg(feature = "tiered")]
    #[error(transparent)]
    Tiered(Box<crate::tiered::OpenError>),
    /// The runtime stopped in the middle.
    #[error("the runtime stopped while the store was being opened")]
    Interrupted,
}

/// Says which schemes there are.
struct Known;

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this build knows")?;
        // One example a kind of store; other spellings of it have none.
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
