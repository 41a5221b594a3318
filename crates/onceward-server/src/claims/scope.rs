//! The scope and the key that a request names.

use onceward_core::{InvalidScope, Key, Scope, ScopePart};
use onceward_http::Code;

use super::access::{can_see, tenant_forbidden};
use crate::api::{ApiProblem, Caller};

/// The tenant and the caller of claims that name none, as in a gateway with a single tenant.
const UNNAMED: &str = "-";

/// The parts of a scope as a request has them.
pub(super) struct SentScope<'r> {
    pub(super) tenant: Option<&'r str>,
    pub(super) caller: Option<&'r str>,
    pub(super) operation: &'r str,
    pub(super) api_version: Option<&'r str>,
    pub(super) parent: Option<&'r str>,
    pub(super) region: Option<&'r str>,
}

impl SentScope<'_> {
    /// The scope, if the sender may see its tenant.
    pub(super) fn parse(self, sender: &Caller) -> Result<Scope, ApiProblem> {
        let tenant = self.tenant.or_else(|| sender.only_tenant()).unwrap_or(UNNAMED);
        if !can_see(sender, tenant) {
            return Err(tenant_forbidden());
        }
        self.scope(tenant).map_err(|error| invalid(&error))
    }

    fn scope(self, tenant: &str) -> Result<Scope, InvalidScope> {
        let mut scope = Scope::new(tenant, self.caller.unwrap_or(UNNAMED), self.operation)?;
        if let Some(version) = self.api_version {
            scope = scope.with_api_version(version)?;
        }
        if let Some(parent) = self.parent {
            scope = scope.with_parent(parent)?;
        }
        if let Some(region) = self.region {
            scope = scope.with_region(region)?;
        }
        Ok(scope)
    }
}

/// Parses a key. The error does not repeat it.
pub(super) fn key(text: &str) -> Result<Key, ApiProblem> {
    Key::new(text).map_err(|error| ApiProblem::of(Code::InvalidKey).detail(error.to_string()))
}

fn invalid(error: &InvalidScope) -> ApiProblem {
    let problem = match error.part() {
        ScopePart::Operation => ApiProblem::bad_request(""),
        part => ApiProblem::of(Code::of_scope_part(part)),
    };
    problem.detail(error.to_string())
}
