//! Bearer tokens of the APIs, with their roles and tenants.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

use super::problem::ApiProblem;
use crate::config::{self, NotSet, Role, environment};

/// The owner of a valid token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Name in the audit log.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Tenants whose records it sees; empty for all tenants.
    tenants: Vec<String>,
}

impl Caller {
    /// A command that opens the store itself. It has every right: it could change the store
    /// without these checks.
    pub(crate) fn at_the_store(name: String) -> Self {
        Self { name, role: Role::Operator, tenants: Vec::new() }
    }

    /// Tenants that the caller is restricted to; empty if it sees all.
    pub(crate) fn tenants(&self) -> &[String] {
        &self.tenants
    }

    /// Refuses a caller whose role is lower than `role`.
    pub(crate) fn must_be(&self, role: Role) -> Result<(), ApiProblem> {
        if self.role >= role { Ok(()) } else { Err(ApiProblem::forbidden(role)) }
    }

    /// The default tenant of requests that name none.
    pub(crate) fn only_tenant(&self) -> Option<&str> {
        match self.tenants.as_slice() {
            [tenant] => Some(tenant),
            _ => None,
        }
    }

    /// Returns whether the caller may see a tenant's records.
    pub(crate) fn sees(&self, tenant: &str) -> bool {
        self.tenants.is_empty() || self.tenants.iter().any(|it| it == tenant)
    }
}

/// All valid tokens, as digests. Only digests are compared, so the time that a comparison takes
/// says nothing about a token.
#[derive(Clone)]
pub(crate) struct Tokens(Arc<[([u8; 32], Arc<Caller>)]>);

/// Why tokens cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// The environment variable of a token is not set.
    #[error("[[tokens]] {name:?}: {source}")]
    NotSet {
        /// Name of the token.
        name: String,
        /// The variable.
        source: NotSet,
    },
    /// A token is short enough to be guessed.
    #[error(
        "[[tokens]] {name:?}: the token has fewer than {TOKEN_CHARS_MIN} characters; create one with `openssl rand -hex 32`"
    )]
    Short {
        /// Name of the token.
        name: String,
    },
}

/// Shorter tokens could be guessed.
const TOKEN_CHARS_MIN: usize = 16;

impl Tokens {
    /// Reads the tokens of a configuration from the environment.
    pub(crate) fn read(settings: &[config::Token]) -> Result<Self, TokensError> {
        settings.iter().map(Self::read_one).collect::<Result<_, _>>().map(Self)
    }

    fn read_one(settings: &config::Token) -> Result<([u8; 32], Arc<Caller>), TokensError> {
        let config::Token { name, role, secret_env, tenants } = settings.clone();
        let secret = environment(&secret_env)
            .map_err(|source| TokensError::NotSet { name: name.clone(), source })?;
        if secret.len() < TOKEN_CHARS_MIN {
            return Err(TokensError::Short { name });
        }
        Ok((digest(&secret), Arc::new(Caller { name, role, tenants })))
    }

    /// The caller whose token the headers have.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Arc<Caller>, ApiProblem> {
        let mut sent = headers.get_all(AUTHORIZATION).iter();
        let (Some(header), None) = (sent.next(), sent.next()) else {
            return Err(ApiProblem::unauthorized());
        };
        let bearer = header.to_str().ok().and_then(|it| it.split_once(' '));
        let token = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let sent = digest(token.ok_or_else(ApiProblem::unauthorized)?.1.trim());
        let known = self.0.iter().find(|(digest, _)| *digest == sent);
        known.map(|(_, caller)| Arc::clone(caller)).ok_or_else(ApiProblem::unauthorized)
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_holds() {
        let worker = Caller { name: "w".into(), role: Role::Worker, tenants: vec!["a".into()] };
        let tokens = Tokens(Arc::new([(digest("0123456789abcdef"), Arc::new(worker))]));
        let sent = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            tokens.caller(&headers)
        };
        let caller = sent("Bearer 0123456789abcdef").unwrap();
        assert!(caller.must_be(Role::Reader).is_ok() && caller.must_be(Role::Worker).is_ok());
        assert_eq!(caller.must_be(Role::Operator).unwrap_err().status(), 403);
        assert!(caller.sees("a") && !caller.sees("b"));
        for wrong in ["", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Basic 0123456789abcdef"] {
            assert_eq!(sent(wrong).unwrap_err().status(), 401, "{wrong:?}");
        }
        assert_eq!(tokens.caller(&HeaderMap::new()).unwrap_err().status(), 401);
    }
}
