//! Prometheus metrics, described in `docs/metrics.md`.

use std::sync::Arc;

use onceward_core::{
    Clock as _, Disposition, Meters, ReconcilerRound, Settled, StateName, Stats, SystemAmbient,
};
use onceward_http::{Event, Observer, ShadowDecision};
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Labels<const N: usize> = [(&'static str, String); N];

/// All metrics of a process.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    pub(crate) store: Meters,
    claims: Family<Labels<2>, Counter>,
    existing: Family<Labels<2>, Counter>,
    finalized: Family<Labels<2>, Counter>,
    store_errors: Family<Labels<2>, Counter>,
    shadow: Family<Labels<2>, Counter>,
    shadow_mismatches: Family<Labels<2>, Counter>,
    recoveries: Family<Labels<1>, Counter>,
    oldest_unknown: Gauge,
    by_operation: ByOperation,
    active: Family<Labels<1>, Gauge>,
    active_bytes: Gauge,
}

/// Counters whose only label is the operation.
struct ByOperation {
    replays: Family<Labels<1>, Counter>,
    conflicts: Family<Labels<1>, Counter>,
    in_progress: Family<Labels<1>, Counter>,
    unknown: Family<Labels<1>, Counter>,
    expired: Family<Labels<1>, Counter>,
    over_quota: Family<Labels<1>, Counter>,
    unprotected: Family<Labels<1>, Counter>,
}

impl Metrics {
    pub(crate) fn new() -> Arc<Self> {
        let mut registry = Registry::default();
        let store = Meters::register(&mut registry);
        let mut pairs = |name: &str, help: &str| {
            let family = Family::<Labels<2>, Counter>::default();
            registry.register(name, help, family.clone());
            family
        };
        let claims = pairs("idempotency_claim", "Claims by result");
        let existing =
            pairs("idempotency_existing", "Claims of existing keys by the state of their record");
        let finalized = pairs("idempotency_finalize", "Settlements by result");
        let store_errors = pairs("idempotency_store_error", "Failed store calls by phase");
        let shadow = pairs("idempotency_shadow", "Requests in shadow mode by decision");
        let shadow_mismatches = pairs(
            "idempotency_shadow_mismatch",
            "Mismatches in shadow mode by the part that differs",
        );
        let mut one = |name: &str, help: &str| {
            let family = Family::<Labels<1>, Counter>::default();
            registry.register(name, help, family.clone());
            family
        };
        let recoveries =
            one("idempotency_recovery", "Unknown operations by the resolver's verdict");
        let by_operation = ByOperation {
            replays: one("idempotency_replay", "Retries answered with the first response"),
            conflicts: one("idempotency_conflict", "Keys used for another request"),
            in_progress: one(
                "idempotency_in_progress",
                "Retries while the first request was running",
            ),
            unknown: one("idempotency_unknown", "Executions whose outcome became unknown"),
            expired: one("idempotency_expired", "Retries past the retention of their key"),
            over_quota: one("idempotency_over_quota", "New keys refused by a caller's quota"),
            unprotected: one(
                "idempotency_unprotected",
                "UNSAFE: requests executed without a claim because the store was down",
            ),
        };
        let (active, active_bytes) = (Family::default(), Gauge::default());
        registry.register("idempotency_records_active", "Records by state", active.clone());
        registry.register(
            "idempotency_records_bytes",
            "Bytes of all records",
            active_bytes.clone(),
        );
        let oldest_unknown = Gauge::default();
        registry.register(
            "idempotency_record_age_seconds",
            "Age of the oldest unknown operation, as of the last reconciliation",
            oldest_unknown.clone(),
        );
        let registry = Mutex::new(registry);
        Arc::new(Self {
            registry,
            store,
            claims,
            existing,
            finalized,
            store_errors,
            shadow,
            shadow_mismatches,
            recoveries,
            oldest_unknown,
            by_operation,
            active,
            active_bytes,
        })
    }

    /// Renders the text that Prometheus scrapes.
    pub(crate) fn text(&self, stats: Option<&Stats>) -> String {
        if let Some(stats) = stats {
            for state in StateName::ALL {
                let count = stats.by_state[state as usize];
                let state = state.to_string().to_lowercase();
                let gauge = self.active.get_or_create(&[("state", state)]);
                gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
            self.active_bytes.set(i64::try_from(stats.bytes).unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        let _never_fails_for_a_string = encode(&mut text, &self.registry.lock());
        text
    }

    fn shadowed(&self, operation: &str, decision: ShadowDecision) {
        self.shadow.get_or_create(&pair(operation, "would", decision.name())).inc();
        if let ShadowDecision::Mismatch(part) = decision {
            self.shadow_mismatches.get_or_create(&pair(operation, "part", part.name())).inc();
        }
    }

    /// Counts and logs one round of the reconciler.
    pub(crate) fn reconciled(&self, round: &ReconcilerRound) {
        let counts = [
            ("happened", round.happened),
            ("did_not_happen", round.did_not_happen),
            ("still_unknown", round.still_unknown),
            ("settled_elsewhere", round.settled_elsewhere),
            ("failed", usize::from(round.failed.is_some())),
        ];
        for (verdict, count) in counts {
            let counter = self.recoveries.get_or_create(&[("verdict", verdict.to_owned())]);
            counter.inc_by(count as u64);
        }
        let age = round.oldest.map(|oldest| oldest.until(SystemAmbient::new().now()).as_secs());
        self.oldest_unknown.set(i64::try_from(age.unwrap_or(0)).unwrap_or(i64::MAX));
        match &round.failed {
            Some(error) => tracing::warn!(%error, "reconciling failed; the next round tries again"),
            None if round.unknown > 0 => tracing::info!(
                unknown = round.unknown,
                happened = round.happened,
                did_not_happen = round.did_not_happen,
                still_unknown = round.still_unknown,
                resting = round.resting,
                "reconciled"
            ),
            None => {}
        }
    }

    fn settled(&self, operation: &str, disposition: Disposition, settled: Settled) {
        let status = match (disposition, settled) {
            (_, Settled::Superseded) => "stale",
            (_, Settled::Missing) => "missing",
            (_, Settled::Pending) => "pending",
            (Disposition::Keep, Settled::Durable) => "kept",
            (Disposition::Release, Settled::Durable) => "released",
            (Disposition::Unknown, Settled::Durable) => "unknown",
        };
        self.finalized.get_or_create(&pair(operation, "status", status)).inc();
        if status == "unknown" {
            self.by_operation.unknown.get_or_create(&single(operation)).inc();
        }
        if status == "pending" {
            self.store_errors.get_or_create(&pair(operation, "phase", "finalize")).inc();
        }
    }
}

impl Observer for Metrics {
    fn observe(&self, operation: &str, event: Event) {
        let count = |family: &Family<Labels<1>, Counter>| {
            family.get_or_create(&single(operation)).inc();
        };
        let existing = |state| {
            self.existing.get_or_create(&pair(operation, "state", state)).inc();
        };
        match event {
            Event::Replayed => {
                existing("completed");
                count(&self.by_operation.replays);
            }
            Event::Mismatch => {
                existing("mismatch");
                count(&self.by_operation.conflicts);
            }
            Event::ReferenceTaken => {
                existing("reference_taken");
                count(&self.by_operation.conflicts);
            }
            Event::InProgress => {
                existing("running");
                count(&self.by_operation.in_progress);
            }
            Event::Unknown => existing("unknown"),
            Event::Expired => {
                existing("expired");
                count(&self.by_operation.expired);
            }
            Event::OverQuota => count(&self.by_operation.over_quota),
            Event::Unprotected => count(&self.by_operation.unprotected),
            Event::StoreDown => {
                self.store_errors.get_or_create(&pair(operation, "phase", "claim")).inc();
            }
            Event::Shadow(decision) => return self.shadowed(operation, decision),
            Event::Settled(disposition, settled) => {
                return self.settled(operation, disposition, settled);
            }
            _ => {}
        }
        if event != Event::Unprotected {
            self.claims.get_or_create(&pair(operation, "status", event.name())).inc();
        }
    }
}

fn single(operation: &str) -> Labels<1> {
    [("operation", operation.to_owned())]
}

fn pair(operation: &str, name: &'static str, value: &str) -> Labels<2> {
    [("operation", operation.to_owned()), (name, value.to_owned())]
}
