//! The owner of a key, in the clients' words.

use serde::Serialize;

use crate::config::{DimensionSource, Scope, ScopeSource};

/// The parts that identify the owner of a key, and what else it belongs to. Without an owner, all
/// clients are one.
#[derive(Debug, Serialize)]
pub(super) struct Owner {
    pub(super) tenant: Option<Identity>,
    pub(super) caller: Option<Identity>,
    pub(super) dimensions: Vec<(Dimension, DimensionIdentity)>,
}

/// Something that a key belongs to besides its owner: with another one it is another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Dimension {
    ApiVersion,
    Parent,
    Region,
}

/// The source of a [`Dimension`] that clients see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DimensionIdentity {
    /// A header of the client.
    Header(String),
    /// The host name of the request.
    Host,
    /// This claim of the token.
    TokenClaim(String),
    /// A parameter of the path.
    PathParameter(String),
    /// The region in which the request arrives, as the API knows it.
    Arrival,
}

/// Something that must be the same on every attempt, or the retry is not recognised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Identity {
    /// The credentials of the first request: a retry with others is refused.
    CredentialsOfFirstRequest,
    /// The credentials of each request: a retry with others is executed.
    Credentials,
    /// A secret in this header, such as an API key.
    Header(String),
    /// A cookie of this name.
    Cookie(String),
    /// The host name of the request.
    Host,
    /// The account, as the API identifies it.
    Account,
    /// This claim of the token.
    TokenClaim(String),
    /// The subject of the client's certificate.
    CertificateSubject,
}

impl Owner {
    pub(super) fn of(scope: &Scope) -> Self {
        // Who may set headers and how tokens are verified is internal.
        let Scope {
            tenant,
            caller,
            api_version,
            parent,
            region,
            single_tenant,
            trusted_peers: _,
            jwt: _,
        } = scope;
        let sources = [
            (Dimension::ApiVersion, api_version),
            (Dimension::Parent, parent),
            (Dimension::Region, region),
        ];
        let dimension = |(dimension, source): (Dimension, &Option<DimensionSource>)| {
            Some((dimension, DimensionIdentity::of(dimension, source.as_ref()?)?))
        };
        let dimensions = sources.into_iter().filter_map(dimension).collect();
        if *single_tenant {
            return Self { tenant: None, caller: None, dimensions };
        }
        let identity = |source: &Option<ScopeSource>| source.as_ref().and_then(Identity::of);
        Self { tenant: identity(tenant), caller: identity(caller), dimensions }
    }

    /// Returns whether keys belong to such a thing.
    pub(super) fn has(&self, dimension: Dimension) -> bool {
        self.dimensions.iter().any(|(it, _)| *it == dimension)
    }

    /// Returns whether a retry with other credentials is refused.
    pub(super) fn binds_credentials(&self) -> bool {
        self.caller == Some(Identity::CredentialsOfFirstRequest)
    }

    /// Returns whether a request can be refused because its credentials identify no owner.
    pub(super) fn needs_credentials(&self) -> bool {
        [&self.tenant, &self.caller].into_iter().flatten().any(Identity::needs_credentials)
    }
}

impl DimensionIdentity {
    /// `None` for a constant, which is the same for every request.
    fn of(dimension: Dimension, source: &DimensionSource) -> Option<Self> {
        Some(match source {
            // A proxy sets it; clients do not know its name.
            DimensionSource::Header { .. } if dimension == Dimension::Region => Self::Arrival,
            DimensionSource::Header { name, default: _ } => Self::Header(name.0.to_string()),
            DimensionSource::Host => Self::Host,
            DimensionSource::Claim(name) => Self::TokenClaim(name.clone()),
            DimensionSource::Path(name) => Self::PathParameter(name.clone()),
            DimensionSource::Fixed(_) => return None,
        })
    }
}

impl Identity {
    /// `None` for a constant, which identifies everyone as one.
    fn of(source: &ScopeSource) -> Option<Self> {
        Some(match source {
            ScopeSource::Credentials => Self::CredentialsOfFirstRequest,
            ScopeSource::EachCredential => Self::Credentials,
            ScopeSource::HeaderDigest(name) => Self::Header(name.0.to_string()),
            ScopeSource::CookieDigest(name) => Self::Cookie(name.clone()),
            ScopeSource::Host => Self::Host,
            // A proxy sets it; clients do not know its name.
            ScopeSource::Header(_) => Self::Account,
            ScopeSource::Claim(name) => Self::TokenClaim(name.clone()),
            ScopeSource::CertificateSubject => Self::CertificateSubject,
            ScopeSource::Fixed(_) => return None,
        })
    }

    /// Returns whether a request without it gets `INVALID_CREDENTIALS`.
    fn needs_credentials(&self) -> bool {
        match self {
            Self::Credentials
            | Self::Header(_)
            | Self::Cookie(_)
            | Self::TokenClaim(_)
            | Self::CertificateSubject => true,
            Self::CredentialsOfFirstRequest | Self::Host | Self::Account => false,
        }
    }

    /// Returns whether it can be malformed, which gets `INVALID_TENANT` or `INVALID_CALLER`.
    pub(super) fn can_be_invalid(&self) -> bool {
        match self {
            Self::Header(_)
            | Self::Cookie(_)
            | Self::Host
            | Self::Account
            | Self::TokenClaim(_)
            | Self::CertificateSubject => true,
            Self::CredentialsOfFirstRequest | Self::Credentials => false,
        }
    }
}
