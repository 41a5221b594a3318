//! Switchovers: no two processes ever rely on different authorities.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, Fenced, FullStore, Holder, RenewRequest, Settlement, Store as _,
    StoreError, StoreErrorKind,
};
use onceward_stores::dual::{DualProblem, DualStore, OpenError, Side, SwitchoverError};
use onceward_testkit::faulty::{Call, Fault};
use tokio::time::sleep;

use super::common::{
    DAY, LEASE, Two, complete, eventually, granted, id, moved, open, outcome, replay, request,
    settle, short,
};

/// The cause of an error of a dual store.
fn problem(error: &StoreError) -> DualProblem {
    let source = error.source.as_deref().expect("a source");
    *source.downcast_ref().unwrap_or_else(|| panic!("{source}"))
}

async fn authority(store: &DualStore) -> Side {
    store.status().await.unwrap().authority
}

#[tokio::test(start_paused = true)]
async fn after_a_switchover_holders_renew_and_settle_and_outcomes_are_replayed() {
    let two = Two::new();
    let (one, other) = (two.process().await.store, two.process().await.store);
    complete(&one, "done before", "done").await;
    let (running, slow) = (granted(&one, "running").await, granted(&other, "slow").await);
    moved(&one).await;
    for store in [&one, &other] {
        assert_eq!(authority(store).await, Side::New);
        assert_eq!(replay(store, "done before").await, "done");
        let claim = store.claim(&request("running")).await.unwrap();
        assert!(matches!(claim, Claim::Running { .. }), "{claim:?}");
    }
    let lease = Duration::from_secs(30);
    let renewed = other.renew(&RenewRequest { id: id("slow"), holder: slow, lease }).await.unwrap();
    assert!(matches!(renewed, Fenced::Applied(_)), "{renewed:?}");
    for (store, key, holder) in [(&one, "running", running), (&other, "slow", slow)] {
        let done = Settlement::Complete(outcome(key));
        assert_eq!(settle(store, key, holder, done, DAY).await.unwrap(), Fenced::Applied(()));
        assert_eq!(replay(&*two.new, key).await, key, "by the new one");
        assert_eq!(replay(&*two.old, key).await, key, "and the old one follows");
    }
}

