//! Replies that are rebuilt from a stored reference.

use async_trait::async_trait;

use crate::record::Outcome;
use crate::unknown::BoxError;

/// Makes the reply to a replay from a stored reference, where the reply itself is too
/// sensitive or too large to keep.
#[async_trait]
pub trait Rebuilder: Send + Sync + 'static {
    /// Returns the reply behind a [`Content::Reference`](crate::Content::Reference).
    async fn rebuild(&self, reference: &Outcome) -> Result<Outcome, BoxError>;
}
