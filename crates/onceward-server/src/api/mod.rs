//! Parts that the claims API and the admin API share.
//!
//! | file | contents |
//! |---|---|
//! | `tokens` | bearer tokens, their roles and tenants |
//! | `settings` | tokens and rules of outcomes in force |
//! | `payload`, `query` | JSON bodies and query strings, with errors that name the field |
//! | `problem` | error responses (RFC 9457) |
//! | `record_ref`, `record_state`, `rfc3339` | ids, states and times as JSON shows them |
//! | `outcome_rules` | rules of outcomes that resolvers and operators store |
//! | `serve` | a listener for one router |

mod outcome_rules;
mod payload;
mod problem;
mod query;
mod record_ref;
mod record_state;
mod rfc3339;
mod serve;
mod settings;
mod tokens;

pub(crate) use outcome_rules::OutcomeRules;
pub(crate) use payload::{Payload, body_limit, read_json};
pub(crate) use problem::ApiProblem;
pub(crate) use query::QueryParams;
pub(crate) use record_ref::{RecordRef, record_id};
pub(crate) use record_state::RecordState;
pub(crate) use rfc3339::Rfc3339;
pub(crate) use serve::serve;
pub(crate) use settings::{ApiSettings, CurrentApiSettings};
pub(crate) use tokens::{Caller, Tokens, TokensError};
