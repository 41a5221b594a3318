//! Points at which tests stop the service.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

/// Point in the processing of a bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoint {
    /// An item is claimed, and nothing is changed.
    ItemClaimed,
    /// An item's case is changed and its result is written. In PostgreSQL this is not committed
    /// yet; the log has it, and the claim is not settled yet.
    ItemChanged,
    /// All items are done, and the response is not stored yet.
    BulkDone,
}

/// Function that is awaited at each checkpoint, with the `clientItemId`, or an empty text.
#[derive(Clone)]
pub(crate) struct CheckpointHook(Option<Arc<Hook>>);

type Hook = dyn Fn(Checkpoint, &str) -> BoxFuture<'static, ()> + Send + Sync;

impl CheckpointHook {
    pub(crate) fn none() -> Self {
        Self(None)
    }

    pub(crate) fn new<R>(hook: impl Fn(Checkpoint, &str) -> R + Send + Sync + 'static) -> Self
    where
        R: Future<Output = ()> + Send + 'static,
    {
        Self(Some(Arc::new(move |checkpoint, item| Box::pin(hook(checkpoint, item)))))
    }

    pub(crate) async fn reached(&self, checkpoint: Checkpoint, item: &str) {
        if let Some(hook) = &self.0 {
            hook(checkpoint, item).await;
        }
    }
}

impl fmt::Debug for CheckpointHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckpointHook(…)")
    }
}
