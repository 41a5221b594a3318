//! Guarantees of the engine, each named as a fact.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, Ordering::SeqCst};
use std::time::Duration;

use crate::common::*;
use onceward_core::{
    Begin, BeginError, Drained, Engine, Intent, LeaseLost, MemoryStore, OnLapse, Part, Rejection,
    Settled, State, StateName, UnknownCause,
};
use onceward_testkit::faulty::{Call, Fault};
use tokio::time::{Instant, sleep, timeout};

// Races -------------------------------------------------------------------------------------

/// Seeds 001 and 003 look in the cache, then lock: a loser that looked before the winner
/// finished, and locks after the winner unlocked, runs again. Here nothing is looked up before:
/// a claim that arrives after the winner finished is answered with the winner's outcome.
#[tokio::test(start_paused = true)]
async fn a_claim_that_arrives_after_the_winner_finished_replays() {
    let bench = Bench::new();
    let (winner, loser) = (bench.engine(), bench.engine());
    bench.store.on_nth(1, Call::Claim, Fault::Delay(Duration::from_millis(500)));
    let losing = tokio::spawn(async move { loser.begin(&intent("k")).await });
    settle_down().await;
    let permit = permit(&winner, "k").await;
    assert_eq!(permit.complete(outcome("won")).await, Settled::Durable);
    match losing.await.unwrap().unwrap() {
        Begin::Replay(replay) => assert_eq!(replay.outcome, outcome("won")),
        other => panic!("ran again: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_at_once_one_executes_and_the_others_replay() {
    let waiting = policy().wait(Duration::from_secs(30)).build().unwrap();
    let engine = Engine::builder(Arc::new(MemoryStore::new())).policy(waiting).build();
    for round in 0..50 {
        let executed = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let (engine, executed) = (engine.clone(), Arc::clone(&executed));
                tokio::spawn(async move {
                    match engine.begin(&intent(&format!("k{round}"))).await.unwrap() {
                        Begin::Execute(permit) => {
                            executed.fetch_add(1, Ordering::SeqCst);
                            tokio::task::yield_now().await;
                            assert_eq!(permit.complete(outcome("once")).await, Settled::Durable);
                        }
                        Begin::Replay(replay) => assert_eq!(replay.outcome, outcome("once")),
                        Begin::Reject(rejection) => panic!("{rejection:?}"),
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(executed.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_is_told_even_while_the_first_is_running() {
    let bench = Bench::new();
    let engine = bench.engine();
    let _running = permit(&engine, "k").await;
    let begin = engine.begin(&other_request("k")).await.unwrap();
    assert!(matches!(begin, Begin::Reject(Rejection::Mismatch { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_tells_which_parts_differ() {
    let engine = Bench::new().engine();
    let part = |name, value| Part { name, value };
    let first = intent("k").with_parts(vec![part(1, 10), part(2, 20), part(3, 30)]);
    let Ok(Begin::Execute(_running)) = engine.begin(&first).await else { panic!() };
    let second = other_request("k").with_parts(vec![part(1, 10), part(2, 21)]);
    match engine.begin(&second).await.unwrap() {
        Begin::Reject(Rejection::Mismatch { difference }) => {
            assert_eq!(difference.changed().collect::<Vec<_>>(), [1]);
            assert_eq!(difference.missing(), 1);
        }
        other => panic!("{other:?}"),
    }
}

// Waiting -----------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_waiter_is_woken_the_moment_the_owner_settles() {
    let bench = Bench::new();
    // Polling alone would notice after a minute.
    let patient = policy().wait(Duration::from_secs(100)).poll_every(Duration::from_secs(60));
    let engine = bench.engine_with(patient);
    let owner = permit(&engine, "k").await;
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { (replayed(&engine, "k").await, Instant::now()) }
    });
    sleep(Duration::from_secs(5)).await;
    let settled_at = Instant::now();
    assert_eq!(owner.complete(outcome("done")).await, Settled::Durable);
    let (replay, woken_at) = waiting.await.unwrap();
    assert_eq!(replay, outcome("done"));
    assert!(woken_at - settled_at < Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_on_another_node_finds_out_by_looking_again() {
    let bench = Bench::new();
    let owner = permit(&bench.engine(), "k").await;
    let other = bench.engine_with(policy().wait(Duration::from_secs(8)));
    let waiting = tokio::spawn(async move { replayed(&other, "k").await });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(owner.complete(outcome("done")).await, Settled::Durable);
    assert_eq!(waiting.await.unwrap(), outcome("done"));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_times_out_leaves_the_owner_alone() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().wait(Duration::from_secs(3)));
    let owner = permit(&engine, "k").await;
    let (before, started) = (bench.record("k").await, Instant::now());
    assert!(matches!(rejected(&engine, "k").await, Rejection::Running { .. }));
    assert!(started.elapsed() >= Duration::from_secs(3));
    assert!(started.elapsed() < Duration::from_secs(4));
    assert_eq!(bench.record("k").await, before, "the record is as it was");
    assert_eq!(owner.complete(outcome("done")).await, Settled::Durable);
    assert_eq!(replayed(&engine, "k").await, outcome("done"));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_executes_when_the_owner_releases() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().wait(Duration::from_secs(5)));
    let owner = permit(&engine, "k").await;
    let waiting = tokio::spawn(async move { permit(&engine, "k").await.attempt() });
    settle_down().await;
    assert_eq!(owner.release().await, Settled::Durable);
    assert_eq!(waiting.await.unwrap(), 2);
}

// Lost replies and outages -----------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_claim_whose_reply_was_lost_is_claimed_again_with_the_same_token() {
    let bench = Bench::new();
    bench.store.on_next(2, Call::Claim, Fault::LoseReply);
    let granted = permit(&bench.engine(), "k").await;
    assert_eq!(granted.attempt(), 1, "it was one claim all along");
    assert_eq!(granted.complete(outcome("done")).await, Settled::Durable);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_never_answered_does_not_run_and_is_taken_back() {
    let bench = Bench::new();
    let engine = bench.engine();
    bench.store.on_every(Call::Claim, Fault::LoseReply);
    let begin = engine.begin(&intent("k")).await;
    assert!(matches!(begin, Err(BeginError::Unavailable(_))));
    assert_eq!(bench.standing("k").await, Some(StateName::Running), "not known yet");
    bench.store.heal();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.standing("k").await, Some(StateName::Released));
    assert_eq!(permit(&engine, "k").await.attempt(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_begin_that_is_dropped_takes_its_claim_back() {
    let bench = Bench::new();
    let engine = bench.engine();
    bench.store.on_nth(1, Call::Claim, Fault::Hang);
    let hung_up = timeout(Duration::from_millis(100), engine.begin(&intent("k"))).await;
    assert!(hung_up.is_err());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.standing("k").await, Some(StateName::Released));
}

#[tokio::test(start_paused = true)]
async fn a_claim_granted_too_late_is_not_run() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().call_timeout(LEASE * 2));
    bench.store.on_nth(1, Call::Claim, Fault::Delay(LEASE));
    assert!(matches!(engine.begin(&intent("k")).await, Err(BeginError::Unavailable(_))));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.standing("k").await, Some(StateName::Released));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_at_the_claim_is_told_at_once_and_nothing_runs() {
    let bench = Bench::new();
    let engine = bench.engine();
    bench.store.on_every(Call::Claim, Fault::Fail);
    let started = Instant::now();
    assert!(matches!(engine.begin(&intent("k")).await, Err(BeginError::Unavailable(_))));
    assert_eq!(started.elapsed(), Duration::ZERO, "surely not applied needs no second try");
    bench.store.heal();
    assert_eq!(permit(&engine, "k").await.attempt(), 1, "the same key is safe");
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_reply_was_lost_lands_once() {
    let bench = Bench::new();
    let engine = bench.engine();
    let owner = permit(&engine, "k").await;
    bench.store.on_next(3, Call::Settle, Fault::LoseReply);
    assert_eq!(owner.complete(outcome("done")).await, Settled::Durable);
    assert_eq!(replayed(&engine, "k").await, outcome("done"));
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_cannot_be_stored_goes_on_in_the_background() {
    let bench = Bench::new();
    let engine = bench.engine();
    let owner = permit(&engine, "k").await;
    bench.store.on_every(Call::Settle, Fault::Fail);
    assert_eq!(owner.complete(outcome("done")).await, Settled::Pending);
    // Far beyond the lease: it is renewed meanwhile, so the outcome does not become unknown.
    sleep(LEASE * 5).await;
    assert!(matches!(rejected(&engine, "k").await, Rejection::Running { .. }));
    bench.store.heal();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(replayed(&engine, "k").await, outcome("done"));
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_never_lands_leaves_the_record_unknown_and_never_free() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().settle_patience(Duration::from_secs(60)));
    let owner = permit(&engine, "k").await;
    bench.store.on_every(Call::Settle, Fault::Fail);
    assert_eq!(owner.complete(outcome("done")).await, Settled::Pending);
    sleep(Duration::from_secs(60) + LEASE * 2).await;
    bench.store.heal();
    assert!(matches!(rejected(&engine, "k").await, Rejection::Unknown { .. }));
}

/// For example because it cannot be sealed, or is too large for the store.
#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_an_outcome_keeps_that_as_the_cause() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().settle_patience(Duration::from_secs(60)));
    let owner = permit(&engine, "k").await;
    bench.store.on_every(Call::Settle, Fault::Fail);
    assert_eq!(owner.complete(outcome("done")).await, Settled::Pending);
    sleep(Duration::from_secs(30)).await;
    for _ in 0..6_000 {
        // The last try fails, and the store accepts the word after it.
        bench.store.heal();
        bench.store.on_nth(1, Call::Settle, Fault::Fail);
        sleep(Duration::from_millis(10)).await;
    }
    let unstored = State::Unknown { cause: UnknownCause::Unstored };
    assert_eq!(bench.record("k").await.unwrap().state, unstored);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_its_data_is_noticed_at_the_next_renewal() {
    let bench = Bench::new();
    let owner = permit(&bench.engine(), "k").await;
    bench.store.on_nth(1, Call::Renew, Fault::LoseData);
    assert_eq!(owner.grant().clone().lost().await, LeaseLost::Missing);
    assert_eq!(owner.complete(outcome("done")).await, Settled::Missing);
}

// Dropping ----------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_dropped_permit_makes_the_outcome_unknown_and_never_frees_the_key() {
    let bench = Bench::new();
    let engine = bench.engine();
    drop(permit(&engine, "k").await);
    settle_down().await;
    let dropped = State::Unknown { cause: UnknownCause::Dropped };
    assert_eq!(bench.record("k").await.unwrap().state, dropped, "at once");
    assert!(matches!(rejected(&engine, "k").await, Rejection::Unknown { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_of_a_handler_makes_the_outcome_unknown() {
    let bench = Bench::new();
    let engine = bench.engine();
    let handler = async {
        let permit = permit(&engine, "k").await;
        sleep(Duration::from_secs(60)).await; // the effect
        permit.complete(outcome("done")).await
    };
    assert!(timeout(Duration::from_secs(1), handler).await.is_err());
    settle_down().await;
    assert!(matches!(rejected(&engine, "k").await, Rejection::Unknown { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_settlement_dropped_halfway_is_carried_through() {
    let bench = Bench::new();
    let engine = bench.engine();
    let owner = permit(&engine, "k").await;
    bench.store.on_nth(1, Call::Settle, Fault::Delay(Duration::from_millis(500)));
    let cancelled = timeout(Duration::from_millis(100), owner.complete(outcome("done"))).await;
    assert!(cancelled.is_err());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(replayed(&engine, "k").await, outcome("done"));
}

/// Calling the method settles, not polling its future.
#[tokio::test(start_paused = true)]
async fn a_settlement_dropped_before_its_first_poll_is_carried_through() {
    let bench = Bench::new();
    let engine = bench.engine();
    drop(permit(&engine, "completed").await.complete(outcome("done")));
    drop(permit(&engine, "released").await.release());
    settle_down().await;
    assert_eq!(replayed(&engine, "completed").await, outcome("done"));
    let again = permit(&engine, "released").await;
    assert_eq!(again.release().await, Settled::Durable);
}

// Leases ------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_handler_may_run_much_longer_than_its_lease() {
    let bench = Bench::new();
    let engine = bench.engine();
    let owner = permit(&engine, "k").await;
    for _ in 0..30 {
        sleep(LEASE / 2).await;
        assert_eq!(owner.check(), Ok(()));
        assert!(matches!(rejected(&engine, "k").await, Rejection::Running { .. }));
    }
    assert_eq!(owner.complete(outcome("done")).await, Settled::Durable);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_arrived_late_is_renewed_in_time() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().call_timeout(LEASE));
    bench.store.on_nth(1, Call::Claim, Fault::LoseReply);
    bench.store.on_nth(2, Call::Claim, Fault::Delay(LEASE * 4 / 5));
    let owner = permit(&engine, "k").await;
    for _ in 0..10 {
        sleep(LEASE / 2).await;
        assert_eq!(owner.check(), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_is_tried_again_before_the_lease_ends() {
    let bench = Bench::new();
    let owner = permit(&bench.engine(), "k").await;
    bench.store.on_next(2, Call::Renew, Fault::Fail);
    sleep(LEASE * 3).await;
    assert_eq!(owner.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_lease_is_unknown_and_its_late_completion_is_accepted() {
    let bench = Bench::new();
    let engine = bench.engine();
    let owner = permit(&engine, "k").await;
    bench.store.on_every(Call::Renew, Fault::Fail);
    sleep(LEASE + Duration::from_secs(1)).await;
    assert_eq!(owner.check(), Err(LeaseLost::Lapsed), "no new effect from here on");
    assert!(matches!(rejected(&engine, "k").await, Rejection::Unknown { .. }));
    assert_eq!(owner.complete(outcome("late")).await, Settled::Durable);
    assert_eq!(replayed(&engine, "k").await, outcome("late"));
}

#[tokio::test(start_paused = true)]
async fn the_owner_stops_before_the_store_lets_others_in() {
    let bench = Bench::new();
    let owner = permit(&bench.engine(), "k").await;
    bench.store.on_every(Call::Renew, Fault::Hang);
    let mut grant = owner.grant().clone();
    grant.lost().await;
    assert_eq!(bench.standing("k").await, Some(StateName::Running), "the lease is still live");
}

#[tokio::test(start_paused = true)]
async fn a_stale_owner_cannot_complete_after_a_takeover() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().on_lapse(OnLapse::Takeover));
    let stale = permit(&engine, "k").await;
    bench.store.on_every(Call::Renew, Fault::Fail);
    sleep(LEASE + Duration::from_secs(1)).await;
    let current = permit(&engine, "k").await;
    assert!(current.fence() > stale.fence());
    assert_eq!(current.downstream_key(), stale.downstream_key(), "downstream, it is one");
    assert_eq!(stale.complete(outcome("stale")).await, Settled::Superseded);
    assert_eq!(current.complete(outcome("current")).await, Settled::Durable);
    assert_eq!(replayed(&engine, "k").await, outcome("current"));
}

#[tokio::test(start_paused = true)]
async fn a_crash_under_takeover_does_not_block_the_next_owner() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().on_lapse(OnLapse::Takeover));
    drop(permit(&engine, "k").await);
    sleep(LEASE + Duration::from_secs(1)).await;
    assert_eq!(permit(&engine, "k").await.attempt(), 2);
}

// Shutting down -----------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn draining_waits_for_what_runs_and_takes_nothing_new() {
    let bench = Bench::new();
    let engine = bench.engine();
    let owner = permit(&engine, "k").await;
    let draining = tokio::spawn({
        let engine = engine.clone();
        async move { engine.drain(Duration::from_secs(30)).await }
    });
    sleep(Duration::from_secs(5)).await;
    assert!(matches!(engine.begin(&intent("new")).await, Err(BeginError::Draining)));
    assert_eq!(owner.complete(outcome("done")).await, Settled::Durable);
    assert_eq!(draining.await.unwrap(), Drained::Finished);
}

#[tokio::test(start_paused = true)]
async fn what_is_granted_after_a_drain_began_is_given_back_and_does_not_run() {
    let bench = Bench::new();
    let engine = bench.engine();
    bench.store.on_nth(1, Call::Claim, Fault::Delay(Duration::from_millis(500)));
    let on_its_way = tokio::spawn({
        let engine = engine.clone();
        async move { engine.begin(&intent("k")).await }
    });
    sleep(Duration::from_millis(100)).await;
    assert_eq!(engine.drain(Duration::from_secs(30)).await, Drained::Finished);
    assert!(matches!(on_its_way.await.unwrap(), Err(BeginError::Draining)));
    settle_down().await;
    let elsewhere = permit(&bench.engine(), "k").await;
    assert_eq!(elsewhere.release().await, Settled::Durable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_runs_once_a_drain_has_finished() {
    for round in 0..500 {
        let engine = Engine::new(Arc::new(MemoryStore::new()));
        let finished = Arc::new(AtomicBool::new(false));
        let working = (0..4).map(|worker| {
            let (engine, finished) = (engine.clone(), Arc::clone(&finished));
            tokio::spawn(async move {
                for number in 0.. {
                    let begun = engine.begin(&intent(&format!("{worker}-{number}"))).await;
                    let Ok(Begin::Execute(permit)) = begun else { return };
                    tokio::task::yield_now().await; // the effect
                    assert!(!finished.load(SeqCst), "round {round}: it runs on");
                    assert_eq!(permit.complete(outcome("done")).await, Settled::Durable);
                }
            })
        });
        let working: Vec<_> = working.collect();
        tokio::task::yield_now().await;
        assert_eq!(engine.drain(Duration::from_secs(30)).await, Drained::Finished);
        finished.store(true, SeqCst);
        for worker in working {
            worker.await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_is_settled_is_recalled_without_a_claim_and_nothing_else_is() {
    let engine = Engine::new(Arc::new(MemoryStore::new()));
    let Intent { fingerprint, .. } = intent("k");
    let Intent { fingerprint: other, .. } = other_request("k");
    assert_eq!(engine.recall(&id("k"), &fingerprint), None, "it was not claimed yet");
    let owner = permit(&engine, "k").await;
    assert_eq!(engine.recall(&id("k"), &fingerprint), None, "it is running");
    assert_eq!(owner.complete(outcome("done")).await, Settled::Durable);
    let recalled = engine.recall(&id("k"), &fingerprint).map(|replay| replay.outcome);
    assert_eq!(recalled, Some(outcome("done")));
    assert_eq!(engine.recall(&id("k"), &other), None, "it is another request");
    assert_eq!(engine.drain(Duration::ZERO).await, Drained::Finished);
    assert_eq!(engine.recall(&id("k"), &fingerprint), None, "the engine takes nothing new");
    assert!(matches!(engine.begin(&intent("k")).await, Err(BeginError::Draining)));
}

#[tokio::test(start_paused = true)]
async fn draining_marks_unknown_at_its_limit_what_still_runs() {
    let bench = Bench::new();
    let engine = bench.engine();
    let owner = permit(&engine, "k").await;
    let drained = engine.drain(Duration::from_secs(2)).await;
    assert_eq!(drained, Drained::CutOff { marked: 1 });
    let shutdown = State::Unknown { cause: UnknownCause::Shutdown };
    assert_eq!(bench.record("k").await.unwrap().state, shutdown);
    assert_eq!(owner.check(), Err(LeaseLost::Drained));
    // If the handler still finishes, its settlement counts.
    assert_eq!(owner.complete(outcome("late")).await, Settled::Durable);
}
