//! Resolvers: find out whether an unknown operation happened.

use std::error::Error;

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::record::Record;
use crate::store::Verdict;

/// Any error of user code.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Asks the authority (the business table, the payment provider) whether an operation happened.
///
/// [`Verdict::DidNotHappen`] is a promise about the future too: the intent will run again,
/// so an effect of the old attempt must not arrive any more. A lookup that finds nothing
/// is enough only where the effect checks its fence, or when the authority has been told
/// to refuse the operation from now on. Otherwise return [`Verdict::StillUnknown`].
#[async_trait]
pub trait Resolver: Send + Sync + 'static {
    /// Returns what happened to an operation. An `Err` counts as still unknown.
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError>;

    /// Its name in the decision log.
    fn name(&self) -> &str {
        "resolver"
    }

    /// The address, query or table that it asks. A resolver with another address is another
    /// resolver, with a new [`Since::FirstUse`]. Stored as plain text: no passwords.
    fn address(&self) -> String {
        String::new()
    }

    /// The operations for which its [`Verdict::DidNotHappen`] counts. For older ones it means
    /// [`Verdict::StillUnknown`].
    fn since(&self) -> Since {
        Since::FirstUse
    }

    /// Returns true if it says [`Verdict::DidNotHappen`] because it finds nothing, as a query that
    /// returns no row. A query on the wrong table finds nothing either, so the verdict then counts
    /// only while the resolver says of completed operations that they happened.
    fn goes_by_absence(&self) -> bool {
        false
    }
}

/// The operations for which a [`Resolver`]'s "did not happen" counts, by the time of their first
/// claim.
///
/// A table whose column was added today has no row about yesterday's operations, although they
/// happened. [`Verdict::Happened`] counts for operations of any age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Since {
    /// Operations claimed after the resolver was first used with the store. The store keeps that
    /// time for each [`Resolver::address`].
    #[default]
    FirstUse,
    /// Operations claimed at this time or later, on the store's clock.
    At(Timestamp),
    /// All operations: the resolver has known every one from the beginning.
    Always,
}

/// Answer of a [`Resolver`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its verdict.
    pub verdict: Verdict,
    /// Its evidence, for people: no secrets.
    pub evidence: String,
}

impl Finding {
    /// A verdict with its evidence.
    pub fn new(verdict: Verdict, evidence: impl Into<String>) -> Self {
        Self { verdict, evidence: evidence.into() }
    }
}

impl From<Verdict> for Finding {
    fn from(verdict: Verdict) -> Self {
        Self::new(verdict, "")
    }
}
