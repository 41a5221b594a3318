//! The mark by which a gateway knows requests that it has seen.

use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use super::headers::append;
use super::problem::Problem;
use crate::telemetry::LogThrottle;

/// The gateways that a request has passed, like `Via`. A header of its own, because services
/// answer otherwise when there is a `Via`: nginx does not compress.
const PASSED: HeaderName = HeaderName::from_static("onceward-via");

/// One run of a gateway.
#[derive(Debug)]
pub(crate) struct LoopDetector {
    /// A name that no other gateway has.
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

    /// Refuses a request that has left this gateway before. `Err` is the refusal.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Problem<'static>> {
        let passed = headers.get_all(PASSED).iter().map(HeaderValue::as_bytes);
        let mut passed = passed.flat_map(|names| names.split(|byte| *byte == b','));
        if !passed.any(|name| name.trim_ascii() == self.name.as_bytes()) {
            return Ok(());
        }
        if let Some(times) = self.loops.occurred() {
            tracing::error!(
                times,
                "a request came back to this gateway: upstream.url or authorization.url leads to \
                 it, perhaps through another gateway or a load balancer"
            );
        }
        Err(LOOP)
    }
}

const LOOP: Problem<'static> = Problem {
    status: StatusCode::LOOP_DETECTED,
    code: "LOOP_DETECTED",
    title: "The request came back to the gateway",
    detail: "The gateway's upstream leads back to the gateway. This request was not sent on.",
    retryable: false,
    same_key: true,
    operation: None,
};

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
