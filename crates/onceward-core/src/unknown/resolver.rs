//! Finding out what happened when nobody knows.

use std::error::Error;

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::record::Record;
use crate::store::Verdict;

/// Any error of user code.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Looks at the authority (the business table, the payment provider) and says whether an
/// operation happened.
///
/// [`Verdict::DidNotHappen`] is a promise about the future too: the intent will run again,
/// so an effect of the old attempt must not arrive any more. A look-up that finds nothing
/// is enough only where the effect checks its fence, or when the authority has been told
/// to refuse the operation from now on. Otherwise say [`Verdict::StillUnknown`].
#[async_trait]
pub trait Resolver: Send + Sync + 'static {
    /// What happened to this operation? An `Err` counts as still unknown.
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError>;

    /// Its name in the trail of decisions.
    fn name(&self) -> &str {
        "resolver"
    }

    /// Where it looks: an address, a query, a table. A resolver that looks elsewhere is another
    /// one, whose [`Since::FirstUse`] begins anew. Stored as text: no passwords.
    fn address(&self) -> String {
        String::new()
    }

    /// The operations for which its [`Verdict::DidNotHappen`] counts. For older ones it is taken
    /// as [`Verdict::StillUnknown`].
    fn since(&self) -> Since {
        Since::FirstUse
    }

    /// Whether it says [`Verdict::DidNotHappen`] because it finds nothing, as a query does that
    /// returns no row. A query on the wrong table finds nothing either, so this counts only while
    /// the resolver says of an operation that was completed that it happened.
    fn goes_by_absence(&self) -> bool {
        false
    }
}

/// The operations for which a [`Resolver`]'s "did not happen" counts, by the time of their first
/// claim.
///
/// A table whose column was added today has no row about yesterday's operations, although they
/// happened. "Happened" counts for operations of any age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Since {
    /// Claimed after the resolver was first used with the store. The store keeps that moment
    /// for each [`Resolver::address`].
    #[default]
    FirstUse,
    /// Claimed at this time or later, on the store's clock.
    At(Timestamp),
    /// All of them: the resolver has known every operation from the beginning.
    Always,
}

/// What a [`Resolver`] says, and what it has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What happened.
    pub verdict: Verdict,
    /// What it goes by, for people: no secrets.
    pub evidence: String,
}

impl Finding {
    /// A verdict with what it goes by.
    pub fn new(verdict: Verdict, evidence: impl Into<String>) -> Self {
        Self { verdict, evidence: evidence.into() }
    }
}

impl From<Verdict> for Finding {
    fn from(verdict: Verdict) -> Self {
        Self::new(verdict, "")
    }
}
