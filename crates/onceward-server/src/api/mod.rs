//! What the claims API and the admin API have in common: who may ask, and how they are
//! answered.

mod problem;
mod serve;
mod tokens;

pub(crate) use problem::{ApiProblem, Payload};
pub(crate) use serve::serve;
pub(crate) use tokens::{Caller, Tokens};
pub use tokens::{Role, TokensError};
