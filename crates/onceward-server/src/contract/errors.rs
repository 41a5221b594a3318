//! The errors that clients can get under a configuration, each as the API writes it.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{Response, StatusCode};
use onceward_http::{Code, Problem, ProblemFormat};
use serde::{Deserialize, Serialize};

use super::Contract;
use super::owner::{Dimension, Identity};
use super::region::UnnamedKeys;
use super::terms::Terms;
use crate::gateway::GatewayCode;

/// An error, with what it tells a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ErrorTerms {
    pub(super) code: String,
    pub(super) statuses: Vec<u16>,
    pub(super) title: String,
    /// Empty if it is another one for each request.
    pub(super) detail: String,
    pub(super) retryable: bool,
    pub(super) same_key: bool,
}

/// The members of a problem that the contract repeats.
#[derive(Deserialize)]
struct Body {
    code: String,
    status: u16,
    title: String,
    detail: String,
    retryable: bool,
    same_key: bool,
}

impl ErrorTerms {
    /// Reads a refusal as a client does.
    fn of(refusal: &Response<Bytes>, other_status: Option<StatusCode>) -> Option<Self> {
        let Body { code, status, title, detail, retryable, same_key } =
            serde_json::from_slice(refusal.body()).ok()?;
        let other = other_status.map(|status| status.as_u16());
        let statuses = [status].into_iter().chain(other).collect();
        Some(Self { code, statuses, title, detail, retryable, same_key })
    }
}

impl Contract {
    /// All errors that a protected request, or a request for a status page, can get.
    pub(super) fn possible_errors(&self, authorizes: bool) -> Vec<ErrorTerms> {
        let codes = Code::ALL.into_iter().filter(|code| self.is_possible(*code, authorizes));
        let of_protocol = codes.filter_map(|code| self.error(code, authorizes));
        let of_gateway = GatewayCode::ALL.into_iter().filter_map(|code| {
            let possible = self.is_possible_here(code, authorizes);
            let refusal = possible.then(|| code.details().response(&ProblemFormat::default()))?;
            ErrorTerms::of(&refusal, code.other_status())
        });
        of_protocol.chain(of_gateway).collect()
    }

    /// Returns whether a client can get a code. A code that is not named here is always possible.
    fn is_possible(&self, code: Code, authorizes: bool) -> bool {
        let any = |holds: fn(&Terms) -> bool| self.protected().any(holds);
        let can_be_invalid =
            |part: &Option<Identity>| part.as_ref().is_some_and(Identity::can_be_invalid);
        match code {
            Code::MissingKey => any(|terms| terms.key.required),
            Code::InvalidTenant => can_be_invalid(&self.owner.tenant),
            Code::InvalidCaller => can_be_invalid(&self.owner.caller),
            Code::InvalidApiVersion => self.owner.has(Dimension::ApiVersion),
            Code::InvalidParent => self.owner.has(Dimension::Parent),
            Code::InvalidRegion => self.owner.has(Dimension::Region),
            Code::InvalidCredentials => authorizes || self.owner.needs_credentials(),
            Code::OtherCredentials => self.owner.binds_credentials(),
            Code::InvalidReference | Code::ReferenceTaken => any(|terms| terms.reference.is_some()),
            Code::KeyExpired => any(|terms| !terms.expired.is_zero()),
            Code::QuotaExceeded => self.limits_new_keys || self.key_requests.is_some(),
            Code::OutcomeContradicted | Code::OutcomeUnconfirmed => any(|it| it.confirms_replays),
            Code::StoreFull => any(|terms| !terms.unprotected_during_outage),
            // Only handlers in a transaction, which the gateway does not have.
            Code::RolledBack => false,
            _ => true,
        }
    }

    /// Returns whether the gateway itself can give a code.
    fn is_possible_here(&self, code: GatewayCode, authorizes: bool) -> bool {
        let regions = self.regions.as_ref();
        match code {
            GatewayCode::AuthorizationUnavailable => authorizes,
            GatewayCode::OtherRegion => regions.is_some_and(|it| !it.forwards),
            GatewayCode::NoRegion => regions.is_some_and(|it| it.unnamed == UnnamedKeys::Refused),
            GatewayCode::UnknownRegion => regions.is_some(),
            GatewayCode::HomeUnreachable
            | GatewayCode::HomeUnanswered
            | GatewayCode::RegionMisrouted => regions.is_some_and(|it| it.forwards),
            _ => true,
        }
    }

    fn error(&self, code: Code, authorizes: bool) -> Option<ErrorTerms> {
        let any = |holds: fn(&Terms) -> bool| self.protected().any(holds);
        let problem = Problem::new(code);
        let problem = match code {
            Code::OutcomeUnknown if self.finds_out_unknown_outcomes => {
                let delay = self.protected().next().map(|terms| terms.while_running.retry_after);
                problem.being_resolved(delay.unwrap_or_default())
            }
            _ => problem,
        };
        let other_status = code.other_status().filter(|_| match code {
            Code::OutcomeUnknown => any(|terms| terms.withholds_unstored_responses),
            // Only the authorization service says 403.
            Code::InvalidCredentials => authorizes,
            _ => true,
        });
        let refusal = problem.into_response(&ProblemFormat::default());
        let mut error = ErrorTerms::of(&refusal, other_status)?;
        if code == Code::KeyReused {
            let statuses: BTreeSet<_> = self.protected().map(|it| it.mismatch_status).collect();
            error.statuses = statuses.into_iter().collect();
        }
        Some(error)
    }
}
