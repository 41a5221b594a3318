//! Sources of the parts of a scope: headers, credentials, functions of the request.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::header::{COOKIE, HeaderName};
use http::request::Parts;

use super::credentials;
use super::host::host_name;

/// Source of a part of a scope: a tenant or a caller, an API version, a parent resource or a region.
///
/// Take a tenant and a caller from what was authenticated. A plain header is safe for them only if
/// a proxy in front of the service sets it and clients cannot.
#[derive(Clone)]
pub struct Source {
    origin: Origin,
    /// The value of a request that has none.
    default: Option<Cow<'static, str>>,
}

#[derive(Clone)]
enum Origin {
    Fixed(Cow<'static, str>),
    Header(HeaderName),
    Credentials,
    Function(Arc<Find>),
}

type Find = dyn Fn(&Parts) -> Result<Cow<'static, str>, Denied> + Send + Sync;

/// Why a request has no valid tenant, caller or other part of a scope. The text goes to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// The request has no value: 400, unless the source has a default ([`Source::or`]).
    Missing(Cow<'static, str>),
    /// The value is malformed: 400.
    Invalid(Cow<'static, str>),
    /// The credentials are missing or not valid: 401.
    Unauthenticated(Cow<'static, str>),
}

impl Denied {
    /// A value that the request does not have.
    pub fn missing(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Missing(what.into())
    }

    /// A malformed value, and why.
    pub fn invalid(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid(why.into())
    }

    /// Credentials that are missing or not valid, and why.
    pub fn unauthenticated(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Unauthenticated(why.into())
    }
}

impl Source {
    /// A constant.
    pub fn fixed(value: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Origin::Fixed(value.into()))
    }

    /// The value of a header, any text.
    pub fn header(name: HeaderName) -> Self {
        Self::of(Origin::Header(name))
    }

    /// The value of a header that must be a UUID. All spellings of a UUID are equal.
    pub fn uuid_header(name: HeaderName) -> Self {
        Self::from_fn(move |request| {
            let uuid = uuid::Uuid::try_parse(header_text(request, &name)?);
            let uuid = uuid.map_err(|_| Denied::invalid(format!("{name} is not a UUID")))?;
            Ok(uuid.to_string().into())
        })
    }

    /// Binds a key to the credentials of its first request, without telling callers apart: a retry
    /// must have the same [`CREDENTIAL_HEADERS`](crate::CREDENTIAL_HEADERS) and the same client
    /// certificate. With others it is refused with
    /// `IDEMPOTENCY_KEY_USED_WITH_OTHER_CREDENTIALS`: it neither runs a second time nor gets a
    /// response that may belong to another caller. All requests without credentials share their
    /// keys.
    ///
    /// Safe whatever the method of authentication is. If tokens change between attempts, name
    /// callers by something that stays the same, such as a claim ([`Jwt`](crate::Jwt)).
    pub fn credentials() -> Self {
        Self::of(Origin::Credentials)
    }

    /// Each set of credentials is a caller with its own keys: two callers can use the same key.
    /// **A retry under a new token runs again**, so this is only for credentials that never change
    /// between attempts.
    pub fn each_credential() -> Self {
        Self::from_fn(|request| {
            let digest = credentials::digest(request);
            digest.map(Cow::Owned).ok_or_else(|| missing("the request has no credentials"))
        })
    }

    /// Digest of a header that holds a secret, such as an API key. The client sets it, so the
    /// service behind must verify it.
    pub fn header_digest(name: HeaderName) -> Self {
        Self::from_fn(move |request| {
            let found = request.headers.contains_key(&name);
            found.then_some(()).ok_or_else(|| missing(format!("the header {name} is missing")))?;
            let value = header_text(request, &name)?;
            Ok(credentials::digest_of([("header", value.trim().into())]).into())
        })
    }

    /// Digest of a cookie, such as a session's. The service behind must verify it.
    pub fn cookie_digest(name: impl Into<String>) -> Self {
        let name = name.into();
        Self::from_fn(move |request| {
            let value = cookie(&request.headers, &name)?;
            Ok(credentials::digest_of([("cookie", value.into())]).into())
        })
    }

    /// Host name that the request was sent to, in lower case and without its port, for services
    /// with a host name per tenant. An address or `localhost` is the tenant `-`.
    pub fn host() -> Self {
        Self::from_fn(|request| match host_name(&request.uri, &request.headers) {
            host if host.is_empty() => Ok(UNNAMED),
            host => Ok(host.into_owned().into()),
        })
    }

    /// Result of a function of the request, for example from an extension that an authentication
    /// layer has set.
    ///
    /// ```
    /// use onceward_http::{Denied, Source};
    ///
    /// #[derive(Clone)]
    /// struct User { id: String }
    ///
    /// let caller = Source::from_fn(|request| {
    ///     let user = request.extensions.get::<User>();
    ///     let user = user.ok_or_else(|| Denied::unauthenticated("log in first"))?;
    ///     Ok(user.id.clone().into())
    /// });
    /// ```
    pub fn from_fn<F>(find: F) -> Self
    where
        F: Fn(&Parts) -> Result<Cow<'static, str>, Denied> + Send + Sync + 'static,
    {
        Self::of(Origin::Function(Arc::new(find)))
    }

    /// Sets the value of requests that have none: whose header is missing, or for which a function
    /// returns [`Denied::Missing`]. A malformed value is still refused.
    #[must_use]
    pub fn or(self, default: impl Into<Cow<'static, str>>) -> Self {
        Self { default: Some(default.into()), ..self }
    }

    const fn of(origin: Origin) -> Self {
        Self { origin, default: None }
    }

    pub(crate) fn binds_credentials(&self) -> bool {
        matches!(self.origin, Origin::Credentials)
    }

    /// The header that the value is read from, if it is one.
    pub(crate) fn header_name(&self) -> Option<&HeaderName> {
        match &self.origin {
            Origin::Header(name) => Some(name),
            Origin::Fixed(_) | Origin::Credentials | Origin::Function(_) => None,
        }
    }

    pub(super) fn find<'a>(&'a self, request: &'a Parts) -> Result<Cow<'a, str>, Denied> {
        let found = match &self.origin {
            Origin::Fixed(value) => Ok(Cow::Borrowed(&**value)),
            Origin::Header(name) => header_text(request, name).map(Cow::Borrowed),
            Origin::Credentials => Ok(credentials::digest(request).map_or(NONE, Cow::Owned)),
            Origin::Function(find) => find(request),
        };
        match (found, &self.default) {
            (Err(Denied::Missing(_)), Some(default)) => Ok(Cow::Borrowed(default)),
            (found, _) => found,
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source(…)")
    }
}

/// Part of a scope that has no source, or no name.
pub(super) const UNNAMED: Cow<'static, str> = Cow::Borrowed("-");

/// Caller of a request without credentials.
const NONE: Cow<'static, str> = Cow::Borrowed("none");

fn missing(what: impl Into<Cow<'static, str>>) -> Denied {
    Denied::unauthenticated(format!("{}; it identifies the caller", what.into()))
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a [u8], Denied> {
    let pairs =
        headers.get_all(COOKIE).iter().flat_map(|line| line.as_bytes().split(|it| *it == b';'));
    let mut values = pairs.filter_map(|pair| {
        let (found, value) = pair.trim_ascii().split_at_checked(name.len())?;
        (found == name.as_bytes()).then(|| value.strip_prefix(b"=")).flatten()
    });
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        (None, _) => Err(missing(format!("the cookie {name} is missing"))),
        (Some(_), Some(_)) => Err(Denied::invalid(format!("the cookie {name} occurs twice"))),
    }
}

fn header_text<'a>(request: &'a Parts, name: &HeaderName) -> Result<&'a str, Denied> {
    let mut values = request.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Err(Denied::missing(format!("the header {name} is missing"))),
        (Some(_), Some(_)) => Err(Denied::invalid(format!("{name} occurs more than once"))),
        (Some(value), None) => {
            value.to_str().map_err(|_| Denied::invalid(format!("{name} is not printable ASCII")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn found(source: &Source, headers: &[(&str, &str)]) -> Result<String, Denied> {
        let request = headers
            .iter()
            .fold(Request::builder(), |builder, (name, value)| builder.header(*name, *value));
        source.find(&request.body(()).unwrap().into_parts().0).map(Cow::into_owned)
    }

    #[test]
    fn a_uuid_header_refuses_other_texts_and_joins_spellings() {
        let source = Source::uuid_header(HeaderName::from_static("x-tenant-id"));
        let lower = found(&source, &[("x-tenant-id", "2b8de313-9c3c-4a15-a9b8-0cd1e34be3da")]);
        let upper = found(&source, &[("X-Tenant-ID", "2B8DE313-9C3C-4A15-A9B8-0CD1E34BE3DA")]);
        assert_eq!(lower, upper);
        assert!(lower.is_ok());
        let error = found(&source, &[("x-tenant-id", "canary")]).unwrap_err();
        assert_eq!(error, Denied::invalid("x-tenant-id is not a UUID"));
        assert_eq!(found(&source, &[]), Err(Denied::missing("the header x-tenant-id is missing")));
    }

    #[test]
    fn a_default_replaces_a_missing_value_and_no_malformed_one() {
        let source = Source::header(HeaderName::from_static("api-version")).or("2024-01");
        assert_eq!(found(&source, &[]).unwrap(), "2024-01");
        assert_eq!(found(&source, &[("api-version", "2026-11")]).unwrap(), "2026-11");
        assert_eq!(found(&source, &[("api-version", "")]).unwrap(), "", "refused by the scope");
        let twice = [("api-version", "1"), ("api-version", "2")];
        assert!(matches!(found(&source, &twice), Err(Denied::Invalid(_))));
        let asked = Source::from_fn(|_| Err(Denied::missing("nothing"))).or("x");
        assert_eq!(found(&asked, &[]).unwrap(), "x");
    }

    #[test]
    fn digests_hide_the_secret_and_a_missing_secret_is_refused() {
        let api_key = HeaderName::from_static("x-api-key");
        let sources = [
            (Source::each_credential(), "authorization", "Bearer canary", "Bearer other"),
            (Source::header_digest(api_key), "x-api-key", "canary", "other"),
            (Source::cookie_digest("sid"), "cookie", "a=1; sid=canary", "a=2; sid=other"),
        ];
        for (source, name, one, two) in sources {
            let (one, two) = (found(&source, &[(name, one)]), found(&source, &[(name, two)]));
            assert_eq!(one.as_ref().unwrap().len(), 32);
            assert!(one != two && !one.unwrap().contains("canary"), "{name}");
            assert!(matches!(found(&source, &[]), Err(Denied::Unauthenticated(_))), "{name}");
        }
        let sid = Source::cookie_digest("sid");
        assert_eq!(found(&sid, &[("cookie", "sid=1; b=2")]), found(&sid, &[("cookie", "sid=1")]));
        assert!(found(&sid, &[("cookie", "xsid=1; sidx=2")]).is_err());
        assert!(found(&sid, &[("cookie", "sid=1; sid=2")]).is_err());
    }

    #[test]
    fn a_host_name_is_a_tenant_and_an_address_is_not() {
        let host = |value| found(&Source::host(), &[("host", value)]).unwrap();
        assert_eq!(
            (host("Acme.example:8443"), host("beta.example")),
            ("acme.example".into(), "beta.example".into())
        );
        assert_eq!(host("127.0.0.1:80"), "-");
    }

    #[test]
    fn a_repeated_header_is_refused() {
        let source = Source::header(HeaderName::from_static("x-tenant-id"));
        assert!(found(&source, &[("x-tenant-id", "a"), ("x-tenant-id", "b")]).is_err());
    }
}
