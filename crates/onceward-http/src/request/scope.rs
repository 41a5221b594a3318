//! The scope of a request's key, from the sources of its parts.

use std::borrow::Cow;

use http::request::Parts;
use onceward_core::{InvalidScope, Scope, ScopePart};

use super::source::{Denied, Source, UNNAMED};
use crate::problem::{Code, Problem};

/// The sources of the parts of a scope. The operation comes from the matched route.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScopeSources {
    pub(crate) tenant: Option<Source>,
    pub(crate) caller: Option<Source>,
    pub(crate) api_version: Option<Source>,
    pub(crate) parent: Option<ParentSource>,
    pub(crate) region: Option<Source>,
}

/// Source of a parent resource.
#[derive(Debug, Clone)]
pub(crate) enum ParentSource {
    /// A value of the request. Every request needs one.
    Value(Source),
    /// A parameter of the matched route, such as `cart` of `/carts/{cart}/orders`. Keys of routes
    /// without it have no parent.
    PathParameter(Box<str>),
}

impl ScopeSources {
    /// Returns the scope of a request's key. `path_parameter` returns parameters of its route as
    /// they were sent.
    pub(crate) fn resolve<'p>(
        &self,
        request: &Parts,
        operation: &str,
        path_parameter: impl FnOnce(&str) -> Option<&'p str>,
    ) -> Result<Scope, Problem> {
        let mut scope = self.owner(request, operation)?;
        if let Some(source) = &self.api_version {
            let version = find(source, request, Code::InvalidApiVersion)?;
            scope = scope.with_api_version(&version).map_err(|error| invalid(&error))?;
        }
        let parent = match &self.parent {
            Some(ParentSource::Value(source)) => Some(find(source, request, Code::InvalidParent)?),
            Some(ParentSource::PathParameter(name)) => {
                path_parameter(name).map(|sent| decoded(name, sent)).transpose()?
            }
            None => None,
        };
        if let Some(parent) = parent {
            scope = scope.with_parent(&parent).map_err(|error| invalid(&error))?;
        }
        if let Some(source) = &self.region {
            let region = find(source, request, Code::InvalidRegion)?;
            scope = scope.with_region(&region).map_err(|error| invalid(&error))?;
        }
        Ok(scope)
    }

    /// Returns the scope of an operation with the owner of a request only: its tenant and caller.
    pub(crate) fn owner(&self, request: &Parts, operation: &str) -> Result<Scope, Problem> {
        let tenant = find_or_unnamed(self.tenant.as_ref(), request, Code::InvalidTenant)?;
        let caller = find_or_unnamed(self.caller.as_ref(), request, Code::InvalidCaller)?;
        let scope = match self.bind_credentials() {
            true => Scope::bound(&tenant, &caller, operation),
            false => Scope::new(&tenant, &caller, operation),
        };
        scope.map_err(|error| invalid(&error))
    }

    /// Returns true if a key is bound to the credentials of its first request.
    pub(crate) fn bind_credentials(&self) -> bool {
        self.caller.as_ref().is_some_and(Source::binds_credentials)
    }

    /// The part that credentials were given as, other than the caller.
    pub(crate) fn credentials_elsewhere(&self) -> Option<ScopePart> {
        let parent = match &self.parent {
            Some(ParentSource::Value(source)) => Some(source),
            Some(ParentSource::PathParameter(_)) | None => None,
        };
        let sources = [
            (ScopePart::Tenant, self.tenant.as_ref()),
            (ScopePart::ApiVersion, self.api_version.as_ref()),
            (ScopePart::Parent, parent),
            (ScopePart::Region, self.region.as_ref()),
        ];
        let binds = |source: &Source| source.binds_credentials();
        sources.into_iter().find(|(_, source)| source.is_some_and(binds)).map(|(part, _)| part)
    }
}

fn find<'a>(source: &'a Source, request: &'a Parts, code: Code) -> Result<Cow<'a, str>, Problem> {
    source.find(request).map_err(|denied| refused(denied, code))
}

fn find_or_unnamed<'a>(
    source: Option<&'a Source>,
    request: &'a Parts,
    code: Code,
) -> Result<Cow<'a, str>, Problem> {
    source.map_or(Ok(UNNAMED), |source| find(source, request, code))
}

