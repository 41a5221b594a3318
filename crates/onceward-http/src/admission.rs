//! Who may use one more key: asked before anything is claimed.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use onceward_core::{Intent, Scope};

/// Decides, before a claim, whether a caller may use one more new key, and is told what
/// became of it. Set it by [`LayerBuilder::admission`](crate::LayerBuilder::admission).
pub trait Admission: Send + Sync {
    /// Lets a request pass, or says after how long it may come again: 429.
    ///
    /// Retries of known keys should pass: they cost nothing new.
    fn admit<'a>(
        &'a self,
        intent: &'a Intent,
    ) -> Pin<Box<dyn Future<Output = Result<(), Duration>> + Send + 'a>>;

    /// A key was claimed.
    fn granted(&self, scope: &Scope);

    /// So many bytes are kept of its response.
    fn kept(&self, scope: &Scope, bytes: usize);
}
