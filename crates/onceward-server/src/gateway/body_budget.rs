//! A common memory limit for the bodies of protected requests, which are read whole.

use std::sync::Arc;

use http_body::Body;
use onceward_http::ProblemDetails;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::GatewayCode;

/// The memory for bodies, counted in KiB.
#[derive(Clone)]
pub(crate) struct BodyBudget(Arc<Semaphore>);

/// A reserved part of the budget, returned on drop.
pub(crate) struct ReservedBody {
    _part: OwnedSemaphorePermit,
}

impl BodyBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        let kibibytes = usize::try_from(bytes / 1024).unwrap_or(usize::MAX);
        Self(Arc::new(Semaphore::new(kibibytes.min(Semaphore::MAX_PERMITS))))
    }

    /// Reserves memory for a body: its declared length, or `bytes_max` if it declares none. A body
    /// over `bytes_max` is refused unread and needs none.
    pub(super) fn reserve(
        &self,
        body: &impl Body,
        bytes_max: u64,
    ) -> Result<ReservedBody, ProblemDetails<'static>> {
        let bytes = body.size_hint().upper().unwrap_or(bytes_max);
        let bytes = if bytes > bytes_max { 0 } else { bytes };
        let kibibytes = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let part = Arc::clone(&self.0).try_acquire_many_owned(kibibytes);
        part.map(|part| ReservedBody { _part: part }).map_err(|_| GatewayCode::Busy.details())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::Full;

    #[test]
    fn room_is_taken_by_length_and_given_back() {
        let budget = BodyBudget::new(10 * 1024);
        let body = |bytes: usize| Full::new(Bytes::from(vec![0; bytes]));
        let first = budget.reserve(&body(6000), 8192).ok();
        assert!(first.is_some() && budget.reserve(&body(6000), 8192).is_err());
        assert!(budget.reserve(&body(9000), 8192).is_ok(), "too long, so it is not read");
        drop(first);
        assert!(budget.reserve(&body(6000), 8192).is_ok());
    }
}
