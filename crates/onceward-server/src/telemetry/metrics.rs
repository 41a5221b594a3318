//! Prometheus metrics of the program, described in `docs/metrics.md`.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{Clock as _, Engine, Meters, StateName, Stats, SystemAmbient};
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
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
        let registry = Mutex::new(registry);
        Arc::new(Self { registry, store, requests, active, active_bytes, count_age })
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