/// Decodes the percent escapes of a path parameter: `a%62` and `ab` are one resource.
fn decoded<'p>(name: &str, sent: &'p str) -> Result<Cow<'p, str>, Problem> {
    if !sent.contains('%') {
        return Ok(Cow::Borrowed(sent));
    }
    let text = percent_decoded(sent.as_bytes()).and_then(|bytes| String::from_utf8(bytes).ok());
    let why = || format!("the path parameter {name} has percent escapes that are not UTF-8");
    text.map(Cow::Owned).ok_or_else(|| Problem::new(Code::InvalidParent).detail(why()))
}

fn percent_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => digit(bytes.next()?)? << 4 | digit(bytes.next()?)?,
            byte => *byte,
        });
    }
    Some(decoded)
}

fn refused(denied: Denied, code: Code) -> Problem {
    match denied {
        Denied::Missing(why) | Denied::Invalid(why) => Problem::new(code).detail(why),
        Denied::Unauthenticated(why) => Problem::new(Code::InvalidCredentials).detail(why),
    }
}

fn invalid(error: &InvalidScope) -> Problem {
    Problem::new(Code::of_scope_part(error.part())).detail(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, Request};

    fn head(headers: &[(&str, &str)]) -> Parts {
        let request = headers
            .iter()
            .fold(Request::builder(), |builder, (name, value)| builder.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    fn header(name: &'static str) -> Source {
        Source::header(HeaderName::from_static(name))
    }

    #[test]
    fn bound_credentials_are_the_caller_even_if_there_are_none() {
        let owners = ScopeSources { caller: Some(Source::credentials()), ..Default::default() };
        let scope = |headers: &[(&str, &str)]| owners.owner(&head(headers), "op").unwrap();
        assert_eq!(scope(&[]).caller(), "credentials:none");
        assert!(scope(&[("cookie", "a=1")]).is_bound());
        assert_ne!(scope(&[("cookie", "a=1")]), scope(&[("cookie", "a=2")]));
    }

    #[test]
    fn each_part_comes_from_its_source_and_a_missing_one_is_refused_with_its_own_code() {
        let sources = ScopeSources {
            api_version: Some(header("api-version")),
            parent: Some(ParentSource::Value(header("account"))),
            region: Some(header("region").or("eu")),
            ..Default::default()
        };
        let resolve = |headers: &[(&str, &str)]| sources.resolve(&head(headers), "op", |_| None);
        let scope = resolve(&[("api-version", "2"), ("account", "a-7")]).unwrap();
        let parts = (scope.api_version(), scope.parent(), scope.region());
        assert_eq!(parts, (Some("2"), Some("a-7"), Some("eu")));
        for (headers, code) in [
            (&[("account", "a-7")][..], Code::InvalidApiVersion),
            (&[("api-version", ""), ("account", "a-7")], Code::InvalidApiVersion),
            (&[("api-version", "2")], Code::InvalidParent),
            (
                &[("api-version", "2"), ("account", "a"), ("region", "onceward:shadow")],
                Code::InvalidRegion,
            ),
        ] {
            assert_eq!(resolve(headers).unwrap_err().code(), code, "{headers:?}");
        }
        assert_eq!(sources.owner(&head(&[]), "op").unwrap(), Scope::new("-", "-", "op").unwrap());
    }

    #[test]
    fn a_path_parameter_is_decoded_and_a_route_without_it_has_no_parent() {
        let parent = Some(ParentSource::PathParameter("cart".into()));
        let sources = ScopeSources { parent, ..Default::default() };
        let parent = |sent: Option<&'static str>| {
            let scope = sources.resolve(&head(&[]), "op", |name| {
                assert_eq!(name, "cart");
                sent
            });
            scope.map(|scope| scope.parent().map(str::to_owned)).map_err(|it| it.code())
        };
        assert_eq!(parent(None), Ok(None));
        assert_eq!(parent(Some("c-7")), Ok(Some("c-7".into())));
        assert_eq!(parent(Some("%63-7")), parent(Some("c-7")));
        assert_eq!(parent(Some("caf%C3%A9+1")), Ok(Some("café+1".into())));
        for wrong in ["%", "%4", "%zz", "%ff", "a%00b", "a%1fb"] {
            assert_eq!(parent(Some(wrong)), Err(Code::InvalidParent), "{wrong}");
        }
    }
}