#[tokio::test(start_paused = true)]
async fn it_goes_there_and_back_any_number_of_times() {
    let two = Two::new();
    let (one, other) = (two.process().await.store, two.process().await.store);
    one.copy(|_| {}).await.unwrap();
    for round in 0..6 {
        let store = if round % 2 == 0 { &one } else { &other };
        complete(store, &format!("key {round}"), "done").await;
        let switched = store.switch_over().await.unwrap();
        assert_eq!(switched.authority, if round % 2 == 0 { Side::New } else { Side::Old });
        assert!(switched.waited < LEASE * 3, "{:?}", switched.waited);
        for earlier in 0..=round {
            assert_eq!(replay(&other, &format!("key {earlier}")).await, "done");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_switches_over_before_everything_was_copied() {
    let two = Two::new();
    complete(&*two.old, "from before the move", "done").await;
    let one = two.process().await.store;
    assert!(matches!(one.switch_over().await, Err(SwitchoverError::NotCopied)));
    moved(&one).await;
    assert_eq!(replay(&*two.new, "from before the move").await, "done");
}

/// A call of a late process, and what happened meanwhile.
struct Late {
    two: Two,
    one: DualStore,
    request: ClaimRequest,
    /// The answer to the late process.
    told: Result<Claim, StoreError>,
    /// The holder of the key at the new authority.
    holder: Holder,
    late: DualStore,
}

/// Delays a claim at `call` of the late process, to the old store or to the new one, for so long
/// that meanwhile the authority changes and another process claims the key.
async fn late_at(call: Call, side: Side) -> Late {
    let two = Two::new();
    let one = two.process().await.store;
    let late = two.process().await;
    // So that the late import counts as late, and not as lagging.
    let patient =
        onceward_stores::dual::Settings { follower_timeout: Duration::from_secs(60), ..short() };
    let (old, new) = (Arc::clone(&late.old), Arc::clone(&late.new));
    let late_store = DualStore::open("a move", old as _, new as _, patient).await.unwrap();
    one.copy(|_| {}).await.unwrap();
    complete(&late_store, "warm", "up").await;

    let way = if side == Side::Old { &late.old } else { &late.new };
    way.on_nth(1, call, Fault::Delay(LEASE * 50));
    let request = request("key");
    let claiming = tokio::spawn({
        let (store, request) = (late_store.clone(), request.clone());
        async move { store.claim(&request).await }
    });
    // The late call has begun, and waits.
    sleep(Duration::from_millis(1)).await;
    let switched = one.switch_over().await.unwrap();
    assert_eq!(switched.authority, Side::New);
    let holder = granted(&one, "key").await;
    assert!(!claiming.is_finished());
    let told = claiming.await.unwrap();
    Late { two, one, request, told, holder, late: late_store }
}

impl Late {
    /// Checks that the late answer does not count, that the late process then sees the holder, and
    /// that the holder is not disturbed.
    async fn assert_harmless(self) {
        let error = self.told.unwrap_err();
        assert!(error.may_have_been_applied(), "{error}");
        assert_eq!(problem(&error), DualProblem::AuthorityChanged);
        let again = self.late.claim(&self.request).await.unwrap();
        assert!(matches!(again, Claim::Running { .. }), "{again:?}");
        let stored = self.two.new.get(&id("key")).await.unwrap().unwrap();
        assert!(stored.held_by(&self.holder), "{stored:?}");
        let done = Settlement::Complete(outcome("by the one"));
        let settled = settle(&self.one, "key", self.holder, done, DAY).await.unwrap();
        assert_eq!(settled, Fenced::Applied(()));
        assert_eq!(replay(&self.late, "key").await, "by the one");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_comes_late_to_the_old_authority_does_not_count() {
    late_at(Call::Claim, Side::Old).await.assert_harmless().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_followed_too_late_does_not_count() {
    // Decided in time, and on its way to the follower when that becomes the authority.
    late_at(Call::Admin, Side::New).await.assert_harmless().await;
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_comes_late_to_the_old_authority_does_not_count_there() {
    let two = Two::new();
    let (one, late) = (two.process().await.store, two.process().await);
    one.copy(|_| {}).await.unwrap();
    let holder = granted(&late.store, "key").await;
    late.old.on_nth(1, Call::Settle, Fault::Delay(LEASE * 50));
    let settling = tokio::spawn({
        let store = late.store.clone();
        async move { settle(&store, "key", holder, Settlement::Complete(outcome("x")), DAY).await }
    });
    sleep(Duration::from_millis(1)).await;
    one.switch_over().await.unwrap();
    let error = settling.await.unwrap().unwrap_err();
    assert!(
        error.may_have_been_applied() && problem(&error) == DualProblem::AuthorityChanged,
        "{error}"
    );
    // Sent again, as engines do, it is settled where it counts.
    let again = settle(&late.store, "key", holder, Settlement::Complete(outcome("x")), DAY).await;
    assert_eq!(again.unwrap(), Fenced::Applied(()));
    assert_eq!(replay(&*two.new, "key").await, "x");
}

/// A process that relies on the old authority when a switchover begins may still get grants there.
/// A switchover that does not wait for that lets both processes be granted: this one by the old
/// authority, and the other by the new one, which does not have the record yet.
#[tokio::test(start_paused = true)]
async fn a_claim_under_way_is_over_before_the_new_authority_grants() {
    let two = Two::new();
    let (one, other) = (two.process().await, two.process().await);
    one.store.copy(|_| {}).await.unwrap();
    complete(&other.store, "warm", "up").await;
    other.old.on_nth(1, Call::Claim, Fault::Delay(LEASE / 8));
    let claiming = tokio::spawn({
        let store = other.store.clone();
        async move { store.claim(&request("key")).await }
    });
    // The call has begun, and is on its way to the old authority.
    tokio::task::yield_now().await;
    one.store.switch_over().await.unwrap();
    one.old.on_nth(1, Call::Admin, Fault::Delay(LEASE / 4));
    let claims = [one.store.claim(&request("key")).await, claiming.await.unwrap()];
    let granted = |claim: &&Result<Claim, _>| matches!(claim, Ok(Claim::Granted { .. }));
    assert_eq!(claims.iter().filter(granted).count(), 1, "{claims:?}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_slept_through_the_switchover_goes_by_the_new_authority() {
    let two = Two::new();
    let (one, late) = (two.process().await.store, two.process().await);
    complete(&late.store, "warm", "up").await;
    moved(&one).await;
    let holder = granted(&one, "key").await;
    let claim = late.store.claim(&request("key")).await.unwrap();
    assert!(matches!(claim, Claim::Running { .. }), "{claim:?}");
    let stored = two.old.get(&id("key")).await.unwrap().unwrap();
    assert!(stored.held_by(&holder), "it follows");
}

#[tokio::test(start_paused = true)]
async fn calls_wait_while_the_authority_changes() {
    let two = Two::new();
    let (one, other) = (two.process().await.store, two.process().await.store);
    one.copy(|_| {}).await.unwrap();
    let switching = tokio::spawn({
        let one = one.clone();
        async move { one.switch_over().await }
    });
    while !other.status().await.unwrap().closing {
        sleep(Duration::from_millis(1)).await;
    }
    let holder = granted(&other, "key").await;
    assert_eq!(switching.await.unwrap().unwrap().authority, Side::New);
    let stored = two.new.get(&id("key")).await.unwrap().unwrap();
    assert!(stored.held_by(&holder));
}

/// A switchover fails at any of its calls, applied or not. Afterwards every process relies on one
/// authority, and none is stuck.
#[tokio::test(start_paused = true)]
async fn wherever_a_switchover_fails_all_processes_agree_afterwards() {
    let mut outcomes = [0; 2];
    for side in [Side::Old, Side::New] {
        for fault in [Fault::Fail, Fault::LoseReply, Fault::Hang] {
            for nth in 1..14 {
                let switched = failing_switchover(side, fault, nth).await;
                outcomes[usize::from(switched)] += 1;
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 10), "{outcomes:?}");
}

/// Returns whether the authority changed although something failed.
async fn failing_switchover(side: Side, fault: Fault, nth: usize) -> bool {
    let two = Two::new();
    let (one, other) = (two.process().await, two.process().await.store);
    let before = granted(&other, "before").await;
    one.store.copy(|_| {}).await.unwrap();
    let way = if side == Side::Old { &one.old } else { &one.new };
    way.on_nth(nth, Call::Admin, fault);
    // Some faults never end, so the test gives up waiting.
    let _told = tokio::time::timeout(Duration::from_secs(5), one.store.switch_over()).await;
    way.heal();

    // If the switchover hangs after *closing*, another process reopens after some time.
    let settled = async || {
        let done = Settlement::Complete(outcome("done"));
        settle(&other, "before", before, done, DAY).await.is_ok_and(|it| it == Fenced::Applied(()))
    };
    eventually("calls are answered", settled).await;
    let authorities = [authority(&one.store).await, authority(&other).await];
    assert_eq!(authorities[0], authorities[1], "{side:?} {fault:?} {nth}");
    let holder = granted(&one.store, "after").await;
    let claim = other.claim(&request("after")).await.unwrap();
    assert!(matches!(claim, Claim::Running { .. }), "{side:?} {fault:?} {nth}: {claim:?}");
    for store in [&two.old, &two.new] {
        let stored = store.get(&id("after")).await.unwrap().unwrap();
        assert!(stored.held_by(&holder), "{side:?} {fault:?} {nth}");
    }
    authorities[0] == Side::New
}

#[tokio::test(start_paused = true)]
async fn of_two_that_switch_over_at_once_one_does() {
    for _ in 0..20 {
        let two = Two::new();
        let (one, other) = (two.process().await.store, two.process().await.store);
        one.copy(|_| {}).await.unwrap();
        let (first, second) = tokio::join!(one.switch_over(), other.switch_over());
        let switched = [&first, &second].iter().filter(|it| it.is_ok()).count();
        assert_eq!(switched, 1, "{first:?} {second:?}");
        assert_eq!([authority(&one).await, authority(&other).await], [Side::New; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn stores_that_are_exchanged_are_refused() {
    let two = Two::new();
    open(Arc::clone(&two.old), Arc::clone(&two.new)).await;
    let exchanged =
        DualStore::open("a move", Arc::clone(&two.new), Arc::clone(&two.old), short()).await;
    let Err(OpenError::Unavailable(error)) = exchanged else { panic!("{exchanged:?}") };
    assert_eq!((error.kind, problem(&error)), (StoreErrorKind::Undecodable, DualProblem::Swapped,));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_starts_when_the_old_store_is_gone_goes_by_the_new_one() {
    let two = Two::new();
    moved(&two.process().await.store).await;
    let holder = granted(&*two.new, "key").await;
    let gone = two.process().await;
    gone.old.on_every(Call::Admin, Fault::Fail);
    gone.old.on_every(Call::Claim, Fault::Fail);
    let late = open(Arc::clone(&gone.old) as _, Arc::clone(&gone.new) as _).await;
    let claim = late.claim(&request("key")).await.unwrap();
    assert!(matches!(claim, Claim::Running { .. }), "{claim:?}");
    let empty = Two::new();
    let replaced = open(empty.old as Arc<dyn FullStore>, Arc::clone(&two.new)).await;
    let done = Settlement::Complete(outcome("done"));
    let settled = settle(&replaced, "key", holder, done, DAY).await.unwrap();
    assert_eq!(settled, Fenced::Applied(()), "also when an empty one is in its place");
}
