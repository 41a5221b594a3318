//! Headers that the proxy removes and adds.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName,
    HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use tokio::sync::OwnedSemaphorePermit;

use super::interim::InterimSender;

/// Headers of one connection, not of the message (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    TRANSFER_ENCODING,
    UPGRADE,
];

pub(super) const OPERATION: HeaderName = HeaderName::from_static("onceward-operation");
pub(super) const FENCE: HeaderName = HeaderName::from_static("onceward-fence");
/// The home region of a request that another gateway has forwarded.
pub(super) const REGION: HeaderName = HeaderName::from_static("onceward-region");

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The sender of a request.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) host: IpAddr,
    pub(crate) tls: bool,
    /// The host is in one of `scope.trusted_peers`.
    pub(crate) trusted: bool,
    /// The subject of the client certificate, which was verified.
    pub(crate) subject: Option<Arc<str>>,
    /// The connection's share of the connection limit.
    pub(crate) slot: Option<ConnectionSlot>,
    /// Receives interim responses to the request; only over HTTP/1.1.
    pub(crate) interim: Option<InterimSender>,
}

/// Returned to the limit when the connection and its tunnel have ended.
pub(crate) type ConnectionSlot = Arc<OwnedSemaphorePermit>;

/// Removes the headers of the connection that the message came on.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let trailers = takes_trailers(headers);
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in listed.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    headers.remove(TE);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

pub(super) fn takes_trailers(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(TE).iter().filter_map(|value| value.to_str().ok());
    let mut codings = codings.flat_map(|codings| codings.split(','));
    codings.any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

/// Announces trailers over HTTP/1.1: hyper sends only those that the head names, and only in
/// chunked bodies.
pub(super) fn announce_trailers(headers: &mut HeaderMap, trailers: &HeaderMap) {
    let names: Vec<&str> = trailers.keys().map(HeaderName::as_str).collect();
    if let Ok(names) = HeaderValue::try_from(names.join(", ")) {
        headers.insert(TRAILER, names);
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        headers.remove(CONTENT_LENGTH);
    }
}

/// Prepares the head of a request for the upstream.
pub(super) fn prepare(head: &mut Parts, peer: &Peer) {
    remove_hop_by_hop(&mut head.headers);
    // The gateway itself has sent 100 Continue when it started to read the body.
    head.headers.remove(EXPECT);
    head.headers.remove(OPERATION);
    head.headers.remove(FENCE);
    head.headers.remove(REGION);
    // The host in the target overrides the header (RFC 9112, 3.2.2).
    let host = head.uri.authority().and_then(|authority| authority.as_str().rsplit('@').next());
    if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
        head.headers.insert(HOST, host);
    }
    join_cookies(&mut head.headers);
    forward(head, peer);
}

/// Joins cookie headers: HTTP/2 may send several, HTTP/1.1 allows one (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let pieces: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if pieces.len() > 1
        && let Ok(cookie) = HeaderValue::from_bytes(&pieces.join(&b"; "[..]))
    {
        headers.insert(COOKIE, cookie);
    }
}

/// Removes the forwarding headers, which are only believed from trusted peers.
pub(super) fn remove_forwarding(headers: &mut HeaderMap) {
    for name in [FORWARDED, FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO] {
        headers.remove(name);
    }
}

/// Adds the forwarding headers for the client. Those of an untrusted peer are not passed on.
fn forward(head: &mut Parts, peer: &Peer) {
    let headers = &mut head.headers;
    if !peer.trusted {
        remove_forwarding(headers);
    }
    let proto = if peer.tls { "https" } else { "http" };
    let host = headers.get(HOST).cloned();
    append(headers, FORWARDED_FOR, &peer.host.to_string());
    if !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static(proto));
    }
    if let Some(host) = &host
        && !headers.contains_key(FORWARDED_HOST)
    {
        headers.insert(FORWARDED_HOST, host.clone());
    }
    let client = match peer.host {
        IpAddr::V4(host) => host.to_string(),
        IpAddr::V6(host) => format!("\"[{host}]\""),
    };
    let host = host.and_then(|host| host.to_str().map(quoted).ok()).unwrap_or_default();
    append(headers, FORWARDED, &format!("for={client};host={host};proto={proto}"));
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace(['"', '\\'], ""))
}

pub(super) fn append(headers: &mut HeaderMap, name: HeaderName, last: &str) {
    let before = headers.get_all(&name).iter().filter_map(|value| value.to_str().ok());
    let all: Vec<&str> = before.chain([last]).collect();
    if let Ok(value) = HeaderValue::try_from(all.join(", ")) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn peer(trusted: bool) -> Peer {
        Peer {
            host: [192, 0, 2, 7].into(),
            tls: true,
            trusted,
            subject: None,
            slot: None,
            interim: None,
        }
    }

    fn prepared(headers: &[(&str, &str)], peer: &Peer) -> HeaderMap {
        let request =
            headers.iter().fold(Request::builder().uri("/x"), |request, (name, value)| {
                request.header(*name, *value)
            });
        let mut head = request.body(()).unwrap().into_parts().0;
        prepare(&mut head, peer);
        head.headers
    }

    #[test]
    fn what_belongs_to_the_connection_stays_on_it() {
        let headers = prepared(
            &[
                ("connection", "close, X-Secret"),
                ("x-secret", "1"),
                ("keep-alive", "5"),
                ("te", "trailers"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "h2c"),
                ("expect", "100-continue"),
                ("onceward-fence", "7"),
                ("x-kept", "1"),
            ],
            &peer(false),
        );
        for gone in ["connection", "x-secret", "keep-alive", "transfer-encoding", "upgrade"] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
        assert!(!headers.contains_key("expect") && !headers.contains_key("onceward-fence"));
        assert_eq!(
            (&headers["te"], &headers["x-kept"]),
            (&"trailers".parse().unwrap(), &"1".parse().unwrap())
        );
    }

    #[test]
    fn only_trusted_peers_speak_for_others() {
        let sent = [("host", "shop.example"), ("x-forwarded-for", "203.0.113.9")];
        let headers = prepared(&sent, &peer(true));
        assert_eq!(headers["x-forwarded-for"], "203.0.113.9, 192.0.2.7");
        let headers = prepared(&sent, &peer(false));
        assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
        assert_eq!(headers["forwarded"], "for=192.0.2.7;host=\"shop.example\";proto=https");
        assert_eq!(
            (&headers["x-forwarded-host"], &headers["x-forwarded-proto"]),
            (&"shop.example".parse().unwrap(), &"https".parse().unwrap())
        );
    }
}
