//! A follower that fails, or loses its records.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{FullStore, Settlement};
use onceward_stores::dual::{CaughtUp, Side, Status, SwitchoverError};
use onceward_stores::verify;
use onceward_testkit::faulty::{Call, Fault};
use tokio::time::{Instant, sleep};

use super::common::{DAY, Two, complete, granted, id, moved, open, outcome, replay, settle};

#[tokio::test(start_paused = true)]
async fn a_follower_that_fails_fails_no_call_and_is_caught_up() {
    let two = Two::new();
    let one = two.process().await;
    one.store.copy(|_| {}).await.unwrap();
    one.new.on_every(Call::Admin, Fault::Fail);
    for key in ["a", "b", "c"] {
        complete(&one.store, key, key).await;
    }
    let behind = |here| Status {
        authority: Side::Old,
        closing: false,
        copied: true,
        lagging_here: here,
        lagging_elsewhere: 0,
    };
    assert_eq!(one.store.status().await.unwrap(), behind(3));
    let left = one.store.catch_up().await.unwrap();
    assert_eq!(left, CaughtUp { records: 0, left: 3 }, "it still fails");

    one.new.heal();
    let refused = one.store.switch_over().await;
    assert!(
        matches!(refused, Err(SwitchoverError::Lagging { here: 3, elsewhere: 0 })),
        "{refused:?}"
    );
    let done = one.store.catch_up().await.unwrap();
    assert_eq!(done, CaughtUp { records: 3, left: 0 });
    assert_eq!(one.store.status().await.unwrap(), behind(0));
    let verified = verify(&two.old, &two.new, |_| {}).await.unwrap();
    assert!(verified.is_clean() && verified.equal == 3, "{verified:?}");
    one.store.switch_over().await.unwrap();
    assert_eq!(replay(&one.store, "b").await, "b");
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_hangs_slows_one_call_a_while_and_fails_none() {
    let two = Two::new();
    let one = two.process().await;
    one.new.on_every(Call::Admin, Fault::Delay(Duration::from_secs(100)));
    let began = Instant::now();
    for index in 0..50 {
        complete(&one.store, &format!("key {index}"), "done").await;
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(one.store.status().await.unwrap().lagging_here, 50);
}

#[tokio::test(start_paused = true)]
async fn what_is_behind_in_one_process_keeps_another_from_switching_over() {
    let two = Two::new();
    let (one, other) = (two.process().await, two.process().await);
    one.store.copy(|_| {}).await.unwrap();
    other.new.on_every(Call::Admin, Fault::Fail);
    complete(&other.store, "key", "done").await;
    let refused = one.store.switch_over().await;
    assert!(
        matches!(refused, Err(SwitchoverError::Lagging { here: 0, elsewhere: 1 })),
        "{refused:?}"
    );
    other.new.heal();
    other.store.catch_up().await.unwrap();
    one.store.switch_over().await.unwrap();
    assert_eq!(replay(&one.store, "key").await, "done");
}

/// The follower fails another process during a switchover. Either the lag is noted before the
/// change, and there is no switchover, or the call does not count.
#[tokio::test(start_paused = true)]
async fn trouble_during_a_switchover_stops_it_or_does_not_count() {
    let mut switchovers = [0; 2];
    for delay in 0..80 {
        let two = Two::new();
        let (one, other) = (two.process().await, two.process().await);
        one.store.copy(|_| {}).await.unwrap();
        let holder = granted(&other.store, "key").await;
        let slow = Fault::Delay(Duration::from_millis(450));
        other.new.on_every(Call::Admin, if delay % 2 == 0 { Fault::Fail } else { slow });
        let settling = async {
            sleep(Duration::from_millis(delay)).await;
            let done = Settlement::Complete(outcome("done"));
            settle(&other.store, "key", holder, done, DAY).await
        };
        let (switched, settled) = tokio::join!(one.store.switch_over(), settling);
        other.new.heal();
        switchovers[usize::from(switched.is_ok())] += 1;
        let authority = one.store.status().await.unwrap().authority;
        let store: &dyn FullStore = match authority {
            Side::Old => &*two.old,
            Side::New => &*two.new,
        };
        if settled.is_ok() {
            assert_eq!(replay(store, "key").await, "done", "after {delay} ms, {authority:?}");
        }
    }
    assert!(switchovers.iter().all(|count| *count > 0), "{switchovers:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_process_left_behind_is_copied_before_a_switchover() {
    let two = Two::new();
    let (one, dead) = (two.process().await, two.process().await);
    one.store.copy(|_| {}).await.unwrap();
    dead.new.on_every(Call::Admin, Fault::Fail);
    complete(&dead.store, "key", "done").await;
    drop(dead);
    one.store.catch_up().await.unwrap();
    assert!(matches!(
        one.store.switch_over().await,
        Err(SwitchoverError::Lagging { here: 0, elsewhere: 1 })
    ));
    one.store.forget_others().await.unwrap();
    assert!(matches!(one.store.switch_over().await, Err(SwitchoverError::NotCopied)));
    moved(&one.store).await;
    assert_eq!(replay(&one.store, "key").await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_lost_everything_does_not_become_the_authority() {
    let two = Two::new();
    let one = two.process().await;
    complete(&one.store, "key", "done").await;
    one.store.copy(|_| {}).await.unwrap();
    // An empty store takes its place, which running and new processes notice.
    let empty = Two::new();
    one.empty_new(&empty.new);
    assert!(matches!(one.store.switch_over().await, Err(SwitchoverError::NotCopied)));
    let again = open(Arc::clone(&two.old), Arc::clone(&empty.new)).await;
    assert!(matches!(again.switch_over().await, Err(SwitchoverError::NotCopied)));
    assert_eq!(empty.new.get(&id("key")).await.unwrap(), None);
    moved(&again).await;
    assert_eq!(replay(&*empty.new, "key").await, "done");
}
