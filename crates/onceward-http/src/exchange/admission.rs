//! Admission of new keys, before a claim.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::{Intent, Scope};

use super::state::LayerState;

/// Decides before a claim whether a caller may use one more key, and is told about its use. Set by
/// [`LayerBuilder::admission`](crate::LayerBuilder::admission).
pub trait Admission: Send + Sync {
    /// Admits a request, or refuses it with 429.
    ///
    /// Retries of known keys should be admitted: they use no new key.
    fn admit<'a>(
        &'a self,
        intent: &'a Intent,
    ) -> Pin<Box<dyn Future<Output = Result<(), OverQuota>> + Send + 'a>>;

    /// A key was claimed.
    fn granted(&self, scope: &Scope);

    /// The response of a key was stored, with this many bytes.
    fn stored(&self, scope: &Scope, bytes: usize);
}

/// A refusal of a new key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverQuota {
    /// Delay after which the request may be sent again.
    pub retry_after: Duration,
    /// Name of the limit, for the log.
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
