//! Metrics and log lines about regions.

use onceward_core::log::{LogThrottle, TARGET};
use prometheus_client::metrics::counter::Counter;

use super::NO_REGION;
use super::refusal::Misrouted;
use crate::telemetry::{Metrics, RegionDecision};

/// Lines about refused requests in ten seconds. Clients cause them.
const REFUSED_LINES: u32 = 10;

/// Reports where requests are decided.
pub(super) struct Report {
    counters: Vec<(Box<str>, RegionDecision, Counter)>,
    refused: LogThrottle,
    undelivered: LogThrottle,
}

/// A request that was forwarded to a gateway without a region, or to the wrong one.
static MISROUTED: LogThrottle = LogThrottle::new(1);

impl Report {
    /// Starts the series of all regions at 0.
    pub(super) fn new<'n>(
        metrics: &Metrics,
        own: &'n str,
        others: impl Iterator<Item = &'n str>,
    ) -> Self {
        let of_own = [RegionDecision::Here, RegionDecision::Shadow].map(|it| (own, it));
        let of_none = RegionDecision::WITHOUT_REGION.map(|it| (NO_REGION, it));
        let of_others = others.flat_map(|name| RegionDecision::OF_OTHERS.map(|it| (name, it)));
        let series = of_own.into_iter().chain(of_none).chain(of_others);
        let counters = series
            .map(|(region, decision)| (region.into(), decision, metrics.region(region, decision)));
        Self {
            counters: counters.collect(),
            refused: LogThrottle::new(REFUSED_LINES),
            undelivered: LogThrottle::default(),
        }
    }

    fn count(&self, region: &str, decision: RegionDecision) {
        let counter =
            self.counters.iter().find(|(name, it, _)| **name == *region && *it == decision);
        debug_assert!(counter.is_some(), "{decision:?} is a decision about {region}");
        if let Some((_, _, counter)) = counter {
            counter.inc();
        }
    }

    /// Reports the decision about a request of an operation.
    pub(super) fn decided(&self, region: &str, decision: RegionDecision, operation: &str) {
        self.count(region, decision);
        let decided = decision.name();
        match decision {
            RegionDecision::Here | RegionDecision::Shadow | RegionDecision::Forwarded => {
                tracing::debug!(target: TARGET, operation, region, decision = decided, "home region");
            }
            RegionDecision::Refused | RegionDecision::Unnamed | RegionDecision::Unknown => {
                if let Some(occurrences) = self.refused.occurred() {
                    tracing::info!(
                        target: TARGET, operation, region, decision = decided, occurrences,
                        "not a request of this region"
                    );
                }
            }
            RegionDecision::Unreachable | RegionDecision::Unanswered => {
                if let Some(occurrences) = self.undelivered.occurred() {
                    tracing::warn!(
                        target: TARGET, operation, region, decision = decided, occurrences,
                        "the home region did not answer"
                    );
                }
            }
            RegionDecision::Misrouted => {}
        }
    }

    pub(super) fn misrouted(&self, why: Misrouted) {
        self.count(NO_REGION, RegionDecision::Misrouted);
        misrouted(why);
    }
}

/// Logs a request that another gateway has forwarded although it does not belong here.
pub(super) fn misrouted(why: Misrouted) {
    if let Some(occurrences) = MISROUTED.occurred() {
        tracing::error!(target: TARGET, why = why.why(), occurrences, "forwarded to the wrong region");
    }
}
