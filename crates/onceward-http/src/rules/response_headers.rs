//! The response headers that are stored and replayed: all except those that belong to one caller,
//! one connection or one moment.

use http::HeaderName;

/// Headers that no setting stores: cookies, authentication, framing, and headers of one connection
/// or one moment.
pub const NEVER_STORED_HEADERS: &[&str] = &[
    "age",
    "authentication-info",
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-connection",
    "set-cookie",
    "set-cookie2",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// Headers that are not stored unless [`ResponseHeaders::keep`] names them: ids of requests and
/// traces, timings, tokens, and headers that concern the first client's connection.
pub const DROPPED_HEADERS: &[&str] = &[
    "alt-svc",
    "api-key",
    "authorization",
    "cf-ray",
    "clear-site-data",
    "correlation-id",
    "request-id",
    "server-timing",
    "traceparent",
    "traceresponse",
    "tracestate",
    "via",
    "x-access-token",
    "x-amz-cf-id",
    "x-amz-request-id",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-api-key",
    "x-auth-token",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "x-b3-spanid",
    "x-b3-traceid",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-csrf-token",
    "x-envoy-upstream-service-time",
    "x-request-id",
    "x-runtime",
    "x-trace-id",
    "x-xsrf-token",
];

/// Exceptions to the response headers that are stored.
///
/// ```
/// use http::HeaderName;
/// use onceward_http::ResponseHeaders;
///
/// let rules = ResponseHeaders {
///     keep: vec![HeaderName::from_static("x-request-id")],
///     drop: vec![HeaderName::from_static("x-debug")],
/// };
/// assert!(rules.stores(&HeaderName::from_static("x-order-total")));
/// assert!(!ResponseHeaders::default().stores(&HeaderName::from_static("set-cookie")));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseHeaders {
    /// Headers that are stored although [`DROPPED_HEADERS`] names them.
    pub keep: Vec<HeaderName>,
    /// Headers that are not stored.
    pub drop: Vec<HeaderName>,
}

impl ResponseHeaders {
    /// Returns true if a header is stored and replayed.
    pub fn stores(&self, name: &HeaderName) -> bool {
        let dropped = is_listed(name, DROPPED_HEADERS) && !self.keep.contains(name);
        !dropped && !is_never_stored(name) && !self.drop.contains(name)
    }
}

pub(crate) fn is_never_stored(name: &HeaderName) -> bool {
    is_listed(name, NEVER_STORED_HEADERS)
}

fn is_listed(name: &HeaderName, sorted: &[&str]) -> bool {
    sorted.binary_search(&name.as_str()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted_and_apart() {
        assert!(NEVER_STORED_HEADERS.is_sorted() && DROPPED_HEADERS.is_sorted());
        assert!(DROPPED_HEADERS.iter().all(|name| !NEVER_STORED_HEADERS.contains(name)));
    }

    #[test]
    fn exceptions_go_both_ways_and_never_to_cookies() {
        let name = |text: &'static str| HeaderName::from_static(text);
        let plain = ResponseHeaders::default();
        for stored in ["location", "x-order-total", "ratelimit-remaining", "vary", "x-anything"] {
            assert!(plain.stores(&name(stored)), "{stored}");
        }
        for dropped in ["x-request-id", "traceparent", "set-cookie", "date", "connection"] {
            assert!(!plain.stores(&name(dropped)), "{dropped}");
        }
        let keep = vec![name("x-request-id"), name("set-cookie")];
        let chosen = ResponseHeaders { keep, drop: vec![name("vary")] };
        assert!(chosen.stores(&name("x-request-id")));
        assert!(!chosen.stores(&name("vary")) && !chosen.stores(&name("set-cookie")));
    }
}
