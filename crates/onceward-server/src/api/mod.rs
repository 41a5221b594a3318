//! What the claims API and the admin API have in common: who may ask, and how they are
//! answered.

mod params;
mod payload;
mod problem;
mod serve;
mod tokens;

pub(crate) use params::Params;
pub(crate) use payload::{Payload, body_limit, read_json};
pub(crate) use problem::ApiProblem;
pub(crate) use serve::serve;
pub use tokens::Role;
pub(crate) use tokens::{Caller, Tokens, TokensError};
