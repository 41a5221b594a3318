//! `[scope]`: the owner of a key, and the optional parts of its scope.

use std::fmt;
use std::path::PathBuf;

use http::HeaderName;
use onceward_core::{InvalidScope, ScopePart};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::rule_check::RuleSection;
use super::values::{HeaderNameSetting, Peers};
use super::{Config, ConfigError, HomeSource, invalid};

/// The owner of a key. Two tenants, and two callers, can use the same key.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scope {
    /// The tenant whose data a request is about.
    pub tenant: Option<ScopeSource>,
    /// The caller who sends a request.
    pub caller: Option<ScopeSource>,
    /// The version of the API. Another version is another key.
    pub api_version: Option<DimensionSource>,
    /// The resource that contains the effect, such as a cart. Another parent is another key.
    pub parent: Option<DimensionSource>,
    /// The region, where each region decides on its own. Another region is another key.
    pub region: Option<DimensionSource>,
    /// All clients are one caller and share their keys.
    pub single_tenant: bool,
    /// Networks of the proxies in front of the gateway, which may name tenants and callers in
    /// headers and set `X-Forwarded-*`.
    pub trusted_peers: Peers,
    /// Verification of tokens.
    pub jwt: Option<Jwt>,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            tenant: None,
            caller: Some(ScopeSource::Credentials),
            api_version: None,
            parent: None,
            region: None,
            single_tenant: false,
            trusted_peers: Peers::default(),
            jwt: None,
        }
    }
}

/// The source of a tenant or a caller.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeSource {
    /// Callers are not told apart, and a key is bound to the credentials of its first request.
    Credentials,
    /// Each set of credentials is a caller with its own keys.
    EachCredential,
    /// Digest of a header that holds a secret, such as an API key.
    HeaderDigest(HeaderNameSetting),
    /// Digest of a cookie.
    CookieDigest(String),
    /// Host name that the request was sent to.
    Host,
    /// A header that a trusted peer sets.
    Header(HeaderNameSetting),
    /// A claim of a verified token.
    Claim(String),
    /// Subject of the client's certificate.
    CertificateSubject,
    /// A constant.
    Fixed(String),
}

/// The source of an API version, a parent resource or a region: `"host"`, or a table such as
/// `{ header = "Api-Version", default = "2026-11" }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DimensionSource {
    /// Host name that the request was sent to.
    Host,
    /// A header, with the value of requests that do not have it.
    Header {
        /// Its name.
        name: HeaderNameSetting,
        /// The value of a request without it; `None` refuses the request.
        default: Option<String>,
    },
    /// A claim of a verified token.
    Claim(String),
    /// A parameter of the operation's route; only for the parent resource.
    Path(String),
    /// A constant.
    Fixed(String),
}

/// The table of a [`DimensionSource`].
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DimensionTable {
    header: Option<HeaderNameSetting>,
    default: Option<String>,
    claim: Option<String>,
    path: Option<String>,
    fixed: Option<String>,
}

impl DimensionTable {
    fn source(self) -> Result<DimensionSource, String> {
        let Self { header, default, claim, path, fixed } = self;
        if default.is_some() && header.is_none() {
            return Err("default is the value of requests without a header; add `header`".into());
        }
        let header = header.map(|name| DimensionSource::Header { name, default });
        let sources = [
            header,
            claim.map(DimensionSource::Claim),
            path.map(DimensionSource::Path),
            fixed.map(DimensionSource::Fixed),
        ];
        let mut sources = sources.into_iter().flatten();
        match (sources.next(), sources.next()) {
            (Some(source), None) => Ok(source),
            _ => Err("set one of header, claim, path and fixed".into()),
        }
    }
}

impl<'de> Deserialize<'de> for DimensionSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HostOrTable;
        impl<'de> Visitor<'de> for HostOrTable {
            type Value = DimensionSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"host\", or a table such as { header = \"Api-Version\" }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<DimensionSource, E> {
                match text {
                    "host" => Ok(DimensionSource::Host),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DimensionSource, A::Error> {
                let table = DimensionTable::deserialize(MapAccessDeserializer::new(map))?;
                table.source().map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_any(HostOrTable)
    }
}

/// Verification of tokens, by a key set or by a shared secret.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jwt {
    /// File with a JSON Web Key Set.
    pub jwks_file: Option<PathBuf>,
    /// Environment variable with a shared secret (HS256).
    pub secret_env: Option<String>,
    /// Required issuer.
    pub issuer: Option<String>,
    /// Required audience.
    pub audience: Option<String>,
}

