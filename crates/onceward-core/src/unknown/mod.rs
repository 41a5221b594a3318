//! Unknown outcomes: an authority is asked what happened, and its answer settles the record.
//!
//! | file | contents |
//! |---|---|
//! | `resolver` | the `Resolver` trait: what an authority says |
//! | `checked_resolver` | whether "did not happen" counts |
//! | `record_finding` | settles a record by a finding, after logging the decision |
//! | `recovery_observer` | results of questions, for metrics |
//! | `recovery` | asks about one record, for an engine |
//! | `replay_check` | asks about a completed operation before its replay |
//! | `reconciler` | asks again and again, with one node for each question |
//! | `decision_log` | who decided what, as completed records of the store |
//! | `template` | addresses and queries with placeholders for an operation |

mod checked_resolver;
mod decision_log;
mod reconciler;
mod record_finding;
mod recovery;
mod recovery_observer;
mod replay_check;
mod resolver;
mod template;

pub use decision_log::{Decision, DecisionKind, DecisionLog, LoggedDecision};
pub use reconciler::{Reconciler, ReconcilerRound, ReconcilerSettings};
pub use recovery::Recovery;
pub use recovery_observer::{RecoveryObserver, RecoveryStatus};
pub use replay_check::ReplayVerdict;
pub use resolver::{BoxError, Finding, Resolver, Since};
pub use template::{InvalidTemplate, Placeholder, Template};
