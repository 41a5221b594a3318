//! States of records, as JSON and the command line name them.

use std::fmt;

use onceward_core::StateName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of an operation. A running one whose lease has lapsed is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordState {
    /// The owner holds a live lease.
    Running,
    /// The operation succeeded.
    Completed,
    /// The operation failed for good.
    Failed,
    /// Nothing happened, and the key is free.
    Released,
    /// There is no proof of the outcome.
    Unknown,
    /// The retention of the outcome is over, and the key is still known.
    Expired,
}

impl fmt::Display for RecordState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(StateName::from(*self).as_str())
    }
}

impl From<StateName> for RecordState {
    fn from(name: StateName) -> Self {
        match name {
            StateName::Running => Self::Running,
            StateName::Completed => Self::Completed,
            StateName::Failed => Self::Failed,
            StateName::Released => Self::Released,
            StateName::Unknown => Self::Unknown,
            StateName::Expired => Self::Expired,
        }
    }
}

impl From<RecordState> for StateName {
    fn from(state: RecordState) -> Self {
        match state {
            RecordState::Running => Self::Running,
            RecordState::Completed => Self::Completed,
            RecordState::Failed => Self::Failed,
            RecordState::Released => Self::Released,
            RecordState::Unknown => Self::Unknown,
            RecordState::Expired => Self::Expired,
        }
    }
}
