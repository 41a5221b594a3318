//! One digest of a request's credentials.
//!
//! Two requests have the same credentials if every header that may carry credentials has the same
//! values. The digest proves nothing: the service behind still verifies the credentials. It keeps a
//! response from being shown to another caller, and a request from running again under a new token.

use std::sync::Arc;

use http::HeaderValue;
use http::request::Parts;
use sha2::{Digest, Sha256};

/// Headers that services usually read credentials from.
pub const CREDENTIAL_HEADERS: &[&str] = &[
    "api-key",
    "apikey",
    "authorization",
    "cookie",
    "ocp-apim-subscription-key",
    "x-access-token",
    "x-api-key",
    "x-auth-token",
    "x-goog-api-key",
];

/// Subject of the client's verified certificate: a request extension, set by the server that
/// terminates TLS. It is one of the request's credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate(pub Arc<str>);

/// Returns the digest of all credentials of a request; `None` if it has none.
pub(crate) fn digest(request: &Parts) -> Option<String> {
    let mut found = Vec::new();
    for name in CREDENTIAL_HEADERS {
        let values = request.headers.get_all(*name).iter();
        match *name {
            "cookie" => found.extend(cookies(values).map(|cookie| (*name, cookie))),
            name => found.extend(values.map(|value| (name, normal(name, value)))),
        }
    }
    if let Some(ClientCertificate(subject)) = request.extensions.get() {
        found.push(("certificate", subject.as_bytes().to_vec()));
    }
    (!found.is_empty()).then(|| digest_of(found))
}

/// Returns the digest of secret values, each with the name of its source.
pub(crate) fn digest_of(values: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> String {
    let mut hash = Sha256::new_with_prefix(b"onceward credentials v2");
    for (name, value) in values {
        for part in [name.as_bytes(), &value] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the cookies of a request, sorted: HTTP/2 splits them, and their order does not count.
fn cookies<'a>(lines: impl Iterator<Item = &'a HeaderValue>) -> impl Iterator<Item = Vec<u8>> {
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    let mut cookies: Vec<_> = pairs.map(|pair| pair.trim_ascii().to_vec()).collect();
    cookies.sort_unstable();
    cookies.into_iter()
}

/// Normalises a value: the scheme of `Authorization` is case-insensitive, and blanks around its
/// parts do not count.
fn normal(name: &str, value: &HeaderValue) -> Vec<u8> {
    let value = value.as_bytes().trim_ascii();
    let scheme = value.iter().position(|byte| *byte == b' ');
    match scheme {
        Some(end) if name == "authorization" => {
            let mut normal = value[..end].to_ascii_lowercase();
            normal.push(b' ');
            normal.extend_from_slice(value[end..].trim_ascii());
            normal
        }
        _ => value.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn of(headers: &[(&str, &str)]) -> Option<String> {
        let request = headers
            .iter()
            .fold(Request::builder(), |builder, (name, value)| builder.header(*name, *value));
        digest(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn the_scheme_is_case_insensitive_and_the_token_is_not() {
        let first = of(&[("authorization", "Bearer T")]);
        assert_eq!(first, of(&[("authorization", "bearer  T")]));
        assert_ne!(first, of(&[("authorization", "Bearer t")]));
        assert!(!first.unwrap().contains('T'));
    }

    #[test]
    fn only_credentials_change_the_digest() {
        assert_eq!(of(&[("accept", "text/html"), ("x-request-id", "7")]), None);
        let digests: Vec<_> = CREDENTIAL_HEADERS.iter().map(|name| of(&[(name, "v")])).collect();
        for (position, digest) in digests.iter().enumerate() {
            assert!(digest.is_some() && !digests[..position].contains(digest), "{position}");
        }
        let (head, ()) = Request::new(()).into_parts();
        let mut with_certificate = head.clone();
        with_certificate.extensions.insert(ClientCertificate("CN=shop".into()));
        assert!(digest(&head).is_none() && digest(&with_certificate).is_some());
    }

    #[test]
    fn the_headers_are_sorted() {
        assert!(CREDENTIAL_HEADERS.is_sorted());
    }
}
