//! Prometheus metrics of the program, described in `docs/metrics.md`.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{Clock as _, Engine, Meters, StateName, Stats, SystemAmbient};
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// All metrics of a process.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    pub(crate) store: Meters,
    /// Requests, claims and recoveries, as every user of the library has them.
    pub(crate) requests: Arc<onceward_http::Metrics>,
    active: Family<[(&'static str, String); 1], Gauge>,
    active_bytes: Gauge,
    count_age: Gauge,
    regions: Family<[(&'static str, String); 2], Counter>,
}

/// Where a protected request was decided, and why it was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegionDecision {
    /// In this region, its home.
    Here,
    /// In its home region, whose response came back.
    Forwarded,
    /// Nowhere: its home region could not be reached.
    Unreachable,
    /// Perhaps in its home region, which did not answer.
    Unanswered,
    /// Nowhere: its home is another region, and requests are not forwarded.
    Refused,
    /// Nowhere: its key names no region.
    Unnamed,
    /// Nowhere: its key names a region that is not configured.
    Unknown,
    /// Nowhere: another gateway forwarded it here, and it does not belong here.
    Misrouted,
    /// Here, in shadow mode, whatever its home is.
    Shadow,
}

impl RegionDecision {
    /// Decisions about keys of other regions.
    pub(crate) const OF_OTHERS: [Self; 5] =
        [Self::Forwarded, Self::Unreachable, Self::Unanswered, Self::Refused, Self::Shadow];

    /// Decisions about requests without a known region.
    pub(crate) const WITHOUT_REGION: [Self; 4] =
        [Self::Unnamed, Self::Unknown, Self::Misrouted, Self::Shadow];

    /// The name in metrics and logs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Forwarded => "forwarded",
            Self::Unreachable => "unreachable",
            Self::Unanswered => "unanswered",
            Self::Refused => "refused",
            Self::Unnamed => "unnamed",
            Self::Unknown => "unknown",
            Self::Misrouted => "misrouted",
            Self::Shadow => "shadow",
        }
    }
}

impl Metrics {
    pub(crate) fn new() -> Arc<Self> {
        let mut registry = Registry::default();
        let store = Meters::register(&mut registry);
        let requests = onceward_http::Metrics::register(&mut registry);
        let (active, active_bytes, count_age) =
            (Family::default(), Gauge::default(), Gauge::default());
        registry.register("idempotency_records_active", "Records by state", Family::clone(&active));
        registry.register(
            "idempotency_records_bytes",
            "Bytes of all records",
            active_bytes.clone(),
        );
        let help = "Time since the records were counted";
        registry.register("onceward_record_count_age_seconds", help, count_age.clone());
        let regions = Family::default();
        let help = "Protected requests by home region";
        registry.register("onceward_region_requests", help, Family::clone(&regions));
        let registry = Mutex::new(registry);
        Arc::new(Self { registry, store, requests, active, active_bytes, count_age, regions })
    }

    /// The counter of a decision about keys of a region.
    pub(crate) fn region(&self, region: &str, decision: RegionDecision) -> Counter {
        let labels = [("region", region.to_owned()), ("decision", decision.name().to_owned())];
        self.regions.get_or_create(&labels).clone()
    }

    /// Renders the text that Prometheus scrapes. The counts of records are `counted` old.
    pub(crate) fn text(&self, stats: Option<&Stats>, counted: Duration, engine: &Engine) -> String {
        self.requests.refresh(engine);
        self.count_age.set(i64::try_from(counted.as_secs()).unwrap_or(i64::MAX));
        if let Some(stats) = stats {
            for state in StateName::ALL {
                let count = stats.by_state[state as usize];
                let gauge = self.active.get_or_create(&[("state", state.as_str().to_owned())]);
                gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
            self.active_bytes.set(i64::try_from(stats.bytes).unwrap_or(i64::MAX));
            let age = stats.oldest_unknown.map(|oldest| oldest.until(SystemAmbient::new().now()));
            self.requests.set_oldest_unknown(age.unwrap_or_default());
        }
        let mut text = String::new();
        let _never_fails_for_a_string = encode(&mut text, &self.registry.lock());
        text
    }
}
