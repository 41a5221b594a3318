//! `#[idempotent]` on functions of every form, as their callers see them.

#![deny(warnings, reason = "what the macro writes must not warn in a user's code")]

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::{
    BeginError, Difference, Disposition, DownstreamKey, Engine, Expiry, Grant, Key, MemoryLimits,
    MemoryStore, Policy, PolicyBuilder, Refused, Rejection, idempotent,
};
use onceward_testkit::clock::SimClock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
enum PaymentError {
    #[error("declined: {0}")]
    Declined(String),
    #[error("busy for {seconds} s")]
    Busy { seconds: u32 },
    #[error("timed out")]
    TimedOut,
    #[error("other")]
    Other,
    #[error(transparent)]
    #[serde(skip)]
    Refused(#[from] Refused),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Charge {
    tenant: String,
    key: String,
    cents: u32,
}

fn charge(key: &str, cents: u32) -> Charge {
    Charge { tenant: "acme".into(), key: key.into(), cents }
}

/// Counts runs; the n-th run gets n.
#[derive(Debug, Clone, Default)]
struct Runs(Arc<AtomicUsize>);

impl Runs {
    fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn engine() -> Engine {
    engine_with(Policy::builder())
}

/// An engine whose store follows tokio's paused time.
fn engine_with(policy: PolicyBuilder) -> Engine {
    let store = MemoryStore::with(MemoryLimits::default(), Arc::new(SimClock::new()));
    Engine::builder(Arc::new(store)).policy(policy.build().unwrap()).build()
}

fn refused<T: std::fmt::Debug>(result: Result<T, PaymentError>) -> Refused {
    match result.unwrap_err() {
        PaymentError::Refused(refused) => refused,
        other => panic!("expected a refusal, got {other}"),
    }
}

fn is_mismatch<T: std::fmt::Debug>(result: Result<T, PaymentError>) -> bool {
    matches!(refused(result), Refused::Rejected(Rejection::Mismatch { .. }))
}

/// Lets background tasks run, in almost no time.
async fn settle_down() {
    sleep(Duration::from_millis(50)).await;
}

// A cashier whose errors mean different things ----------------------------------------------

struct Cashier {
    engine: Engine,
    runs: Runs,
}

impl Cashier {
    fn new(engine: Engine) -> Self {
        Self { engine, runs: Runs::default() }
    }

