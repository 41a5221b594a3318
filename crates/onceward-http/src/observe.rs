//! Telling somebody what became of requests, for metrics.

use onceward_core::{Disposition, Settled};

/// Is told what becomes of guarded requests. Set it by
/// [`LayerBuilder::observer`](crate::LayerBuilder::observer). It runs on the way of every
/// request, so it should count and return.
pub trait Observer: Send + Sync {
    /// Something became of a request of this operation.
    fn observe(&self, operation: &str, event: Event);
}

/// What became of a guarded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It is the first: its handler runs.
    Granted,
    /// It got the first answer.
    Replayed,
    /// Its key belongs to another request.
    Mismatch,
    /// The first is still running.
    InProgress,
    /// Nobody knows what became of the first.
    Unknown,
    /// Its key is past its retention.
    Expired,
    /// Its caller uses too much.
    OverQuota,
    /// The store could not be asked; nothing was executed.
    StoreDown,
    /// The store could not be asked, and it ran unguarded.
    Unguarded,
    /// What its handler did was written down, or not.
    Settled(Disposition, Settled),
}

impl Event {
    /// Its name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Replayed => "replayed",
            Self::Mismatch => "mismatch",
            Self::InProgress => "in_progress",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::OverQuota => "over_quota",
            Self::StoreDown => "store_down",
            Self::Unguarded => "unguarded",
            Self::Settled(..) => "settled",
        }
    }
}
