//! Admission of requests and of new keys, before a claim.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::{Intent, Key, Scope};

use super::state::LayerState;

/// Decides whether a key may be sent once more, and whether a caller may use one more key; is told
/// about its use. Set by [`LayerBuilder::admission`](crate::LayerBuilder::admission).
pub trait Admission: Send + Sync {
    /// Admits a request of this key, known or new, or refuses it with 429. Every request with a key
    /// is asked about, before its body is read and before the store. Admits all by default.
    fn admit_request(&self, scope: &Scope, key: &Key) -> Result<(), OverQuota> {
        _ = (scope, key);
        Ok(())
    }

    /// Admits a new key, or refuses it with 429. Asked before a claim, whose key may be known:
    /// retries of known keys should be admitted, as they use no new key. Not asked about exact
    /// repetitions of a request that was replayed before.
    fn admit_new_key<'a>(
        &'a self,
        intent: &'a Intent,
    ) -> Pin<Box<dyn Future<Output = Result<(), OverQuota>> + Send + 'a>>;

    /// A key was claimed.
    fn granted(&self, scope: &Scope);

    /// The response of a key was stored, with this many bytes.
    fn stored(&self, scope: &Scope, bytes: usize);
}

/// A refusal by an [`Admission`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverQuota {
    /// Delay after which the request may be sent again.
    pub retry_after: Duration,
    /// Name of the limit, for the log and the client.
    pub limit: Cow<'static, str>,
}

/// Reports the use of a granted key to the [`Admission`].
pub(super) struct Usage {
    admission: Arc<dyn Admission>,
    scope: Scope,
}

impl Usage {
    /// Reports a granted key; `None` without an [`Admission`].
    pub(super) fn granted(state: &LayerState, intent: &Intent) -> Option<Self> {
        let admission = Arc::clone(state.admission.as_ref()?);
        admission.granted(&intent.scope);
        Some(Self { admission, scope: intent.scope.clone() })
    }

    /// Reports the bytes of the stored response.
    pub(super) fn stored(self, bytes: usize) {
        self.admission.stored(&self.scope, bytes);
    }
}
