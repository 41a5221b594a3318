//! Who may do what, judged before a body is read.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;
use onceward_core::INTERNAL_TENANT;

use super::Claims;
use crate::api::{ApiProblem, Caller};
use crate::config::Role;

/// Somebody who may look.
pub(super) struct ReaderCaller(pub(super) Arc<Caller>);

/// Somebody who may claim.
pub(super) struct WorkerCaller(pub(super) Arc<Caller>);

impl FromRequestParts<Arc<Claims>> for ReaderCaller {
    type Rejection = ApiProblem;

    async fn from_request_parts(
        parts: &mut Parts,
        claims: &Arc<Claims>,
    ) -> Result<Self, ApiProblem> {
        caller_with_role(parts, claims, Role::Reader).map(Self)
    }
}

impl FromRequestParts<Arc<Claims>> for WorkerCaller {
    type Rejection = ApiProblem;

    async fn from_request_parts(
        parts: &mut Parts,
        claims: &Arc<Claims>,
    ) -> Result<Self, ApiProblem> {
        caller_with_role(parts, claims, Role::Worker).map(Self)
    }
}

fn caller_with_role(parts: &Parts, claims: &Claims, role: Role) -> Result<Arc<Caller>, ApiProblem> {
    let caller = claims.settings.caller(&parts.headers)?;
    caller.must_be(role)?;
    Ok(caller)
}

/// Whether a tenant's records exist for somebody. Onceward's own exist for nobody here.
pub(super) fn can_see(caller: &Caller, tenant: &str) -> bool {
    tenant != INTERNAL_TENANT && caller.sees(tenant)
}

pub(super) fn tenant_forbidden() -> ApiProblem {
    let title = "The token does not allow claims for this tenant";
    ApiProblem::new(StatusCode::FORBIDDEN, "TENANT_FORBIDDEN", title)
        .detail("Name a tenant that [[tokens]] allows; without one, the tenant is \"-\".")
}
