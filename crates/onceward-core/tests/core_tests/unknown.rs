//! The status of operations, and finding out what happened to unknown ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::*;
use async_trait::async_trait;
use onceward_core::{
    Ambient, BoxError, Clock, DecisionKind, DecisionLog, Engine, Expiry, Fenced, Finding,
    FullStore, Identity, OperationId, Reconciler, ReconcilerSettings, Record, Rejection,
    ResolveRequest, Resolver, Retention, Settled, Since, StateName, StoreAdmin as _, SystemAmbient,
    Timestamp, UnknownCause, Verdict,
};
use onceward_testkit::clock::SimClock;
use onceward_testkit::faulty::{Call, Fault};

#[tokio::test(start_paused = true)]
async fn an_operation_is_found_by_its_name_and_tells_where_it_stands() {
    let bench = Bench::new();
    let engine = bench.engine();
    let running = permit(&engine, "k").await;
    let name = running.operation();
    let _others = [permit(&engine, "a").await, permit(&engine, "b").await];
    let found = engine.operation(&name).await.unwrap().unwrap();
    assert_eq!((found.id, found.standing, found.attempts), (name, StateName::Running, 1));
    assert_eq!(found.scope, scope());
    assert_eq!(running.complete(outcome("done")).await, Settled::Durable);
    let found = engine.operation(&name).await.unwrap().unwrap();
    assert_eq!((found.standing, found.outcome), (StateName::Completed, Some(outcome("done"))));
    let none = OperationId::draw(&SystemAmbient::new(), &id("k"));
    assert_eq!(engine.operation(&none).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_operation_whose_lease_has_lapsed_is_shown_as_unknown() {
    let bench = Bench::new();
    let (engine, crashed) = (bench.engine(), bench.engine());
    let held = permit(&crashed, "k").await;
    let name = held.operation();
    // A process that has died sends nothing.
    std::mem::forget(held);
    bench.store.on_every(Call::Renew, Fault::Fail);
    tokio::time::sleep(LEASE * 2).await;
    let found = engine.operation(&name).await.unwrap().unwrap();
    assert_eq!(found.standing, StateName::Unknown);
}

#[tokio::test(start_paused = true)]
async fn an_operation_past_its_retention_shows_no_outcome() {
    let bench = Bench::new();
    let minute = Duration::from_secs(60);
    let policy = policy().retention(minute).expiry(Expiry::Tombstone(minute)).build().unwrap();
    let ambient = Arc::new(Surroundings(bench.clock.clone()));
    let engine = Engine::builder(bench.store.clone()).policy(policy).ambient(ambient).build();
    let running = permit(&engine, "k").await;
    let name = running.operation();
    assert_eq!(running.complete(outcome("done")).await, Settled::Durable);
    tokio::time::sleep(minute + minute / 2).await;
    let found = engine.operation(&name).await.unwrap().unwrap();
    assert_eq!((found.standing, found.outcome), (StateName::Expired, None));
    tokio::time::sleep(minute).await;
    assert_eq!(engine.operation(&name).await.unwrap(), None);
}

/// A slow authority that counts questions.
struct Authority {
    asked: AtomicUsize,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    since: Since,
    address: &'static str,
    goes_by_absence: bool,
    word: fn(&Record) -> Result<Verdict, BoxError>,
}

impl Authority {
    /// One that has known every operation from the beginning.
    fn saying(word: fn(&Record) -> Result<Verdict, BoxError>) -> Arc<Self> {
        Arc::new(Self { since: Since::Always, ..Self::new(word) })
    }

    fn new(word: fn(&Record) -> Result<Verdict, BoxError>) -> Self {
        let [asked, at_once, most_at_once] = [const { AtomicUsize::new(0) }; 3];
        let (since, address, goes_by_absence) = (Since::default(), "payments", false);
        Self { asked, at_once, most_at_once, since, address, goes_by_absence, word }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Resolver for Authority {
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        (self.word)(record).map(|verdict| Finding::new(verdict, "row 7 of payments"))
    }

    fn name(&self) -> &str {
        "payments table"
    }

    fn address(&self) -> String {
        self.address.to_owned()
    }

    fn since(&self) -> Since {
        self.since
    }

    fn goes_by_absence(&self) -> bool {
        self.goes_by_absence
    }
}

/// The store's clock, and randomness.
struct Surroundings(SimClock);

impl Clock for Surroundings {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

impl Ambient for Surroundings {
    fn random(&self) -> u128 {
        SystemAmbient::new().random()
    }
}

fn settings() -> ReconcilerSettings {
    ReconcilerSettings {
        backoff: Duration::from_secs(60),
        backoff_max: Duration::from_secs(600),
        ..ReconcilerSettings::default()
    }
}

fn reconciler(bench: &Bench, authority: &Arc<Authority>) -> Reconciler {
    let (store, authority) = (Arc::clone(&bench.store), Arc::clone(authority));
    Reconciler::new(store as Arc<dyn FullStore>, authority, Identity::unkeyed())
        .ambient(Arc::new(Surroundings(bench.clock.clone())))
        .settings(settings())
}

/// An operation whose outcome is unknown.
async fn unknown(engine: &Engine, key: &str) -> OperationId {
    let permit = permit(engine, key).await;
    let operation = permit.operation();
    assert_eq!(permit.unknown(UnknownCause::Reported(None)).await, Settled::Durable);
    operation
}

#[tokio::test(start_paused = true)]
async fn what_had_happened_is_completed_and_the_evidence_is_kept() {
    let bench = Bench::new();
    let engine = bench.engine();
    let operation = unknown(&engine, "k").await;
    let authority = Authority::saying(|_| Ok(Verdict::Happened(outcome("paid"))));
    let round = Arc::new(reconciler(&bench, &authority)).run_once().await;
    assert_eq!((round.unknown, round.happened, round.oldest), (1, 1, None));
    assert_eq!(replayed(&engine, "k").await, outcome("paid"));

    let decisions = DecisionLog::new(bench.store.clone(), Identity::unkeyed());
    let about = decisions.about(&operation).await.unwrap();
    let [written] = &about[..] else { panic!("{about:?}") };
    assert_eq!(written.decision.decided, DecisionKind::Happened);
    assert_eq!(written.decision.by, "payments table");
    assert_eq!(written.decision.evidence, "row 7 of payments");
    assert_eq!(written.at, bench.clock.now());
    assert_eq!(decisions.list(None, 10).await.unwrap().0, about);
}

/// A table got a column for operations, and the resolver that reads it found no row about
/// operations claimed before: it freed their keys, and they were charged again.
#[tokio::test(start_paused = true)]
async fn a_resolver_frees_no_operation_that_is_older_than_itself() {
    let bench = Bench::new();
    let engine = bench.engine();
    unknown(&engine, "old").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let finds_nothing = || Arc::new(Authority::new(|_| Ok(Verdict::DidNotHappen)));
    let first = Arc::new(reconciler(&bench, &finds_nothing()));
    first.register().await.unwrap();
    unknown(&engine, "new").await;
    let round = first.run_once().await;
    assert_eq!((round.did_not_happen, round.still_unknown), (1, 1), "{round:?}");
    assert_eq!(bench.standing("old").await, Some(StateName::Unknown));
    assert_eq!(bench.standing("new").await, Some(StateName::Released));

    // The store keeps the time of the first use, for restarts and other processes.
    tokio::time::sleep(settings().backoff).await;
    unknown(&engine, "newer").await;
    let round = Arc::new(reconciler(&bench, &finds_nothing())).run_once().await;
    assert_eq!((round.did_not_happen, round.still_unknown), (1, 1), "{round:?}");

    // An operation with a row did happen, however old it is.
    tokio::time::sleep(settings().backoff * 4).await;
    let finds = Arc::new(Authority::new(|_| Ok(Verdict::Happened(outcome("paid")))));
    assert_eq!(Arc::new(reconciler(&bench, &finds)).run_once().await.happened, 1);
    assert_eq!(replayed(&engine, "old").await, outcome("paid"));
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_looks_elsewhere_begins_anew() {
    let bench = Bench::new();
    let engine = bench.engine();
    let at = |address: &'static str| {
        let word = |_: &Record| Ok(Verdict::DidNotHappen);
        Arc::new(reconciler(&bench, &Arc::new(Authority { address, ..Authority::new(word) })))
    };
    at("payments").register().await.unwrap();
    unknown(&engine, "k").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(at("refunds").run_once().await.still_unknown, 1);
    tokio::time::sleep(settings().backoff).await;
    assert_eq!(at("payments").run_once().await.did_not_happen, 1);
}

#[tokio::test(start_paused = true)]
async fn a_resolver_answers_since_the_time_that_it_says() {
    let bench = Bench::new();
    let engine = bench.engine();
    unknown(&engine, "before").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let since = Since::At(bench.clock.now());
    unknown(&engine, "since").await;
    let authority = Authority { since, ..Authority::new(|_| Ok(Verdict::DidNotHappen)) };
    Arc::new(reconciler(&bench, &Arc::new(authority))).run_once().await;
    assert_eq!(bench.standing("before").await, Some(StateName::Unknown));
    assert_eq!(bench.standing("since").await, Some(StateName::Released));
}

/// A query on the wrong table is valid and returns no row for any operation.
#[tokio::test(start_paused = true)]
async fn absence_is_evidence_only_where_completed_operations_are_recognised() {
    let bench = Bench::new();
    let engine = bench.engine();
    let reading = |word| {
        let authority = Authority { goes_by_absence: true, ..Authority::new(word) };
        Arc::new(reconciler(&bench, &Arc::new(authority)))
    };
    let wrong_table = reading(|_| Ok(Verdict::DidNotHappen));
    wrong_table.register().await.unwrap();
    unknown(&engine, "k").await;
    assert_eq!(wrong_table.run_once().await.still_unknown, 1, "nothing is completed");
    for key in 0..20 {
        let done = permit(&engine, &format!("done {key}")).await;
        assert_eq!(done.complete(outcome("paid")).await, Settled::Durable);
    }
    tokio::time::sleep(settings().backoff).await;
    assert_eq!(wrong_table.run_once().await.still_unknown, 1, "nothing is recognised");
    assert_eq!(bench.standing("k").await, Some(StateName::Unknown));

    tokio::time::sleep(settings().backoff * 4).await;
    let right_table = reading(|record| match record.state.name() {
        StateName::Completed => Ok(Verdict::Happened(outcome("paid"))),
        _ => Ok(Verdict::DidNotHappen),
    });
    assert_eq!(right_table.run_once().await.did_not_happen, 1);
}

#[tokio::test(start_paused = true)]
async fn what_had_not_happened_is_free_again() {
    let bench = Bench::new();
    let engine = bench.engine();
    unknown(&engine, "k").await;
    let authority = Authority::saying(|_| Ok(Verdict::DidNotHappen));
    let round = Arc::new(reconciler(&bench, &authority)).run_once().await;
    assert_eq!((round.unknown, round.did_not_happen), (1, 1), "{round:?}");
    let _runs_again = permit(&engine, "k").await;
}

#[tokio::test(start_paused = true)]
async fn what_stays_unknown_is_asked_about_less_and_less_often() {
    let bench = Bench::new();
    unknown(&bench.engine(), "k").await;
    let authority = Authority::saying(|_| Ok(Verdict::StillUnknown));
    let reconciler = Arc::new(reconciler(&bench, &authority));
    let mut asked_at = Vec::new();
    for second in 0..3_600 {
        let before = authority.asked();
        reconciler.run_once().await;
        if authority.asked() > before {
            asked_at.push(second);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let rests: Vec<_> = asked_at.windows(2).map(|pair| (pair[1] - pair[0]) / 10 * 10).collect();
    assert_eq!(rests[..5], [60, 120, 240, 480, 600], "{asked_at:?}");
    assert!(rests[5..].iter().all(|rest| *rest == 600), "{rests:?}");
    assert!(matches!(rejected(&bench.engine(), "k").await, Rejection::Unknown { .. }));
}

#[tokio::test(start_paused = true)]
async fn of_several_nodes_one_asks_at_a_time() {
    let bench = Bench::new();
    let engine = bench.engine();
    for key in 0..10 {
        unknown(&engine, &format!("{key}")).await;
    }
    let authority = Authority::saying(|_| Ok(Verdict::DidNotHappen));
    let nodes = [(); 3].map(|()| Arc::new(reconciler(&bench, &authority)));
    let [a, b, c] = &nodes;
    let rounds: [_; 3] = tokio::join!(a.run_once(), b.run_once(), c.run_once()).into();
    assert_eq!(authority.asked(), 10, "{rounds:?}");
    assert_eq!(rounds.iter().map(|round| round.did_not_happen).sum::<usize>(), 10);
    assert!(authority.most_at_once.load(Ordering::SeqCst) <= 10);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_dies_while_it_asks_is_followed_by_another() {
    let bench = Bench::new();
    let engine = bench.engine();
    unknown(&engine, "k").await;
    let authority = Authority::saying(|_| Ok(Verdict::DidNotHappen));
    let dies = Arc::new(reconciler(&bench, &authority));
    let asking = tokio::spawn(async move { dies.run_once().await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    asking.abort();
    let next = Arc::new(reconciler(&bench, &authority));
    assert_eq!(next.run_once().await.resting, 1);
    tokio::time::sleep(settings().patience * 3 + settings().backoff).await;
    let round = next.run_once().await;
    assert_eq!((round.unknown, round.did_not_happen), (1, 1), "{round:?}");
}

#[tokio::test(start_paused = true)]
async fn errors_and_panics_of_the_resolver_and_the_store_end_nothing() {
    let bench = Bench::new();
    let engine = bench.engine();
    unknown(&engine, "panics").await;
    unknown(&engine, "fails").await;
    let fails = Authority::saying(|record| {
        assert!(record.id != id("panics"), "a resolver with a bug");
        Err("the provider is down".into())
    });
    let round = Arc::new(reconciler(&bench, &fails)).run_once().await;
    assert_eq!((round.unknown, round.still_unknown), (2, 2), "{round:?}");

    bench.store.on_next(1, Call::Admin, Fault::Fail);
    let knows = Authority::saying(|_| Ok(Verdict::Happened(outcome("paid"))));
    let reconciler = Arc::new(reconciler(&bench, &knows));
    assert!(reconciler.run_once().await.failed.is_some());
    tokio::time::sleep(settings().backoff).await;
    assert_eq!(reconciler.run_once().await.happened, 2);
}

#[tokio::test(start_paused = true)]
async fn a_round_asks_no_more_than_its_budget() {
    let bench = Bench::new();
    let engine = bench.engine();
    for key in 0..20 {
        unknown(&engine, &format!("{key}")).await;
    }
    let authority = Authority::saying(|_| Ok(Verdict::DidNotHappen));
    let few = ReconcilerSettings { budget: 5, at_once: 2, ..settings() };
    let reconciler = Arc::new(reconciler(&bench, &authority).settings(few));
    let round = reconciler.run_once().await;
    assert_eq!(authority.asked(), 5, "{round:?}");
    assert_eq!(round.did_not_happen + round.over_budget, 20, "{round:?}");
    assert!(authority.most_at_once.load(Ordering::SeqCst) <= 2);
    assert_eq!(bench.store.stats().await.unwrap().by_state[StateName::Running as usize], 0);
}

#[tokio::test(start_paused = true)]
async fn a_round_reads_all_pages_and_leaves_running_operations_alone() {
    let bench = Bench::new();
    let engine = bench.engine();
    for index in 0..250 {
        unknown(&engine, &format!("k{index}")).await;
    }
    let running = permit(&engine, "running").await;
    let authority = Authority::saying(|_| Ok(Verdict::Happened(outcome("found"))));
    let round = Arc::new(reconciler(&bench, &authority)).run_once().await;
    assert_eq!((round.unknown, round.happened), (250, 250), "{round:?}");
    assert_eq!(running.check(), Ok(()));
}

/// The simulator found a reconciler that waited for a lost reply for good.
#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_ends_the_round_and_not_the_reconciler() {
    let bench = Bench::new();
    unknown(&bench.engine(), "k").await;
    let authority = Authority::saying(|_| Ok(Verdict::Happened(outcome("paid"))));
    let reconciler = Arc::new(reconciler(&bench, &authority));
    bench.store.on_next(1, Call::Admin, Fault::Hang);
    assert!(reconciler.run_once().await.failed.is_some());
    assert_eq!(reconciler.run_once().await.happened, 1);
}

/// An authority so slow that an operator decides meanwhile.
struct TooLate(Arc<dyn FullStore>);

#[async_trait]
impl Resolver for TooLate {
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError> {
        let retention = Retention { keep: Duration::from_secs(60), tombstone: Duration::ZERO };
        let (id, fence, verdict) = (record.id, record.fence, Verdict::DidNotHappen);
        let decided = self.0.resolve(&ResolveRequest { id, fence, verdict, retention }).await?;
        assert_eq!(decided, Fenced::Applied(()));
        Ok(Finding::new(Verdict::Happened(outcome("late")), "found at last"))
    }
}

#[tokio::test(start_paused = true)]
async fn evidence_that_comes_too_late_changes_nothing_and_is_written_down_as_such() {
    let bench = Bench::new();
    let operation = unknown(&bench.engine(), "k").await;
    let store = Arc::clone(&bench.store) as Arc<dyn FullStore>;
    let resolver = Arc::new(TooLate(Arc::clone(&store)));
    let reconciler = Arc::new(Reconciler::new(Arc::clone(&store), resolver, Identity::unkeyed()));
    let round = reconciler.run_once().await;
    assert_eq!((round.happened, round.settled_elsewhere), (0, 1), "{round:?}");
    assert_eq!(bench.standing("k").await, Some(StateName::Released));
    let trail = DecisionLog::new(store, Identity::unkeyed()).about(&operation).await.unwrap();
    let decided: Vec<_> = trail.iter().map(|written| written.decision.decided).collect();
    assert_eq!(decided, [DecisionKind::Happened, DecisionKind::Superseded]);
}
