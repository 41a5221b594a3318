//! Tenants and callers from verified JSON Web Tokens.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::request::Parts;
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};

use super::source::{Denied, Source};

/// Verifies the bearer token of a request: its signature, its times, and its issuer and audience
/// if they are set.
///
/// ```
/// use onceward_http::{Jwt, Source};
///
/// let jwt = Jwt::hs256(b"a shared secret of 32 bytes or more").issuer("https://login.example");
/// let (tenant, caller) = (jwt.claim("tenant"), jwt.claim("sub"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct Jwt(Arc<Verifier>);

#[derive(Clone)]
struct Verifier {
    keys: Vec<TrustedKey>,
    issuer: Option<String>,
    audience: Option<String>,
}

#[derive(Clone)]
struct TrustedKey {
    /// `None` matches every token.
    id: Option<String>,
    key: DecodingKey,
    algorithms: Vec<Algorithm>,
}

/// Why a text is not a usable key set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidJwks {
    /// The text is not a JSON Web Key Set.
    #[error("not a JSON Web Key Set: {0}")]
    Json(#[from] serde_json::Error),
    /// A key cannot be used.
    #[error("the key {id:?} cannot be used: {why}")]
    Key {
        /// The key's id.
        id: Option<String>,
        /// The cause.
        why: String,
    },
    /// The key set is empty.
    #[error("the key set has no key for signatures")]
    Empty,
}

impl Jwt {
    /// Tokens signed with a shared secret.
    pub fn hs256(secret: &[u8]) -> Self {
        let key = DecodingKey::from_secret(secret);
        let trusted = TrustedKey { id: None, key, algorithms: vec![Algorithm::HS256] };
        Self(Arc::new(Verifier { keys: vec![trusted], issuer: None, audience: None }))
    }

    /// Tokens signed with one of the public keys of a JSON Web Key Set.
    pub fn jwks(text: &str) -> Result<Self, InvalidJwks> {
        let set: JwkSet = serde_json::from_str(text)?;
        let keys = set.keys.iter().map(trusted).collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() {
            return Err(InvalidJwks::Empty);
        }
        Ok(Self(Arc::new(Verifier { keys, issuer: None, audience: None })))
    }

    /// Requires this issuer.
    pub fn issuer(self, issuer: impl Into<String>) -> Self {
        let verifier = Verifier { issuer: Some(issuer.into()), ..Arc::unwrap_or_clone(self.0) };
        Self(Arc::new(verifier))
    }

    /// Requires this audience.
    pub fn audience(self, audience: impl Into<String>) -> Self {
        let verifier = Verifier { audience: Some(audience.into()), ..Arc::unwrap_or_clone(self.0) };
        Self(Arc::new(verifier))
    }

    /// The value of a claim, a string or a number.
    pub fn claim(&self, name: impl Into<String>) -> Source {
        let (verifier, name) = (Arc::clone(&self.0), name.into());
        Source::from_fn(move |request| {
            let claims = verifier.verify(bearer(request)?)?;
            text(claims.get(&name))
                .ok_or_else(|| Denied::unauthenticated(format!("the token has no claim {name:?}")))
        })
    }
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Jwt({} keys)", self.0.keys.len())
    }
}

impl Verifier {
    fn verify(&self, token: &str) -> Result<Map<String, Value>, Denied> {
        // One text for all failures, so that guessing reveals nothing.
        let refused = || Denied::unauthenticated("the token is not valid");
        let header = decode_header(token).map_err(|_| refused())?;
        let fits = |key: &&TrustedKey| {
            key.algorithms.contains(&header.alg)
                && (key.id.is_none() || header.kid.is_none() || key.id == header.kid)
        };
        let mut keys = self.keys.iter().filter(fits);
        keys.find_map(|key| decode(token, &key.key, &self.validation(key)).ok())
            .map(|token| token.claims)
            .ok_or_else(refused)
    }

    fn validation(&self, key: &TrustedKey) -> Validation {
        let mut validation = Validation::new(key.algorithms[0]);
        validation.algorithms = key.algorithms.clone();
        validation.validate_nbf = true;
        validation.validate_aud = self.audience.is_some();
        if let Some(audience) = &self.audience {
            validation.set_audience(&[audience]);
            validation.required_spec_claims.insert("aud".into());
        }
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
            validation.required_spec_claims.insert("iss".into());
        }
        validation
    }
}

fn trusted(jwk: &jsonwebtoken::jwk::Jwk) -> Result<TrustedKey, InvalidJwks> {
    let id = jwk.common.key_id.clone();
    let refuse = |why: String| InvalidJwks::Key { id: id.clone(), why };
    let key = DecodingKey::from_jwk(jwk).map_err(|error| refuse(error.to_string()))?;
    // By the kind of key, never by the token: a public key must not be used as a secret.
    let algorithms = match key.family() {
        AlgorithmFamily::Hmac => {
            return Err(refuse("a shared secret must not be in a public key set".into()));
        }
        AlgorithmFamily::Rsa => {
            vec![Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::PS256]
        }
        AlgorithmFamily::Ec => vec![Algorithm::ES256, Algorithm::ES384],
        AlgorithmFamily::Ed => vec![Algorithm::EdDSA],
    };
    Ok(TrustedKey { id, key, algorithms })
}

fn bearer(request: &Parts) -> Result<&str, Denied> {
    let value = request.headers.get(AUTHORIZATION);
    let value = value.ok_or_else(|| Denied::unauthenticated("Authorization is missing"))?;
    let token = value.to_str().ok().and_then(|text| text.split_once(' '));
    match token {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => Err(Denied::unauthenticated("Authorization is not a bearer token")),
    }
}

fn text(claim: Option<&Value>) -> Option<Cow<'static, str>> {
    match claim? {
        Value::String(text) if !text.is_empty() => Some(text.clone().into()),
        Value::Number(number) => Some(number.to_string().into()),
        _ => None,
    }
}
