//! States of records, as JSON and the command line name them.

use std::fmt;

use onceward_core::StateName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of an operation at the store's time: a lapsed lease is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordState {
    /// Its owner holds a live lease.
    Running,
    /// It succeeded.
    Completed,
    /// It failed for good.
    Failed,
    /// Nothing happened, and its key is free.
    Released,
    /// The outcome cannot be proven.
    Unknown,
    /// Its outcome is past its retention, and its key is not new yet.
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
