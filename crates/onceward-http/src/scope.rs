//! Whose key it is: tenant and caller, from the authenticated request.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderName};
use http::request::Parts;
use onceward_core::{InvalidScope, Scope, ScopePart};
use sha2::{Digest, Sha256};

use crate::problem::{Code, Problem};

/// Where a tenant or a caller comes from.
///
/// Take it from what was authenticated. A plain header is right only where something in
/// front of the service sets it and a client cannot.
#[derive(Clone)]
pub struct Source(Origin);

#[derive(Clone)]
enum Origin {
    Fixed(Cow<'static, str>),
    Header(HeaderName),
    Function(Arc<Find>),
}

type Find = dyn Fn(&Parts) -> Result<Cow<'static, str>, Denied> + Send + Sync;

/// Why it cannot be told who a request belongs to. The text goes to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// It is missing or malformed: 400.
    Invalid(Cow<'static, str>),
    /// The credentials are missing or do not hold: 401.
    Unauthenticated(Cow<'static, str>),
}

impl Denied {
    /// Missing or malformed, because …
    pub fn invalid(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid(why.into())
    }

    /// Not authenticated, because …
    pub fn unauthenticated(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Unauthenticated(why.into())
    }
}

impl Source {
    /// Always the same.
    pub fn fixed(value: impl Into<Cow<'static, str>>) -> Self {
        Self(Origin::Fixed(value.into()))
    }

    /// The value of a header, any text.
    pub fn header(name: HeaderName) -> Self {
        Self(Origin::Header(name))
    }

    /// The value of a header that must be a UUID; every spelling of one UUID is the same.
    pub fn uuid_header(name: HeaderName) -> Self {
        Self::from_fn(move |request| {
            let uuid = uuid::Uuid::try_parse(header_text(request, &name)?);
            let uuid = uuid.map_err(|_| Denied::invalid(format!("{name} is not a UUID")))?;
            Ok(uuid.to_string().into())
        })
    }

    /// A digest of the `Authorization` header: who has the same credentials is the same
    /// caller. A new token is a new caller, so prefer a claim inside it.
    pub fn credentials() -> Self {
        Self::from_fn(|request| {
            let credentials = request.headers.get(AUTHORIZATION);
            let credentials =
                credentials.ok_or_else(|| Denied::unauthenticated("Authorization is missing"))?;
            let digest = Sha256::new_with_prefix(b"onceward credentials v1")
                .chain_update(credentials.as_bytes())
                .finalize();
            Ok(digest[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
        })
    }

    /// Whatever a function finds in the request, for example in the extensions that an
    /// authentication layer has set.
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
        Self(Origin::Function(Arc::new(find)))
    }

    fn find<'a>(&'a self, request: &'a Parts) -> Result<Cow<'a, str>, Denied> {
        match &self.0 {
            Origin::Fixed(value) => Ok(Cow::Borrowed(value)),
            Origin::Header(name) => header_text(request, name).map(Cow::Borrowed),
            Origin::Function(find) => find(request),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source(…)")
    }
}

/// Whose keys an operation's requests use.
#[derive(Debug, Clone)]
pub(crate) struct Owners {
    pub(crate) tenant: Option<Source>,
    pub(crate) caller: Option<Source>,
}

/// What stands for an owner where the layer was told that there is only one.
const ONLY: Cow<'static, str> = Cow::Borrowed("-");

impl Owners {
    /// The scope of a request's key.
    pub(crate) fn resolve(&self, request: &Parts, operation: &str) -> Result<Scope, Problem> {
        let tenant = find(self.tenant.as_ref(), request, Code::InvalidTenant)?;
        let caller = find(self.caller.as_ref(), request, Code::InvalidCaller)?;
        Scope::new(&tenant, &caller, operation).map_err(|error| invalid(&error))
    }
}

fn find<'a>(
    source: Option<&'a Source>,
    request: &'a Parts,
    code: Code,
) -> Result<Cow<'a, str>, Problem> {
    match source {
        Some(source) => source.find(request).map_err(|denied| refused(denied, code)),
        None => Ok(ONLY),
    }
}

fn refused(denied: Denied, code: Code) -> Problem {
    match denied {
        Denied::Invalid(why) => Problem::new(code).detail(why),
        Denied::Unauthenticated(why) => Problem::new(Code::InvalidCredentials).detail(why),
    }
}

fn invalid(error: &InvalidScope) -> Problem {
    let code = match error.part() {
        ScopePart::Tenant => Code::InvalidTenant,
        _ => Code::InvalidCaller,
    };
    Problem::new(code).detail(error.to_string())
}

fn header_text<'a>(request: &'a Parts, name: &HeaderName) -> Result<&'a str, Denied> {
    let mut values = request.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Err(Denied::invalid(format!("the header {name} is missing"))),
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
    fn a_uuid_header_refuses_what_is_none_and_joins_spellings() {
        let source = Source::uuid_header(HeaderName::from_static("x-tenant-id"));
        let lower = found(&source, &[("x-tenant-id", "2b8de313-9c3c-4a15-a9b8-0cd1e34be3da")]);
        let upper = found(&source, &[("X-Tenant-ID", "2B8DE313-9C3C-4A15-A9B8-0CD1E34BE3DA")]);
        assert_eq!(lower, upper);
        assert!(lower.is_ok());
        let told = found(&source, &[("x-tenant-id", "canary")]).unwrap_err();
        assert_eq!(told, Denied::invalid("x-tenant-id is not a UUID"));
        assert_eq!(found(&source, &[]), Err(Denied::invalid("the header x-tenant-id is missing")));
    }

    #[test]
    fn credentials_are_digested_and_their_absence_is_not_a_caller() {
        let one = found(&Source::credentials(), &[("authorization", "Bearer canary")]).unwrap();
        let two = found(&Source::credentials(), &[("authorization", "Bearer other")]).unwrap();
        assert!(one != two && !one.contains("canary") && one.len() == 32);
        assert!(matches!(found(&Source::credentials(), &[]), Err(Denied::Unauthenticated(_))));
    }

    #[test]
    fn two_lines_of_one_header_name_nobody() {
        let source = Source::header(HeaderName::from_static("x-tenant-id"));
        assert!(found(&source, &[("x-tenant-id", "a"), ("x-tenant-id", "b")]).is_err());
    }
}