impl Scope {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let sources = [("tenant", &self.tenant), ("caller", &self.caller)];
        let claims = sources.map(|(name, it)| (name, matches!(it, Some(ScopeSource::Claim(_)))));
        let of_claim = |it: &_| matches!(it, Some(DimensionSource::Claim(_)));
        let further = self.dimensions().map(|(part, source)| (setting(part), of_claim(source)));
        if let Some((name, _)) = claims.iter().chain(&further).find(|(_, claim)| *claim)
            && self.jwt.is_none()
        {
            return invalid(format!(
                "scope.{name}: a claim needs [scope.jwt], which verifies tokens"
            ));
        }
        if let Some(jwt) = &self.jwt
            && jwt.jwks_file.is_some() == jwt.secret_env.is_some()
        {
            return invalid("scope.jwt: set either jwks_file or secret_env");
        }
        if sources.iter().all(|(_, source)| source.is_none()) && !self.single_tenant {
            return invalid(
                "scope: neither tenant nor caller is set; if all clients are one caller, set \
                 scope.single_tenant = true",
            );
        }
        if self.tenant == Some(ScopeSource::Credentials) {
            return invalid(
                "scope.tenant: \"credentials\" binds keys of a caller and names no tenant; use \
                 { claim = … }, { header = … } or \"host\"",
            );
        }
        Ok(())
    }

    /// The optional parts of the scope and their sources.
    pub(crate) fn dimensions(&self) -> [(ScopePart, &Option<DimensionSource>); 3] {
        [
            (ScopePart::ApiVersion, &self.api_version),
            (ScopePart::Parent, &self.parent),
            (ScopePart::Region, &self.region),
        ]
    }
}

/// The setting of an optional part of the scope.
fn setting(part: ScopePart) -> &'static str {
    match part {
        ScopePart::ApiVersion => "api_version",
        ScopePart::Parent => "parent",
        _ => "region",
    }
}

impl Config {
    /// The headers that only trusted peers may set: those that name an owner or a region. A client's
    /// API version and parent resource are its own choice, because they only choose among the keys
    /// of the same owner. A region is a statement of the infrastructure: if clients could change it
    /// between attempts, both regions would execute the request.
    pub(crate) fn trusted_headers(&self) -> impl Iterator<Item = &HeaderName> {
        let owners = [&self.scope.tenant, &self.scope.caller].into_iter();
        let owners = owners.filter_map(|source| match source {
            Some(ScopeSource::Header(name)) => Some(&name.0),
            _ => None,
        });
        let region = match &self.scope.region {
            Some(DimensionSource::Header { name, .. }) => Some(&name.0),
            _ => None,
        };
        let home = self.region.as_ref().and_then(|region| match &region.of_key {
            HomeSource::Header(name) => Some(&name.0),
            HomeSource::PrefixBefore(_) => None,
        });
        owners.chain(region).chain(home)
    }

    /// Refuses sources of the optional parts of the scope that contradict other settings.
    pub(super) fn check_dimensions(&self) -> Result<(), ConfigError> {
        for (part, source) in self.scope.dimensions() {
            let name = setting(part);
            match source {
                Some(DimensionSource::Path(parameter)) => self.check_path(part, parameter)?,
                Some(DimensionSource::Fixed(text))
                | Some(DimensionSource::Header { default: Some(text), .. }) => {
                    let checked = check_text(part, text);
                    checked.or_else(|why| invalid(format!("scope.{name}: {why}")))?;
                }
                Some(DimensionSource::Header { .. } | DimensionSource::Claim(_))
                | Some(DimensionSource::Host)
                | None => {}
            }
        }
        self.check_version_header()
    }

    fn check_path(&self, part: ScopePart, parameter: &str) -> Result<(), ConfigError> {
        let name = setting(part);
        if part != ScopePart::Parent {
            return invalid(format!(
                "scope.{name}: a path parameter can only be scope.parent; the path is a part of \
                 every fingerprint already"
            ));
        }
        let mut operations = self.operations.iter();
        let found = operations
            .any(|it| onceward_http::Operation::post(&*it.route).has_path_parameter(parameter));
        if !found {
            return invalid(format!(
                "scope.{name}: no route of [[operations]] has the parameter {{{parameter}}}, as in \
                 route = \"/carts/{{{parameter}}}/orders\""
            ));
        }
        Ok(())
    }

    /// Refuses one header as the API version of both the scope and a fingerprint.
    fn check_version_header(&self) -> Result<(), ConfigError> {
        let Some(DimensionSource::Header { name, .. }) = &self.scope.api_version else {
            return Ok(());
        };
        let compared = |rules: Option<&HeaderNameSetting>| rules == Some(name);
        let operation = self.operations.iter().enumerate().find_map(|(number, operation)| {
            let section = RuleSection::Operation(number, operation);
            let compared = compared(operation.fingerprint_api_version.as_ref());
            compared.then(|| section.setting("fingerprint_api_version"))
        });
        let default = compared(self.defaults.fingerprint_api_version.as_ref());
        let default = default.then(|| "defaults.fingerprint_api_version".to_owned());
        let Some(setting) = default.or(operation) else { return Ok(()) };
        let header = &name.0;
        invalid(format!(
            "scope.api_version: {header} is {setting} too. In the scope another version is another \
             key and runs, so the fingerprint never compares it. Remove scope.api_version: the \
             fingerprint refuses a retry under another version instead of running it"
        ))
    }
}

