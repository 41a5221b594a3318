//! Business references: known under every key, and for longer than any key.

use std::time::Duration;

use crate::common::*;
use onceward_core::{
    Begin, BusinessReference, Engine, Intent, KnownReference, OperationId, Permit, Rejection,
    Settled, StoreAdmin as _, UnknownCause,
};
use onceward_testkit::faulty::{Call, Fault};

const DAY_MS: i64 = 24 * 3600 * 1000;

fn called(intent: Intent, reference: &str) -> Intent {
    intent.with_reference(BusinessReference::new(reference, KnownReference::Replay).unwrap())
}

fn kept(intent: Intent, reference: &str) -> Intent {
    intent.with_reference(BusinessReference::new(reference, KnownReference::Conflict).unwrap())
}

async fn granted(engine: &Engine, intent: &Intent) -> Permit {
    match engine.begin(intent).await.unwrap() {
        Begin::Execute(permit) => permit,
        other => panic!("expected a permit, got {other:?}"),
    }
}

async fn done(engine: &Engine, intent: &Intent) -> OperationId {
    let permit = granted(engine, intent).await;
    let operation = permit.operation();
    assert_eq!(permit.complete(outcome("done")).await, Settled::Durable);
    operation
}

async fn replay_of(engine: &Engine, intent: &Intent) -> OperationId {
    match engine.begin(intent).await.unwrap() {
        Begin::Replay(replay) => {
            assert_eq!(replay.outcome, outcome("done"));
            replay.operation
        }
        other => panic!("expected a replay, got {other:?}"),
    }
}

async fn refusal(engine: &Engine, intent: &Intent) -> Rejection {
    match engine.begin(intent).await.unwrap() {
        Begin::Reject(rejection) => rejection,
        other => panic!("expected a rejection, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_key_with_a_known_reference_gets_the_first_outcome() {
    let engine = Bench::new().engine();
    let operation = done(&engine, &called(intent("first"), "pay-1")).await;
    for key in ["first", "second", "first", "second"] {
        assert_eq!(replay_of(&engine, &called(intent(key), "pay-1")).await, operation);
    }
    let other = done(&engine, &called(intent("third"), "pay-2")).await;
    assert_ne!(other, operation);
}

#[tokio::test(start_paused = true)]
async fn a_reference_is_known_when_its_key_is_long_forgotten() {
    let bench = Bench::new();
    let engine = bench.engine();
    let operation = done(&engine, &called(intent("k"), "pay-1")).await;
    bench.clock.jump(300 * DAY_MS);
    assert_eq!(replay_of(&engine, &called(intent("k"), "pay-1")).await, operation);
    bench.clock.jump(67 * DAY_MS);
    let _new = granted(&engine, &called(intent("k"), "pay-1")).await;
}

#[tokio::test(start_paused = true)]
async fn another_request_under_a_known_reference_is_refused() {
    let engine = Bench::new().engine();
    let first = done(&engine, &called(intent("first"), "pay-1")).await;
    for _ in 0..2 {
        let refused = refusal(&engine, &called(other_request("second"), "pay-1")).await;
        let Rejection::ReferenceTaken { operation, .. } = refused else { panic!("{refused:?}") };
        assert_eq!(operation, Some(first));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reference_that_is_kept_for_its_key_refuses_every_other_key() {
    let engine = Bench::new().engine();
    let first = done(&engine, &kept(intent("first"), "pay-1")).await;
    let refused = refusal(&engine, &kept(intent("second"), "pay-1")).await;
    let Rejection::ReferenceTaken { operation, .. } = refused else { panic!("{refused:?}") };
    assert_eq!(operation, Some(first));
    assert_eq!(replay_of(&engine, &kept(intent("first"), "pay-1")).await, first);
}

#[tokio::test(start_paused = true)]
async fn a_key_leads_to_one_reference_only() {
    let engine = Bench::new().engine();
    done(&engine, &called(intent("k"), "pay-1")).await;
    let refused = refusal(&engine, &called(intent("k"), "pay-2")).await;
    assert!(matches!(refused, Rejection::Mismatch { .. }), "{refused:?}");
    let refused = refusal(&engine, &called(other_request("k"), "pay-1")).await;
    assert!(matches!(refused, Rejection::Mismatch { .. }), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_from_before_there_were_references_is_replayed() {
    let engine = Bench::new().engine();
    let operation = done(&engine, &intent("k")).await;
    assert_eq!(replay_of(&engine, &called(intent("k"), "pay-1")).await, operation);
}

#[tokio::test(start_paused = true)]
async fn of_many_keys_with_one_reference_one_runs() {
    let bench = Bench::new();
    let engine = bench.engine_with(policy().wait(Duration::from_secs(5)));
    let tasks: Vec<_> = (0..50)
        .map(|index| {
            let (engine, intent) = (engine.clone(), called(intent(&format!("k{index}")), "pay-1"));
            tokio::spawn(async move {
                match engine.begin(&intent).await.unwrap() {
                    Begin::Execute(permit) => {
                        tokio::time::sleep(Duration::from_millis(300)).await;
                        assert_eq!(permit.complete(outcome("done")).await, Settled::Durable);
                        1
                    }
                    Begin::Replay(_) => 0,
                    Begin::Reject(rejection) => panic!("{rejection}"),
                }
            })
        })
        .collect();
    let mut ran = 0;
    for task in tasks {
        ran += task.await.unwrap();
    }
    assert_eq!(ran, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_unknown_under_one_key_is_unknown_under_every_key() {
    let bench = Bench::new();
    let engine = bench.engine();
    let permit = granted(&engine, &called(intent("first"), "pay-1")).await;
    let operation = permit.operation();
    assert_eq!(permit.unknown(UnknownCause::Reported(None)).await, Settled::Durable);
    for key in ["first", "second"] {
        let refused = refusal(&engine, &called(intent(key), "pay-1")).await;
        assert_eq!(refused, Rejection::Unknown { operation });
    }
    let found = bench.store.find(&operation).await.unwrap().unwrap();
    assert_eq!(found.key.unwrap().expose(), "pay-1", "the reference, for lookups");
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_key_is_linked_leaves_no_unknown() {
    let bench = Bench::new();
    // The crash: the key is claimed and not linked.
    std::mem::forget(permit(&bench.engine(), "k").await);
    bench.store.on_every(Call::Renew, Fault::Fail);
    tokio::time::sleep(LEASE * 2).await;
    let _retry = granted(&bench.engine(), &called(intent("k"), "pay-1")).await;
}
