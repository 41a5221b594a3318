//! Operations whose outcome is unknown: asking an authority, and settling them by its answer.

mod checked_resolver;
mod decision_log;
mod reconciler;
mod recovery;
mod resolution;
mod resolver;
mod template;

pub use decision_log::{Decided, Decision, Decisions, Written};
pub use reconciler::{Reconciler, ReconcilerSettings, Round};
pub use recovery::{Recovered, Recovery};
pub use resolver::{BoxError, Finding, Resolver, Since};
pub use template::{About, InvalidTemplate, Template};
