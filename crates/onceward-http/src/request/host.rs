//! The host name that a request was sent to.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::HOST;
use http::{HeaderMap, Uri};

/// Returns the host name of a request in lower case, without port and final dot. Empty if there is
/// none, or if it is an address or `localhost`: these name a machine instead of a service, and a
/// retry may reach another machine.
pub(crate) fn host_name<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Cow<'a, str> {
    let header = || headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = uri.host().unwrap_or_else(|| without_port(header().trim()));
    let name = name.strip_suffix('.').unwrap_or(name);
    let address = name.parse::<IpAddr>().is_ok() || name.starts_with('[');
    if address || name.eq_ignore_ascii_case("localhost") {
        return Cow::Borrowed("");
    }
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Cow::Owned(name.to_ascii_lowercase());
    }
    Cow::Borrowed(name)
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(uri: &str, host: &str) -> String {
        let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
        host_name(&uri.parse().unwrap(), &headers).into_owned()
    }

    #[test]
    fn case_port_and_final_dot_of_a_host_name_do_not_count() {
        for host in ["acme.example", "ACME.example", "acme.example:8443", "acme.example."] {
            assert_eq!(of("/orders", host), "acme.example", "{host}");
        }
        assert_eq!(of("https://acme.example:8443/orders", "other.example"), "acme.example");
        assert_eq!(of("/orders", "xn--bcher-kva.example"), "xn--bcher-kva.example");
    }

    #[test]
    fn an_address_is_not_a_host_name() {
        for host in ["127.0.0.1:8080", "10.1.2.3", "[::1]:8080", "[::1]", "localhost:8080", ""] {
            assert_eq!(of("/orders", host), "", "{host}");
        }
    }
}
