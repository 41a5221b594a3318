//! Who may do what, judged before a body is read.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use onceward_core::INTERNAL_TENANT;

use super::Claims;
use crate::api::{ApiProblem, Caller, Role, Tokens};
use crate::desk::Keeping;
use crate::gateway::Site;

/// The tokens of the claims API and the admin API.
#[derive(Clone)]
pub(crate) enum Door {
    /// Those of a gateway, whose configuration may be read again.
    Gateway(Arc<ArcSwap<Site>>),
    /// Those that `onceward claims` was started with.
    Own { tokens: Tokens, keeping: Arc<Keeping> },
}

impl Door {
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Arc<Caller>, ApiProblem> {
        match self {
            Self::Gateway(sites) => sites.load().tokens.caller(headers),
            Self::Own { tokens, .. } => tokens.caller(headers),
        }
    }

    /// The retention of what operators decide.
    pub(crate) fn keeping(&self) -> Arc<Keeping> {
        match self {
            Self::Gateway(sites) => Arc::clone(&sites.load().keeping),
            Self::Own { keeping, .. } => Arc::clone(keeping),
        }
    }
}

/// Somebody who may look.
pub(super) struct Reader(pub(super) Arc<Caller>);

/// Somebody who may claim.
pub(super) struct Worker(pub(super) Arc<Caller>);

impl FromRequestParts<Arc<Claims>> for Reader {
    type Rejection = ApiProblem;

    async fn from_request_parts(
        parts: &mut Parts,
        claims: &Arc<Claims>,
    ) -> Result<Self, ApiProblem> {
        admitted(parts, claims, Role::Reader).map(Self)
    }
}

impl FromRequestParts<Arc<Claims>> for Worker {
    type Rejection = ApiProblem;

    async fn from_request_parts(
        parts: &mut Parts,
        claims: &Arc<Claims>,
    ) -> Result<Self, ApiProblem> {
        admitted(parts, claims, Role::Worker).map(Self)
    }
}

fn admitted(parts: &Parts, claims: &Claims, role: Role) -> Result<Arc<Caller>, ApiProblem> {
    let caller = claims.door.caller(&parts.headers)?;
    caller.must_be(role)?;
    Ok(caller)
}

/// Whether a tenant's records exist for somebody. Onceward's own exist for nobody here.
pub(super) fn exists_for(caller: &Caller, tenant: &str) -> bool {
    tenant != INTERNAL_TENANT && caller.sees(tenant)
}

pub(super) fn tenant_forbidden() -> ApiProblem {
    let title = "The token does not allow claims for this tenant";
    ApiProblem::new(StatusCode::FORBIDDEN, "TENANT_FORBIDDEN", title)
        .detail("Name a tenant that [[tokens]] allows; without one, the tenant is \"-\".")
}