/// Checks a constant as a part of a scope.
fn check_text(part: ScopePart, text: &str) -> Result<(), InvalidScope> {
    let scope = onceward_core::Scope::new("-", "-", "-")?;
    let scope = match part {
        ScopePart::ApiVersion => scope.with_api_version(text),
        ScopePart::Parent => scope.with_parent(text),
        _ => scope.with_region(text),
    };
    scope.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("onceward.toml"))
    }

    fn error(scope: &str) -> String {
        parse(&format!("[scope]\n{scope}")).unwrap_err().to_string()
    }

    #[test]
    fn each_source_is_read() {
        let text = "api_version = { header = \"Api-Version\", default = \"2026-11\" }\n\
             parent = { path = \"cart\" }\nregion = \"host\"\n\
             [[operations]]\nroute = \"/carts/{cart}/orders\"";
        let config = parse(&format!("[scope]\n{text}")).unwrap();
        assert_eq!(config.trusted_headers().count(), 0);
        let scope = config.scope;
        let name = HeaderNameSetting("api-version".parse().unwrap());
        let default = Some("2026-11".to_owned());
        assert_eq!(scope.api_version, Some(DimensionSource::Header { name, default }));
        assert_eq!(scope.parent, Some(DimensionSource::Path("cart".into())));
        assert_eq!(scope.region, Some(DimensionSource::Host));
    }

    #[test]
    fn owners_and_regions_in_headers_need_a_trusted_peer() {
        let text = "[scope]\ntenant = { header = \"x-tenant\" }\nparent = { header = \"account\" }\n\
             region = { header = \"x-region\" }\ntrusted_peers = [\"10.0.0.0/8\"]\n\
             [region]\nname = \"eu\"\nof_key = { header = \"x-home\" }";
        let config = parse(text).unwrap();
        let trusted: Vec<_> = config.trusted_headers().map(HeaderName::as_str).collect();
        assert_eq!(trusted, ["x-tenant", "x-region", "x-home"]);
    }

    #[test]
    fn a_wrong_source_is_told_with_its_line_and_what_fits() {
        for (text, reason) in [
            ("api_version = \"hosts\"", "\"host\", or a table such as"),
            ("api_version = 2", "\"host\", or a table such as"),
            ("api_version = {}", "set one of header, claim, path and fixed"),
            ("parent = { path = \"a\", fixed = \"b\" }", "set one of header"),
            ("parent = { path = \"a\", default = \"b\" }", "add `header`"),
            ("region = { header_digest = \"x\" }", "unknown field `header_digest`"),
            ("region = { header = \"x y\" }", "x y"),
        ] {
            let error = error(text);
            assert!(error.contains("line 2") && error.contains(reason), "{text} gave {error}");
        }
    }

    #[test]
    fn a_source_that_contradicts_other_settings_is_refused_with_its_name() {
        for (text, expected) in [
            (
                "parent = { path = \"cart\" }",
                "scope.parent: no route of [[operations]] has the parameter {cart}",
            ),
            (
                "api_version = { path = \"v\" }",
                "scope.api_version: a path parameter can only be scope.parent",
            ),
            (
                "region = { path = \"r\" }",
                "scope.region: a path parameter can only be scope.parent",
            ),
            ("region = { fixed = \"onceward:shadow\" }", "scope.region: regions that begin with"),
            ("region = { fixed = \"\" }", "scope.region: the scope's region is empty"),
            (
                "parent = { header = \"a\", default = \"\" }",
                "scope.parent: the scope's parent resource is empty",
            ),
            ("parent = { claim = \"account\" }", "scope.parent: a claim needs [scope.jwt]"),
        ] {
            let error = error(text);
            assert!(error.starts_with(expected), "{text} gave {error}");
        }
    }

    #[test]
    fn one_header_cannot_be_the_version_of_the_scope_and_of_the_fingerprint() {
        let scope = "api_version = { header = \"Api-Version\" }\n";
        let told = error(&format!("{scope}[defaults]\nfingerprint_api_version = \"api-version\""));
        assert!(
            told.starts_with("scope.api_version: api-version is defaults.fingerprint_api_version"),
            "{told}"
        );
        let operation = "[[operations]]\nroute = \"/a\"\nfingerprint_api_version = \"Api-Version\"";
        let told = error(&format!("{scope}{operation}"));
        assert!(told.contains("operations[0].fingerprint_api_version (/a)"), "{told}");
        let other = format!("[scope]\n{scope}[defaults]\nfingerprint_api_version = \"x-schema\"");
        assert!(parse(&other).is_ok());
    }
}
