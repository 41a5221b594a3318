//! Results of questions about unknown operations, for metrics.

use super::decision_log::DecisionKind;
use super::replay_check::ReplayVerdict;
use crate::record::Record;

/// Receives the result of each question about an unknown operation, whether a retry, the reconciler
/// or an operator asked. It should count and return.
pub trait RecoveryObserver: Send + Sync {
    /// Receives one result.
    fn recovered(&self, record: &Record, status: RecoveryStatus);

    /// Receives the result of a question about a completed operation, before its replay
    /// ([`ReplayCheck::Resolver`](crate::ReplayCheck::Resolver)). Does nothing by default.
    fn replay_checked(&self, record: &Record, verdict: ReplayVerdict) {
        _ = (record, verdict);
    }
}

/// Result of a question about an unknown operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryStatus {
    /// It had happened: its outcome is stored.
    Happened,
    /// It had not happened: its key is free.
    DidNotHappen,
    /// The resolver does not know.
    StillUnknown,
    /// It was settled in another way before the verdict was applied.
    SettledElsewhere,
    /// The resolver failed or did not answer in time.
    Failed,
}

impl RecoveryStatus {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Happened,
        Self::DidNotHappen,
        Self::StillUnknown,
        Self::SettledElsewhere,
        Self::Failed,
    ];

    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Happened => "happened",
            Self::DidNotHappen => "did_not_happen",
            Self::StillUnknown => "still_unknown",
            Self::SettledElsewhere => "settled_elsewhere",
            Self::Failed => "failed",
        }
    }

    /// The result of a decision; `None` for one that is about no operation.
    pub const fn of_decision(decided: DecisionKind) -> Option<Self> {
        match decided {
            DecisionKind::Happened => Some(Self::Happened),
            DecisionKind::DidNotHappen => Some(Self::DidNotHappen),
            DecisionKind::Superseded => Some(Self::SettledElsewhere),
            DecisionKind::LossAccepted => None,
        }
    }
}
