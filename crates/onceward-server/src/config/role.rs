//! Roles of tokens.

use serde::Deserialize;

/// Permissions of a token. Each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads records and decisions.
    Reader,
    /// Claims, and settles its own claims.
    Worker,
    /// Resolves and releases operations.
    Operator,
}
