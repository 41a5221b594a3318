//! Who may use the APIs, and for what.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

use super::problem::ApiProblem;
use crate::config::{self, NotSet, Role, environment};

/// Somebody whose token holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// For the trail of decisions.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Whose records it sees; everybody's if none is named.
    tenants: Vec<String>,
}

impl Caller {
    /// Somebody at the store itself, who could do all of it without us.
    pub(crate) fn at_the_store(name: String) -> Self {
        Self { name, role: Role::Operator, tenants: Vec::new() }
    }

    /// The tenants that it is tied to; none if everybody's records exist for it.
    pub(crate) fn tenants(&self) -> &[String] {
        &self.tenants
    }

    /// Whether it may do what needs this role.
    pub(crate) fn must_be(&self, role: Role) -> Result<(), ApiProblem> {
        if self.role >= role { Ok(()) } else { Err(ApiProblem::forbidden(role)) }
    }

    /// The tenant that is meant where none is named.
    pub(crate) fn only_tenant(&self) -> Option<&str> {
        match self.tenants.as_slice() {
            [tenant] => Some(tenant),
            _ => None,
        }
    }

    /// Whether a tenant's records exist for it.
    pub(crate) fn sees(&self, tenant: &str) -> bool {
        self.tenants.is_empty() || self.tenants.iter().any(|it| it == tenant)
    }
}

/// All tokens that hold. Kept as digests, and compared as such: how long a comparison takes
/// tells nothing about a token.
#[derive(Clone)]
pub(crate) struct Tokens(Arc<[([u8; 32], Arc<Caller>)]>);

/// Why tokens cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// A token's variable is not there.
    #[error("[[tokens]] {name:?}: {source}")]
    NotSet {
        /// Whose token.
        name: String,
        /// Which variable.
        source: NotSet,
    },
    /// A token that can be guessed.
    #[error(
        "[[tokens]] {name:?}: a token has at least {TOKEN_CHARS_MIN} characters; make one with `openssl rand -hex 32`"
    )]
    Short {
        /// Whose token.
        name: String,
    },
}

/// Shorter ones could be guessed.
const TOKEN_CHARS_MIN: usize = 16;

impl Tokens {
    /// Reads the tokens that a configuration names.
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

    /// Who sends these headers.
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
