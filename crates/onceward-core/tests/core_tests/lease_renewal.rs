//! One renewer renews all leases of a runtime. What that must not change, each named as a fact.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use onceward_core::{
    BeginError, Drained, Engine, LeaseLost, MemoryStore, Permit, Settled, StateName, StoreAdmin,
};
use onceward_testkit::faulty::{Call, Fault};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{sleep, timeout};

async fn permits(engine: &Engine, keys: std::ops::Range<usize>) -> Vec<Permit> {
    let mut permits = Vec::new();
    for n in keys {
        permits.push(permit(engine, &format!("k{n}")).await);
    }
    permits
}

/// Tasks beside the one that the test runs in.
fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

// Renewing ----------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_thousand_permits_alive_at_once_are_all_renewed_in_time() {
    let bench = Bench::new();
    let engine = bench.engine();
    let mut owners = Vec::new();
    for n in 0..1_000 {
        owners.push(permit(&engine, &format!("k{n}")).await);
        sleep(Duration::from_millis(n % 7)).await;
    }
    for _ in 0..10 {
        sleep(LEASE / 2).await;
        assert!(owners.iter().all(|owner| owner.check() == Ok(())));
    }
    for (n, owner) in owners.into_iter().enumerate() {
        assert_eq!(bench.standing(&format!("k{n}")).await, Some(StateName::Running));
        assert_eq!(owner.complete(outcome("done")).await, Settled::Durable);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_does_not_hold_up_the_others() {
    let bench = Bench::new();
    // So long that the call timeout does not end the renewal that hangs.
    let engine = bench.engine_with(policy().call_timeout(LEASE * 100));
    let owners = permits(&engine, 0..20).await;
    bench.store.on_nth(1, Call::Renew, Fault::Hang);
    sleep(LEASE * 3).await;
    let alive = owners.iter().filter(|owner| owner.check() == Ok(())).count();
    assert_eq!(alive, 19, "all but the one whose renewal hangs");
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_is_renewed_in_time_beside_long_ones() {
    let bench = Bench::new();
    let engine = bench.engine();
    let _long = permits(&engine, 0..20).await;
    let short = policy().lease(LEASE / 100).build().unwrap();
    let owners = permits(&engine.with_policy(short), 20..40).await;
    for _ in 0..500 {
        sleep(LEASE / 200).await;
        assert!(owners.iter().all(|owner| owner.check() == Ok(())));
    }
}

#[tokio::test(start_paused = true)]
async fn a_settled_permit_is_not_renewed_any_more() {
    let bench = Bench::new();
    let engine = bench.engine();
    let owner = permit(&engine, "k").await;
    let mut grant = owner.grant().clone();
    let deadline = grant.deadline();
    assert_eq!(owner.complete(outcome("done")).await, Settled::Durable);
    assert_eq!(grant.lost().await, LeaseLost::Lapsed);
    assert_eq!(grant.deadline(), deadline, "it has not moved on");
}

#[tokio::test(start_paused = true)]
async fn a_permit_settled_or_dropped_while_it_is_being_renewed_is_let_go() {
    let bench = Bench::new();
    let engine = bench.engine();
    let mut owners = permits(&engine, 0..2).await;
    bench.store.on_next(2, Call::Renew, Fault::Delay(LEASE / 20));
    sleep(LEASE / 3 + LEASE / 40).await;
    drop(owners.pop());
    assert_eq!(owners.pop().unwrap().complete(outcome("done")).await, Settled::Durable);
    sleep(LEASE).await;
    assert_eq!(replayed(&engine, "k0").await, outcome("done"));
    assert_eq!(bench.record("k1").await.unwrap().state.name(), StateName::Unknown);
    assert_eq!(tasks(), 0);
}

// Tasks -------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn permits_share_one_task_and_none_is_left_after_the_last() {
    let bench = Bench::new();
    let engine = bench.engine();
    let owners = permits(&engine, 0..100).await;
    assert_eq!(tasks(), 1);
    for owner in owners {
        assert_eq!(owner.complete(outcome("done")).await, Settled::Durable);
    }
    sleep(LEASE).await;
    assert_eq!(tasks(), 0);
    let again = permits(&engine, 100..101).await;
    sleep(LEASE * 3).await;
    assert_eq!(again[0].check(), Ok(()), "it starts again when it is needed");
}

#[tokio::test(start_paused = true)]
async fn no_task_outlives_the_engine() {
    let bench = Bench::new();
    let engine = bench.engine();
    let owner = permit(&engine, "k").await;
    drop(engine);
    sleep(LEASE * 3).await;
    assert_eq!(owner.check(), Ok(()), "a permit keeps its engine alive");
    assert_eq!(owner.complete(outcome("done")).await, Settled::Durable);
    tokio::task::yield_now().await;
    assert_eq!(tasks(), 0, "at once, not at the next alarm");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn permits_that_come_and_go_on_many_threads_are_all_kept_and_let_go() {
    // Renewed often, with a lease long enough for a busy machine.
    let often = policy().renew_every(Duration::from_millis(5)).build().unwrap();
    let engine = Engine::builder(Arc::new(MemoryStore::new())).policy(often).build();
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for n in 0..200 {
                    let owner = permit(&engine, &format!("k{task}/{n}")).await;
                    if n % 50 == 0 {
                        sleep(Duration::from_millis(n / 2)).await;
                    }
                    assert_eq!(owner.complete(outcome("done")).await, Settled::Durable);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(engine.drain(Duration::ZERO).await, Drained::Finished, "nothing is left live");
}

// Runtimes ----------------------------------------------------------------------------------

fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

#[test]
fn a_permit_is_renewed_on_its_own_runtime_whatever_becomes_of_others() {
    let store = Arc::new(MemoryStore::new());
    let engine = Engine::builder(store).policy(policy().build().unwrap()).build();
    let (standing_still, ended, running) = (paused(), paused(), paused());
    let _first = standing_still.block_on(permit(&engine, "first"));
    let _second = ended.block_on(permit(&engine, "second"));
    drop(ended);
    running.block_on(async {
        let owner = permit(&engine, "third").await;
        sleep(LEASE * 3).await;
        assert_eq!(owner.check(), Ok(()));
        assert_eq!(owner.complete(outcome("done")).await, Settled::Durable);
    });
}

#[test]
fn a_permit_dropped_outside_of_any_runtime_is_marked_unknown_all_the_same() {
    let store = Arc::new(MemoryStore::new());
    let engine = Engine::new(store.clone());
    let runtime = paused();
    let owner = runtime.block_on(permit(&engine, "k"));
    drop(owner);
    runtime.block_on(settle_down());
    let record = runtime.block_on(store.get(&id("k"))).unwrap().unwrap();
    assert_eq!(record.state.name(), StateName::Unknown);
}

// Draining ----------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_drain_cuts_off_permits_of_every_policy_and_those_that_are_lost_already() {
    let bench = Bench::new();
    let engine = bench.engine();
    let other = engine.with_policy(policy().lease(LEASE * 2).build().unwrap());
    let (lost, alive) = (permit(&engine, "lost").await, permit(&other, "alive").await);
    bench.store.on_nth(1, Call::Renew, Fault::LoseData);
    assert_eq!(lost.grant().clone().lost().await, LeaseLost::Missing);
    let drained = engine.drain(Duration::from_secs(1)).await;
    assert_eq!(drained, Drained::CutOff { marked: 2 });
    assert_eq!(lost.check(), Err(LeaseLost::Drained));
    assert_eq!(alive.check(), Err(LeaseLost::Drained));
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_settlements_in_the_background_and_cuts_them_off() {
    let bench = Bench::new();
    let engine = bench.engine();
    bench.store.on_every(Call::Settle, Fault::Fail);
    assert_eq!(permit(&engine, "k").await.complete(outcome("done")).await, Settled::Pending);
    let drained = engine.drain(Duration::from_secs(2)).await;
    assert_eq!(drained, Drained::CutOff { marked: 1 });
    tokio::task::yield_now().await;
    assert_eq!(timeout(LEASE, engine.drain(LEASE)).await.unwrap(), Drained::Finished);
}

#[tokio::test(start_paused = true)]
async fn a_claim_granted_after_the_cut_is_given_back() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().call_timeout(LEASE));
    let _runs_on = permit(&engine, "first").await;
    bench.store.on_nth(1, Call::Claim, Fault::Delay(Duration::from_secs(3)));
    let late = tokio::spawn({
        let engine = engine.clone();
        async move { engine.begin(&intent("late")).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(engine.drain(Duration::from_secs(1)).await, Drained::CutOff { marked: 1 });
    assert!(matches!(late.await.unwrap(), Err(BeginError::Draining)));
    settle_down().await;
    let elsewhere = permit(&bench.engine(), "late").await;
    assert_eq!(elsewhere.release().await, Settled::Durable);
    assert!(matches!(engine.begin(&intent("new")).await, Err(BeginError::Draining)));
}
