//! Prometheus metrics of protected requests.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use onceward_core::{
    Disposition, Engine, Record, RecoveryObserver, RecoveryStatus, ReplayVerdict, Settled,
    SweeperRound,
};
use parking_lot::{Mutex, RwLock};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{DifferingPart, Event, Observer, ShadowDecision};
use crate::rules::Mode;

type Labels<const N: usize> = [(&'static str, String); N];
type Pairs = Family<Labels<2>, Counter>;
type Singles = Family<Labels<1>, Counter>;

/// Operations with series of their own. Workers name operations freely, so there must be a limit.
const OPERATIONS_MAX: usize = 1_000;

/// Label of the operations beyond [`OPERATIONS_MAX`].
const OTHER: &str = "other";

/// Prometheus metrics of protected requests: an [`Observer`] of layers, and a
/// [`RecoveryObserver`] of [`Recovery`](onceward_core::Recovery) and
/// [`Reconciler`](onceward_core::Reconciler).
///
/// `docs/metrics.md` describes them. The series of an operation start at 0 when a layer with it is
/// built, or at its first request.
///
/// ```
/// use std::sync::Arc;
/// use onceward_core::{Engine, MemoryStore};
/// use onceward_http::{Metrics, Onceward, Operation};
/// use prometheus_client::registry::Registry;
///
/// let mut registry = Registry::default();
/// let metrics = Metrics::register(&mut registry);
/// let engine = Engine::new(Arc::new(MemoryStore::new()));
/// let layer = Onceward::layer(engine.clone())
///     .single_tenant()
///     .operation(Operation::post("/orders").named("orders.create"))
///     .observer(metrics.clone())
///     .build()?;
/// metrics.refresh(&engine); // before each scrape: the ages
/// let mut text = String::new();
/// prometheus_client::encoding::text::encode(&mut text, &registry)?;
/// assert!(text.contains(r#"idempotency_replay_total{operation="orders.create"} 0"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Metrics {
    families: Families,
    operations: RwLock<HashMap<Box<str>, Arc<OperationMetrics>>>,
    ages: Family<Vec<(&'static str, String)>, Gauge>,
    cleanup_overdue: Gauge,
    archived: Counter,
    /// Time at which the sweeper's next complete round is due; `None` without a sweeper.
    cleanup_due: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Families {
    claims: Pairs,
    existing: Pairs,
    finalized: Pairs,
    store_errors: Pairs,
    recoveries: Pairs,
    replay_checks: Pairs,
    shadow: Pairs,
    shadow_mismatches: Pairs,
    replays: Singles,
    conflicts: Singles,
    in_progress: Singles,
    unknown: Singles,
    expired: Singles,
    over_quota: Singles,
    unprotected: Singles,
}

/// The series of one operation.
#[derive(Debug, Default)]
struct OperationMetrics {
    protected: OnceLock<ProtectedSeries>,
    shadow: OnceLock<ShadowSeries>,
}

/// The series of an operation that is protected.
#[derive(Debug)]
struct ProtectedSeries {
    claims: Series,
    existing: Series,
    finalized: Series,
    store_errors: Series,
    recoveries: Series,
    replay_checks: Series,
    replays: Counter,
    conflicts: Counter,
    in_progress: Counter,
    unknown: Counter,
    expired: Counter,
    over_quota: Counter,
    unprotected: Counter,
}

/// The series of an operation in shadow mode.
#[derive(Debug)]
struct ShadowSeries {
    decisions: Series,
    mismatches: Series,
}

/// The counters of one operation in a family, by the value of their second label.
#[derive(Debug)]
struct Series(Vec<(&'static str, Counter)>);

impl Series {
    fn new(
        family: &Pairs,
        operation: &str,
        label: &'static str,
        values: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let counter = |value: &'static str| {
            let labels = [("operation", operation.to_owned()), (label, value.to_owned())];
            (value, family.get_or_create(&labels).clone())
        };
        Self(values.into_iter().map(counter).collect())
    }

    fn count(&self, value: &str) {
        let counter = self.0.iter().find(|(it, _)| *it == value);
        debug_assert!(counter.is_some(), "{value} is a value of this label");
        if let Some((_, counter)) = counter {
            counter.inc();
        }
    }
}

const EXISTING: [&str; 7] =
    ["completed", "failed", "running", "unknown", "expired", "mismatch", "reference_taken"];
const FINALIZED: [&str; 6] = ["kept", "released", "unknown", "pending", "stale", "missing"];
const PHASES: [&str; 2] = ["claim", "finalize"];

impl ProtectedSeries {
    fn new(families: &Families, operation: &str) -> Self {
        let one =
            |family: &Singles| family.get_or_create(&[("operation", operation.to_owned())]).clone();
        let recoveries = RecoveryStatus::ALL.map(RecoveryStatus::name);
        let verdicts = ReplayVerdict::ALL.map(ReplayVerdict::name);
        Self {
            claims: Series::new(&families.claims, operation, "status", Event::CLAIM_STATUSES),
            existing: Series::new(&families.existing, operation, "state", EXISTING),
            finalized: Series::new(&families.finalized, operation, "status", FINALIZED),
            store_errors: Series::new(&families.store_errors, operation, "phase", PHASES),
            recoveries: Series::new(&families.recoveries, operation, "status", recoveries),
            replay_checks: Series::new(&families.replay_checks, operation, "status", verdicts),
            replays: one(&families.replays),
            conflicts: one(&families.conflicts),
            in_progress: one(&families.in_progress),
            unknown: one(&families.unknown),
            expired: one(&families.expired),
            over_quota: one(&families.over_quota),
            unprotected: one(&families.unprotected),
        }
    }

    fn count(&self, event: Event) {
        match event {
            Event::Replayed(ended) => {
                self.existing.count(ended.name());
                self.replays.inc();
            }
            Event::Mismatch => {
                self.existing.count("mismatch");
                self.conflicts.inc();
            }
            Event::ReferenceTaken => {
                self.existing.count("reference_taken");
                self.conflicts.inc();
            }
            Event::InProgress => {
                self.existing.count("running");
                self.in_progress.inc();
            }
            Event::Unknown => self.existing.count("unknown"),
            Event::Expired => {
                self.existing.count("expired");
                self.expired.inc();
            }
            Event::RebuildFailed | Event::Contradicted | Event::Unconfirmed => {
                self.existing.count("completed");
            }
            Event::OverQuota => {
                self.over_quota.inc();
            }
            Event::StoreDown => self.store_errors.count("claim"),
            Event::Unprotected => {
                self.unprotected.inc();
                return;
            }
            Event::Settled(disposition, settled) => return self.settled(disposition, settled),
            Event::Granted
            | Event::OtherCredentials
            | Event::StoreFull
            | Event::Draining
            | Event::Shadow(_) => {}
        }
        self.claims.count(event.name());
    }

    fn settled(&self, disposition: Disposition, settled: Settled) {
        let status = match (disposition, settled) {
            (_, Settled::Superseded) => "stale",
            (_, Settled::Missing) => "missing",
            (_, Settled::Pending) => "pending",
            (Disposition::Keep, Settled::Durable) => "kept",
            (Disposition::Release, Settled::Durable) => "released",
            (Disposition::Unknown, Settled::Durable) => "unknown",
        };
        self.finalized.count(status);
        match status {
            "unknown" => _ = self.unknown.inc(),
            "pending" => self.store_errors.count("finalize"),
            _ => {}
        }
    }
}

impl ShadowSeries {
    fn new(families: &Families, operation: &str) -> Self {
        let (decisions, parts) = (ShadowDecision::NAMES, DifferingPart::ALL);
        let parts = parts.map(DifferingPart::name);
        Self {
            decisions: Series::new(&families.shadow, operation, "would", decisions),
            mismatches: Series::new(&families.shadow_mismatches, operation, "part", parts),
        }
    }

    fn count(&self, decision: ShadowDecision) {
        self.decisions.count(decision.name());
        if let ShadowDecision::Mismatch(part) = decision {
            self.mismatches.count(part.name());
        }
    }
}

impl Metrics {
    /// Registers the metrics. A registry can have them once; layers share them.
    pub fn register(registry: &mut Registry) -> Arc<Self> {
        let families = Families::default();
        let mut pairs = |name: &str, help: &str, family: &Pairs| {
            registry.register(name, help, family.clone());
        };
        let Families { claims, existing, finalized, store_errors, recoveries, .. } = &families;
        pairs("idempotency_claim", "Claims by result", claims);
        pairs("idempotency_existing", "Claims of existing keys by state of the record", existing);
        pairs("idempotency_finalize", "Settlements by result", finalized);
        pairs("idempotency_store_error", "Failed store calls by phase", store_errors);
        pairs("idempotency_recovery", "Questions about unknown operations by verdict", recoveries);
        let Families { replay_checks, shadow, shadow_mismatches, .. } = &families;
        let help = "Questions about completed operations before their replay by verdict";
        pairs("idempotency_replay_check", help, replay_checks);
        pairs("idempotency_shadow", "Requests in shadow mode by decision", shadow);
        let help = "Mismatches in shadow mode by the part that differs";
        pairs("idempotency_shadow_mismatch", help, shadow_mismatches);
        let mut single = |name: &str, help: &str, family: &Singles| {
            registry.register(name, help, family.clone());
        };
        let Families { replays, conflicts, in_progress, unknown, expired, .. } = &families;
        single("idempotency_replay", "Retries answered with the first response", replays);
        single("idempotency_conflict", "Keys used for another request", conflicts);
        let help = "Retries while the first request was running";
        single("idempotency_in_progress", help, in_progress);
        single("idempotency_unknown", "Executions whose outcome became unknown", unknown);
        single("idempotency_expired", "Retries past the retention of their key", expired);
        let Families { over_quota, unprotected, .. } = &families;
        single("idempotency_over_quota", "Requests refused by a quota", over_quota);
        let help = "UNSAFE: requests executed without a claim because the store was down";
        single("idempotency_unprotected", help, unprotected);
        let (ages, cleanup_overdue) = (Family::default(), Gauge::default());
        let help = "Age of the oldest operation in this state";
        registry.register("idempotency_record_age_seconds", help, Family::clone(&ages));
        let help = "Time since a complete round of the sweeper was due";
        registry.register("onceward_cleanup_overdue_seconds", help, cleanup_overdue.clone());
        let archived = Counter::default();
        let help = "Expired records written to the archive";
        registry.register("onceward_archived", help, archived.clone());
        let metrics = Self {
            families,
            operations: RwLock::default(),
            ages,
            cleanup_overdue,
            archived,
            cleanup_due: Mutex::default(),
        };
        metrics.set_oldest_unknown(Duration::ZERO);
        Arc::new(metrics)
    }

    /// Sets the ages of the oldest running operations, and by how much the cleanup is overdue. Call
    /// it before each scrape. Reads no record.
    pub fn refresh(&self, engine: &Engine) {
        let mut running = HashMap::<String, Duration>::new();
        for (operation, age) in engine.oldest_running() {
            let label = self.label(&operation).to_owned();
            let oldest = running.entry(label).or_default();
            *oldest = age.max(*oldest);
        }
        let known = self.operations.read();
        let protected = known.iter().filter(|(_, it)| it.protected.get().is_some());
        for (operation, _) in protected {
            let age = running.get(&**operation).copied().unwrap_or_default();
            let labels = vec![("operation", operation.to_string()), ("state", "running".into())];
            self.ages.get_or_create(&labels).set(seconds(age));
        }
        let overdue = self.cleanup_due.lock().map(|due| due.elapsed());
        self.cleanup_overdue.set(seconds(overdue.unwrap_or_default()));
    }

    /// Sets the age of the oldest operation whose outcome is unknown; zero if there is none.
    pub fn set_oldest_unknown(&self, age: Duration) {
        self.ages.get_or_create(&vec![("state", "unknown".into())]).set(seconds(age));
    }

    /// A [`report`](onceward_core::Sweeper::report) for a sweeper with this pause between rounds. It
    /// also writes the log line that the sweeper's own does.
    pub fn sweeper_report(
        self: &Arc<Self>,
        every: Duration,
    ) -> impl Fn(&SweeperRound) + Send + Sync + use<> {
        let due = move || Some(Instant::now() + every);
        *self.cleanup_due.lock() = due();
        let metrics = Arc::clone(self);
        move |round| {
            if let SweeperRound::Removed(_) = round {
                *metrics.cleanup_due.lock() = due();
            }
            round.log();
        }
    }

    /// Counts records that were written to the archive, for
    /// [`Purger::on_archived`](onceward_core::Purger::on_archived).
    pub fn count_archived(&self, records: u64) {
        self.archived.inc_by(records);
    }

    /// Counts the result of a question about an unknown operation.
    pub fn count_recovery(&self, operation: &str, status: RecoveryStatus) {
        self.protected(operation, |series| series.recoveries.count(status.name()));
    }

    /// The label of an operation.
    fn label<'a>(&self, operation: &'a str) -> &'a str {
        let known = self.operations.read();
        match known.len() < OPERATIONS_MAX || known.contains_key(operation) {
            true => operation,
            false => OTHER,
        }
    }

    /// Returns the series of an operation; those of [`OTHER`] beyond the limit.
    fn operation(&self, name: &str) -> Arc<OperationMetrics> {
        if let Some(operation) = self.operations.read().get(name) {
            return Arc::clone(operation);
        }
        let label = self.label(name);
        Arc::clone(self.operations.write().entry(label.into()).or_default())
    }

    fn protected(&self, name: &str, count: impl FnOnce(&ProtectedSeries)) {
        // Without a clone of the `Arc`, whose counter all threads would contend for.
        let known = self.operations.read();
        if let Some(series) = known.get(name).and_then(|operation| operation.protected.get()) {
            return count(series);
        }
        drop(known);
        let operation = self.operation(name);
        count(
            operation
                .protected
                .get_or_init(|| ProtectedSeries::new(&self.families, self.label(name))),
        );
    }

    fn shadowed(&self, name: &str, count: impl FnOnce(&ShadowSeries)) {
        let operation = self.operation(name);
        let new = || ShadowSeries::new(&self.families, self.label(name));
        count(operation.shadow.get_or_init(new));
    }
}

impl Observer for Metrics {
    fn configured(&self, operation: &str, mode: Mode) {
        match mode {
            Mode::Enforce => self.protected(operation, |_| {}),
            Mode::Shadow => self.shadowed(operation, |_| {}),
        }
    }

    fn observe(&self, operation: &str, event: Event) {
        match event {
            Event::Shadow(decision) => self.shadowed(operation, |it| it.count(decision)),
            event => self.protected(operation, |it| it.count(event)),
        }
    }
}

impl RecoveryObserver for Metrics {
    fn recovered(&self, record: &Record, status: RecoveryStatus) {
        self.count_recovery(record.scope.operation(), status);
    }

    fn replay_checked(&self, record: &Record, verdict: ReplayVerdict) {
        let operation = record.scope.operation();
        self.protected(operation, |series| series.replay_checks.count(verdict.name()));
    }
}

fn seconds(age: Duration) -> i64 {
    i64::try_from(age.as_secs()).unwrap_or(i64::MAX)
}
