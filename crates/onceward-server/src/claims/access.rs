//! Access checks, made before a body is read.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;
use onceward_core::INTERNAL_TENANT;

use super::Claims;
use crate::api::{ApiProblem, Caller};
use crate::config::Role;

/// A caller with the role reader, or a higher one.
pub(super) struct ReaderCaller(pub(super) Arc<Caller>);

/// A caller with the role worker, or a higher one.
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

/// Returns whether a caller may see a tenant's records. Internal records are never visible here.
pub(super) fn can_see(caller: &Caller, tenant: &str) -> bool {
    tenant != INTERNAL_TENANT && caller.sees(tenant)
}

pub(super) fn tenant_forbidden() -> ApiProblem {
    let title = "The token does not allow claims for this tenant";
    ApiProblem::new(StatusCode::FORBIDDEN, "TENANT_FORBIDDEN", title).detail(
        "Use a tenant of this token. Without `tenant`, it is the only one of the token, or \"-\".",
    )
}
