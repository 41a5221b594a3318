//! Detects requests that come back to the gateway.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use onceward_http::ProblemDetails;
use uuid::Uuid;

use super::headers::append;
use super::problem::GatewayCode;
use onceward_core::log::LogThrottle;

/// The gateways that a request has passed, like `Via`. It is a separate header because `Via` changes
/// the responses of services: nginx does not compress for a proxy.
const PASSED: HeaderName = HeaderName::from_static("onceward-via");

/// Marks and recognises the requests of one gateway process.
#[derive(Debug)]
pub(crate) struct LoopDetector {
    /// A name that no other gateway process has.
    name: HeaderValue,
    loops: LogThrottle,
}

impl LoopDetector {
    pub(crate) fn new() -> Self {
        let name = HeaderValue::try_from(Uuid::new_v4().simple().to_string());
        let name = name.unwrap_or(HeaderValue::from_static("onceward"));
        Self { name, loops: LogThrottle::default() }
    }

    /// Marks a request that leaves the gateway.
    pub(super) fn mark(&self, headers: &mut HeaderMap) {
        if headers.contains_key(PASSED) {
            append(headers, PASSED, self.name.to_str().unwrap_or_default());
        } else {
            headers.insert(PASSED, self.name.clone());
        }
    }

    /// Refuses a request that this gateway has sent before. `Err` is the response.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), ProblemDetails<'static>> {
        let passed = headers.get_all(PASSED).iter().map(HeaderValue::as_bytes);
        let mut passed = passed.flat_map(|names| names.split(|byte| *byte == b','));
        if !passed.any(|name| name.trim_ascii() == self.name.as_bytes()) {
            return Ok(());
        }
        if let Some(times) = self.loops.occurred() {
            tracing::error!(
                times,
                "a request came back to this gateway: upstream.url, authorization.url or an address \
                 of region.gateways leads to it, perhaps through another gateway or a load balancer"
            );
        }
        Err(GatewayCode::Loop.details())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_mark_is_a_loop() {
        let (one, other) = (LoopDetector::new(), LoopDetector::new());
        let mut headers = HeaderMap::new();
        assert!(one.check(&headers).is_ok());
        other.mark(&mut headers);
        assert!(one.check(&headers).is_ok() && other.check(&headers).is_err());
        one.mark(&mut headers);
        assert!(one.check(&headers).is_err() && other.check(&headers).is_err());
    }
}
