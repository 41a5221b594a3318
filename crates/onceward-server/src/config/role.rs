//! Roles of the APIs.

use serde::Deserialize;

/// A permission of a token. Each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look.
    Reader,
    /// Claim, and settle what it has claimed.
    Worker,
    /// Decide what became of operations.
    Operator,
}