    /// Charges, or fails depending on the amount.
    #[idempotent(
        operation = "payments.create",
        key = request.key,
        tenant = &request.tenant,
        ttl = "24h",
        release(PaymentError::Busy { .. }),
        unknown(PaymentError::TimedOut),
        keep(PaymentError::Declined(_)),
    )]
    async fn charge(
        &self,
        request: &Charge,
        #[grant] grant: Grant,
    ) -> Result<String, PaymentError> {
        let run = self.runs.next();
        if request.cents == 3 {
            return Err(PaymentError::Other);
        }
        match request.cents {
            0 => Err(PaymentError::Declined(format!("run {run}"))),
            1 if run == 1 => Err(PaymentError::Busy { seconds: 3 }),
            2 => Err(PaymentError::TimedOut),
            4 => panic!("boom"),
            5 => {
                sleep(Duration::from_secs(5)).await;
                Ok("slow".to_owned())
            }
            cents => Ok(format!("{cents} by {}", grant.downstream_key())),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_key_runs_once_and_returns_the_first_value() {
    let cashier = Cashier::new(engine());
    let first = cashier.charge(&charge("k", 4200)).await.unwrap();
    let retry = cashier.charge(&charge("k", 4200)).await.unwrap();
    assert_eq!(first, retry);
    assert!(first.starts_with("4200 by ow_"));
    assert_eq!(cashier.runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn other_arguments_under_the_key_are_refused() {
    let cashier = Cashier::new(engine());
    cashier.charge(&charge("k", 4200)).await.unwrap();
    assert!(is_mismatch(cashier.charge(&charge("k", 9900)).await));
    assert_eq!(cashier.runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_released_error_runs_again() {
    let cashier = Cashier::new(engine());
    let busy = cashier.charge(&charge("k", 1)).await;
    assert!(matches!(busy, Err(PaymentError::Busy { seconds: 3 })));
    cashier.charge(&charge("k", 1)).await.unwrap();
    assert_eq!(cashier.runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_kept_error_is_replayed_as_it_was() {
    let cashier = Cashier::new(engine_with(Policy::builder().failures(Disposition::Release)));
    for _ in 0..3 {
        let declined = cashier.charge(&charge("k", 0)).await;
        assert!(matches!(declined, Err(PaymentError::Declined(why)) if why == "run 1"));
    }
    assert_eq!(cashier.runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_stays_unknown() {
    let cashier = Cashier::new(engine());
    let timed_out = cashier.charge(&charge("k", 2)).await;
    assert!(matches!(timed_out, Err(PaymentError::TimedOut)), "the one who ran it sees its error");
    let refused = refused(cashier.charge(&charge("k", 2)).await);
    assert!(matches!(refused, Refused::Unknown { .. }) && !refused.is_retryable());
    assert_eq!(cashier.runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_policy_decides_about_errors_that_no_pattern_names() {
    for (disposition, runs) in [(Disposition::Keep, 1), (Disposition::Release, 2)] {
        let cashier = Cashier::new(engine_with(Policy::builder().failures(disposition)));
        for _ in 0..2 {
            let other = cashier.charge(&charge("k", 3)).await;
            assert!(matches!(other, Err(PaymentError::Other)));
        }
        assert_eq!(cashier.runs.count(), runs, "{disposition:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_twenty_concurrent_callers_one_executes_and_all_get_its_value() {
    let engine = engine_with(Policy::builder().wait(Duration::from_secs(60)));
    let cashier = Arc::new(Cashier::new(engine));
    let callers: Vec<_> = (0..20)
        .map(|_| Arc::clone(&cashier))
        .map(|cashier| tokio::spawn(async move { cashier.charge(&charge("k", 5)).await }))
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap(), "slow");
    }
    assert_eq!(cashier.runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_of_what_runs_is_told_to_come_again() {
    let cashier = Arc::new(Cashier::new(engine()));
    let running = tokio::spawn({
        let cashier = Arc::clone(&cashier);
        async move { cashier.charge(&charge("k", 5)).await }
    });
    settle_down().await;
    let busy = refused(cashier.charge(&charge("k", 5)).await);
    assert!(busy.is_retryable() && busy.retry_after().is_some() && busy.operation().is_some());
    assert_eq!(running.await.unwrap().unwrap(), "slow");
}

#[tokio::test(start_paused = true)]
async fn a_caller_of_borrowing_work_that_goes_away_leaves_it_unknown() {
    let cashier = Cashier::new(engine());
    let request = charge("k", 5);
    assert!(timeout(Duration::from_secs(1), cashier.charge(&request)).await.is_err());
    settle_down().await;
    assert!(matches!(refused(cashier.charge(&request).await), Refused::Unknown { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_borrowing_work_reaches_the_caller_and_leaves_it_unknown() {
    let cashier = Arc::new(Cashier::new(engine()));
    let panicking = Arc::clone(&cashier);
    let panicked = tokio::spawn(async move { panicking.charge(&charge("k", 4)).await }).await;
    assert!(panicked.unwrap_err().is_panic());
    settle_down().await;
    assert!(matches!(refused(cashier.charge(&charge("k", 4)).await), Refused::Unknown { .. }));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_key_or_no_tenant_is_refused_before_anything_runs() {
    let cashier = Cashier::new(engine());
    let no_key = refused(cashier.charge(&charge("", 7)).await);
    assert!(matches!(no_key, Refused::Key(_)) && !no_key.is_retryable());
    let no_tenant = Charge { tenant: String::new(), ..charge("k", 7) };
    assert!(matches!(refused(cashier.charge(&no_tenant).await), Refused::Scope(_)));
    assert_eq!(cashier.runs.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn tenants_have_their_own_keys() {
    let cashier = Cashier::new(engine());
    cashier.charge(&charge("k", 7)).await.unwrap();
    let other = Charge { tenant: "umbrella".into(), ..charge("k", 8) };
    cashier.charge(&other).await.unwrap();
    assert_eq!(cashier.runs.count(), 2);
}

// Retention ---------------------------------------------------------------------------------

const HOUR: Duration = Duration::from_secs(3600);

#[idempotent(operation = "short", key = key, single_tenant, ttl = "1h30m", skip(runs))]
async fn kept_for_ninety_minutes(
    engine: &Engine,
    key: &str,
    runs: &Runs,
) -> Result<usize, PaymentError> {
    Ok(runs.next())
}

#[tokio::test(start_paused = true)]
async fn a_functions_ttl_counts_and_not_the_engines() {
    let engine = engine_with(Policy::builder().expiry(Expiry::Forget));
    let runs = Runs::default();
    for (pass, runs_so_far) in [(Duration::ZERO, 1), (HOUR, 1), (HOUR, 2)] {
        sleep(pass).await;
        let run = kept_for_ninety_minutes(&engine, "k", &runs).await.unwrap();
        assert_eq!(run, runs_so_far);
    }
}

#[tokio::test(start_paused = true)]
async fn a_ttl_shorter_than_the_lease_is_refused() {
    let engine = engine_with(Policy::builder().lease(2 * HOUR));
    let runs = Runs::default();
    let refused = refused(kept_for_ninety_minutes(&engine, "k", &runs).await);
    assert!(matches!(refused, Refused::Policy(_)) && runs.count() == 0);
}

// Work in its own task -----------------------------------------------------------------------

/// Borrows only the engine, so the work runs in its own task.
#[idempotent(operation = "owned", key = request.key, tenant = request.tenant, skip(runs))]
async fn owned(engine: &Engine, request: Charge, runs: Runs) -> Result<u32, PaymentError> {
    runs.next();
    if request.cents == 4 {
        panic!("boom");
    }
    sleep(Duration::from_secs(5)).await;
    Ok(request.cents)
}

#[idempotent(operation = "owned", key = request.key, tenant = request.tenant, skip(runs), inline)]
async fn forced(engine: Engine, request: Charge, runs: Runs) -> Result<u32, PaymentError> {
    runs.next();
    sleep(Duration::from_secs(5)).await;
    Ok(request.cents)
}

#[tokio::test(start_paused = true)]
async fn work_that_owns_its_arguments_completes_without_its_caller() {
    let (engine, runs) = (engine(), Runs::default());
    let call = || owned(&engine, charge("k", 7), runs.clone());
    assert!(timeout(Duration::from_secs(1), call()).await.is_err());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(call().await.unwrap(), 7);
    assert_eq!(runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn work_that_owns_its_arguments_can_be_bound_to_its_caller() {
    let (engine, runs) = (engine(), Runs::default());
    let call = || forced(engine.clone(), charge("k", 7), runs.clone());
    assert!(timeout(Duration::from_secs(1), call()).await.is_err());
    settle_down().await;
    assert!(matches!(refused(call().await), Refused::Unknown { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_task_of_its_own_is_an_unknown_outcome() {
    let (engine, runs) = (engine(), Runs::default());
    for _ in 0..2 {
        let panicked = refused(owned(&engine, charge("k", 4), runs.clone()).await);
        assert!(matches!(panicked, Refused::Unknown { .. }));
        settle_down().await;
    }
    assert_eq!(runs.count(), 1);
}

// Forms of functions ------------------------------------------------------------------------

/// A ledger with a method of every kind.
#[derive(Clone)]
struct Ledger {
    ledger_engine: Arc<Engine>,
    runs: Runs,
    entries: Vec<u32>,
}

impl Ledger {
    fn new() -> Self {
        let (runs, entries) = (Runs::default(), Vec::new());
        Self { ledger_engine: Arc::new(engine()), runs, entries }
    }

    #[idempotent(operation = "mutable", key = key, single_tenant, engine = self.ledger_engine)]
    async fn mutable(&mut self, key: Key, mut cents: u32) -> Result<usize, PaymentError> {
        cents += 1;
        self.entries.push(cents);
        Ok(self.runs.next())
    }

    #[idempotent(operation = "shared", key = key, single_tenant, engine = self.ledger_engine)]
    async fn shared(self: Arc<Self>, key: Uuid, cents: u32) -> Result<usize, PaymentError> {
        sleep(Duration::from_secs(5)).await;
        Ok(self.runs.next())
    }

    #[idempotent(operation = "taken", key = key, single_tenant, engine = self.ledger_engine)]
    async fn taken(self, key: Cow<'static, str>) -> Result<usize, PaymentError> {
        Ok(self.runs.next())
    }

    #[idempotent(operation = "new", key = "the only", single_tenant, engine = ledger, skip(runs))]
    async fn open(ledger: &Engine, runs: &Runs) -> Result<usize, PaymentError> {
        Ok(runs.next())
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_may_change_itself() {
    let mut ledger = Ledger::new();
    for _ in 0..2 {
        assert_eq!(ledger.mutable(Key::new("k").unwrap(), 7).await.unwrap(), 1);
    }
    assert_eq!(ledger.entries, [8]);
}

#[tokio::test(start_paused = true)]
async fn a_method_on_a_shared_self_completes_without_its_caller() {
    let ledger = Arc::new(Ledger::new());
    let call = || Arc::clone(&ledger).shared(Uuid::nil(), 7);
    assert!(timeout(Duration::from_secs(1), call()).await.is_err());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(call().await.unwrap(), 1);
    assert_eq!(ledger.runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_method_may_take_itself_and_an_associated_function_has_none() {
    let ledger = Ledger::new();
    for _ in 0..2 {
        assert_eq!(ledger.clone().taken("k".into()).await.unwrap(), 1);
    }
    for _ in 0..2 {
        assert_eq!(Ledger::open(&ledger.ledger_engine, &ledger.runs).await.unwrap(), 2);
    }
}

trait Shop {
    async fn order(&self, article: &str, key: &str) -> Result<usize, PaymentError>;
}

impl Shop for Cashier {
    #[idempotent(operation = "shop.order", key = key, single_tenant)]
    async fn order(&self, article: &str, key: &str) -> Result<usize, PaymentError> {
        let run = self.runs.next();
        self.charge(&charge(article, 7)).await?;
        Ok(run)
    }
}

#[tokio::test(start_paused = true)]
async fn an_implementation_of_a_trait_runs_once() {
    let cashier = Cashier::new(engine());
    for _ in 0..2 {
        assert_eq!(cashier.order("tea", "k").await.unwrap(), 1);
    }
    assert!(is_mismatch(cashier.order("coffee", "k").await));
}

#[async_trait::async_trait]
trait DynShop: Send + Sync {
    async fn sell(&self, article: &str, key: &str) -> Result<(usize, String), PaymentError>;
    async fn close(self: Arc<Self>, key: String) -> Result<usize, PaymentError>;
}

#[async_trait::async_trait]
impl DynShop for Cashier {
    #[idempotent(operation = "shop.sell", key = key, single_tenant, release(PaymentError::Busy { .. }))]
    async fn sell(
        &self,
        article: &str,
        key: &str,
        #[grant] grant: Grant,
    ) -> Result<(usize, String), PaymentError> {
        let run = self.runs.next();
        self.charge(&charge(article, 7)).await?;
        Ok((run, grant.downstream_key().to_string()))
    }

    #[idempotent(operation = "shop.close", key = key, single_tenant)]
    async fn close(self: Arc<Self>, key: String) -> Result<usize, PaymentError> {
        Ok(self.runs.next())
    }
}

#[tokio::test(start_paused = true)]
async fn an_implementation_under_async_trait_runs_once() {
    let shop: Arc<dyn DynShop> = Arc::new(Cashier::new(engine()));
    let first = shop.sell("tea", "k").await.unwrap();
    assert_eq!(shop.sell("tea", "k").await.unwrap(), first);
    assert!(is_mismatch(shop.sell("coffee", "k").await));
    let closed = Arc::clone(&shop).close("k".into()).await.unwrap();
    assert_eq!(shop.close("k".into()).await.unwrap(), closed);
}

#[idempotent(operation = "generic", key = key, single_tenant, skip(runs))]
async fn generic<'a, T, const N: usize>(
    engine: &Engine,
    key: &'a str,
    values: [T; N],
    tag: impl Serialize + Into<String>,
    runs: &'a Runs,
) -> Result<(Vec<T>, String), PaymentError>
where
    T: Serialize + DeserializeOwned,
    [T; N]: Serialize,
{
    runs.next();
    Ok((values.into_iter().collect(), tag.into()))
}

#[idempotent(operation = "generic", key = key, single_tenant, skip(runs))]
async fn generic_in_a_task<T>(
    engine: Engine,
    key: &'static str,
    value: T,
    runs: Runs,
) -> Result<T, PaymentError>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    runs.next();
    Ok(value)
}

#[tokio::test(start_paused = true)]
async fn generic_functions_run_once() {
    let (engine, runs) = (engine(), Runs::default());
    for _ in 0..2 {
        let (values, tag) = generic(&engine, "k", [1_u8, 2], "tag", &runs).await.unwrap();
        assert_eq!((values.as_slice(), tag.as_str()), (&[1, 2][..], "tag"));
    }
    for _ in 0..2 {
        let value = generic_in_a_task(engine.clone(), "other", 7, runs.clone()).await;
        assert_eq!(value.unwrap(), 7);
    }
    assert_eq!(runs.count(), 2);
}

#[derive(Serialize)]
struct Transfer {
    from: u32,
    to: u32,
    note: &'static str,
}

#[idempotent(operation = "patterns", key = format!("{from}-{to}"), single_tenant)]
async fn patterns(
    engine: &Engine,
    Transfer { from, to, .. }: Transfer,
    (a, mut b): (u32, u32),
    _: bool,
) -> Result<u32, PaymentError> {
    b += a;
    Ok(from + to + b)
}

#[tokio::test(start_paused = true)]
async fn arguments_that_are_taken_apart_count_as_a_whole() {
    let engine = engine();
    let transfer = |note| Transfer { from: 1, to: 2, note };
    for _ in 0..2 {
        assert_eq!(patterns(&engine, transfer("a"), (3, 4), true).await.unwrap(), 10);
    }
    assert!(is_mismatch(patterns(&engine, transfer("b"), (3, 4), true).await));
    assert!(is_mismatch(patterns(&engine, transfer("a"), (3, 4), false).await));
}

/// Local names of the macro's output are arguments here, and one is a raw name.
#[idempotent(operation = "hygiene", key = call, single_tenant)]
async fn names(
    engine: &Engine,
    call: &str,
    arguments: u32,
    future: u32,
    r#type: u32,
) -> Result<u32, PaymentError> {
    let error = arguments + future + r#type;
    Ok(error)
}

#[idempotent(operation = "hygiene", key = call, single_tenant)]
async fn other_order(
    engine: &Engine,
    r#type: u32,
    future: u32,
    arguments: u32,
    call: &str,
) -> Result<u32, PaymentError> {
    Ok(arguments + future + r#type + 100)
}

#[idempotent(operation = "hygiene", key = call, single_tenant)]
async fn renamed(
    engine: &Engine,
    call: &str,
    arguments: u32,
    future: u32,
    kind: u32,
) -> Result<u32, PaymentError> {
    Ok(arguments + future + kind)
}

#[tokio::test(start_paused = true)]
async fn the_order_of_arguments_does_not_matter_and_their_names_do() {
    let engine = engine();
    assert_eq!(names(&engine, "k", 1, 2, 3).await.unwrap(), 6);
    assert_eq!(other_order(&engine, 3, 2, 1, "k").await.unwrap(), 6);
    assert!(is_mismatch(renamed(&engine, "k", 1, 2, 3).await));
}

type Answer<T> = std::result::Result<T, PaymentError>;

/// Other attributes on either side, an alias as the return type, rules with a guard and rules
/// that cover every error, a caller, a key that is not part of the fingerprint.
#[must_use = "it may have failed"]
#[tracing::instrument(skip_all)]
#[idempotent(
    operation = "attributes",
    key = key,
    tenant = "acme",
    caller = caller.to_string(),
    skip(key, runs),
    release(PaymentError::Refused(inner) if inner.is_retryable()),
    unknown(PaymentError::Refused(_) | PaymentError::TimedOut, PaymentError::Other),
    keep(_)
)]
#[tracing::instrument(level = "debug", skip_all)]
async fn attributes(
    engine: &Engine,
    key: &DownstreamKey,
    caller: u32,
    #[allow(clippy::ptr_arg, reason = "an argument's attribute")] what: &str,
    runs: &Runs,
) -> Answer<usize> {
    #![allow(clippy::let_and_return, reason = "an inner attribute")]
    let run = runs.next();
    match what {
        "draining" => Err(Refused::from(BeginError::Draining))?,
        "mismatch" => {
            Err(Refused::from(Rejection::Mismatch { difference: Difference::default() }))?
        }
        _ => Ok(run),
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_looks_inside_of_an_error() {
    let (engine, key) = (engine(), DownstreamKey::of(&Uuid::nil().into()));
    for (caller, what, times) in [(1, "draining", 2), (2, "mismatch", 1)] {
        let runs = Runs::default();
        for _ in 0..2 {
            let _refused = refused(attributes(&engine, &key, caller, what, &runs).await);
        }
        assert_eq!(runs.count(), times, "{what}");
    }
}

/// Calls another idempotent function, with a key that is the same on each attempt.
#[idempotent(operation = "nested", key = key, single_tenant, skip(runs), release(PaymentError::Busy { .. }))]
async fn nested(
    engine: &Engine,
    key: &str,
    runs: &Runs,
    #[grant] grant: Grant,
) -> Answer<(usize, u32)> {
    let inner = attributes(engine, &grant.downstream_key(), 1, "inner", runs).await?;
    match grant.attempt() {
        3 => Ok((inner, grant.attempt())),
        attempt => Err(PaymentError::Busy { seconds: attempt }),
    }
}

#[tokio::test(start_paused = true)]
async fn the_downstream_key_is_the_same_on_each_attempt() {
    let (engine, runs) = (engine(), Runs::default());
    for attempt in 1..=2 {
        let busy = nested(&engine, "k", &runs).await;
        assert!(matches!(busy, Err(PaymentError::Busy { seconds }) if seconds == attempt));
    }
    assert_eq!(nested(&engine, "k", &runs).await.unwrap(), (1, 3));
    assert_eq!(runs.count(), 1, "the inner function recognised its retries");
}

#[tokio::test(start_paused = true)]
async fn callers_have_their_own_keys() {
    let (engine, runs) = (engine(), Runs::default());
    let key = DownstreamKey::of(&Uuid::nil().into());
    assert_eq!(attributes(&engine, &key, 1, "one", &runs).await.unwrap(), 1);
    assert_eq!(attributes(&engine, &key, 2, "other", &runs).await.unwrap(), 2);
    assert_eq!(attributes(&engine, &key, 1, "one", &runs).await.unwrap(), 1);
}
