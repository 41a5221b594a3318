//! Requests that do not say clearly what they are for.

use http::header::HOST;
use http::uri::Authority;
use http::{Method, Request, StatusCode, Version};

use super::problem::Problem;

/// Refuses what asks for a tunnel to somewhere, and what has no single host: two readers of
/// such a request could take it for two different ones.
pub(super) fn check<B>(request: &Request<B>) -> Result<(), Problem<'static>> {
    if request.method() == Method::CONNECT {
        return Err(Problem {
            status: StatusCode::METHOD_NOT_ALLOWED,
            code: "METHOD_NOT_ALLOWED",
            title: "This is no proxy to elsewhere",
            ..invalid_target("CONNECT is not served.")
        });
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() == Version::HTTP_11 => {
            Err(invalid_target("The Host header is missing."))
        }
        (_, Some(_)) => Err(invalid_target("The Host header occurs more than once.")),
        (Some(host), None) if !is_host(host.as_bytes()) => {
            Err(invalid_target("The Host header is not a host."))
        }
        (_, None) => Ok(()),
    }
}

fn is_host(value: &[u8]) -> bool {
    Authority::try_from(value).is_ok_and(|authority| !authority.as_str().contains('@'))
}

/// Whether a path has a part that means the one above.
pub(super) fn has_parent_segment(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    path.split(['/', '\\']).any(|part| part.to_lowercase().replace("%2e", ".") == "..")
}

/// The refusal of what could be taken for two different requests.
pub(super) fn invalid_target(detail: &str) -> Problem<'_> {
    Problem {
        status: StatusCode::BAD_REQUEST,
        code: "INVALID_TARGET",
        title: "It is not clear what the request is for",
        detail,
        retryable: false,
        same_key: true,
        operation: None,
    }
}
