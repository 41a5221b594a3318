//! Ambiguous request targets.

use http::header::HOST;
use http::uri::Authority;
use http::{Method, Request, Version};
use onceward_http::ProblemDetails;

use super::problem::GatewayCode;

/// Refuses CONNECT, and requests without exactly one valid host: the gateway and the service could
/// read such a request differently.
pub(super) fn check<B>(request: &Request<B>) -> Result<(), ProblemDetails<'static>> {
    if request.method() == Method::CONNECT {
        return Err(GatewayCode::MethodNotAllowed.details());
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() == Version::HTTP_11 => {
            Err(invalid_target("The Host header is missing."))
        }
        (_, Some(_)) => Err(invalid_target("The Host header occurs more than once.")),
        (Some(host), None) if !is_host(host.as_bytes()) => {
            Err(invalid_target("The Host header is invalid."))
        }
        (_, None) => Ok(()),
    }
}

fn is_host(value: &[u8]) -> bool {
    Authority::try_from(value).is_ok_and(|authority| !authority.as_str().contains('@'))
}

/// Returns whether a path has a `..` segment, percent-encoded ones included.
pub(super) fn has_parent_segment(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    path.split(['/', '\\']).any(|part| part.to_lowercase().replace("%2e", ".") == "..")
}

/// The problem for an ambiguous or invalid target.
pub(super) fn invalid_target(detail: &str) -> ProblemDetails<'_> {
    ProblemDetails { detail, ..GatewayCode::InvalidTarget.details() }
}
