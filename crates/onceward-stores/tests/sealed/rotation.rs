//! Keys that are added and removed.

use std::sync::Arc;

use onceward_core::{
    Fenced, MemoryStore, ResolveRequest, Settlement, StateName, StoreAdmin as _, StoreErrorKind,
    Verdict,
};
use onceward_stores::sealed::{SealProblem, SealedStore};
use onceward_testkit::faulty::{Call, Fault, FaultyStore};

use crate::calls::unknown;

use super::common::{A, B, DAY, complete, granted, id, keys, outcome, replay, sealing, settle};

fn node(inner: &Arc<MemoryStore>, lines: &[&str]) -> SealedStore<MemoryStore> {
    SealedStore::new(Arc::clone(inner), keys(lines))
}

#[tokio::test]
async fn all_keys_open_and_the_first_one_seals() {
    let inner = Arc::new(MemoryStore::new());
    complete(&node(&inner, &[A]), "old", "sealed with a").await;
    let rotated = node(&inner, &[B, A]);
    complete(&rotated, "new", "sealed with b").await;
    assert_eq!(replay(&rotated, "old").await.unwrap(), outcome("sealed with a"));
    assert_eq!(replay(&rotated, "new").await.unwrap(), outcome("sealed with b"));
    assert_eq!(replay(&node(&inner, &[B]), "new").await.unwrap(), outcome("sealed with b"));
    assert_eq!(replay(&node(&inner, &[A]), "old").await.unwrap(), outcome("sealed with a"));
}

#[tokio::test]
async fn a_missing_key_is_named_with_what_to_do() {
    let inner = Arc::new(MemoryStore::new());
    complete(&node(&inner, &[A]), "k", "done").await;
    let error = replay(&node(&inner, &[B]), "k").await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Undecodable);
    let missing = SealProblem::UnknownKey { id: "a".into(), given: "`b`".into() };
    assert_eq!(sealing(&error).problem, missing);
    let text = sealing(&error).to_string();
    assert!(text.contains("is sealed with key `a`") && text.contains("give `a` again"), "{text}");
    assert!(text.contains(&id("k").to_string()), "{text}");
    // Given again, the key opens again.
    assert_eq!(replay(&node(&inner, &[B, A]), "k").await.unwrap(), outcome("done"));
}

#[tokio::test]
async fn a_settlement_sent_again_after_a_change_of_keys_is_the_same_one() {
    for settlement in [Settlement::Complete(outcome("done")), Settlement::Fail(outcome("done"))] {
        let inner = Arc::new(MemoryStore::new());
        let (before, after) = (node(&inner, &[A, B]), node(&inner, &[B, A]));
        let holder = granted(&before, "k").await;
        let first = settle(&before, "k", holder, settlement.clone()).await.unwrap();
        let stored = inner.get(&id("k")).await.unwrap();
        let again = settle(&after, "k", holder, settlement).await.unwrap();
        assert_eq!((first, again), (Fenced::Applied(()), Fenced::Applied(())));
        assert_eq!(inner.get(&id("k")).await.unwrap(), stored, "and changes nothing");
        for other in [Settlement::Complete(outcome("else")), Settlement::Fail(outcome("else"))] {
            assert_eq!(settle(&after, "k", holder, other).await.unwrap(), Fenced::Stale);
        }
    }
}

#[tokio::test]
async fn evidence_given_again_after_a_change_of_keys_is_the_same() {
    let inner = Arc::new(MemoryStore::new());
    let (before, after) = (node(&inner, &[A, B]), node(&inner, &[B, A]));
    let holder = granted(&before, "k").await;
    let settled = settle(&before, "k", holder, unknown()).await.unwrap();
    assert_eq!(settled, Fenced::Applied(()));
    let request = |text| {
        let verdict = Verdict::Happened(outcome(text));
        ResolveRequest { id: id("k"), fence: holder.fence, verdict, retention: DAY }
    };
    assert_eq!(before.resolve(&request("seen")).await.unwrap(), Fenced::Applied(()));
    assert_eq!(after.resolve(&request("seen")).await.unwrap(), Fenced::Applied(()));
    assert_eq!(after.resolve(&request("else")).await.unwrap(), Fenced::Stale);
    let late = settle(&after, "k", holder, Settlement::Complete(outcome("seen"))).await.unwrap();
    assert_eq!(late, Fenced::Applied(()), "the owner agrees");
}

#[tokio::test]
async fn a_grant_is_settled_by_a_process_that_did_not_see_it() {
    let inner = Arc::new(MemoryStore::new());
    let holder = granted(&node(&inner, &[A]), "k").await;
    let other = node(&inner, &[A]);
    let settled = settle(&other, "k", holder, Settlement::Complete(outcome("done"))).await.unwrap();
    assert_eq!(settled, Fenced::Applied(()));
    assert_eq!(replay(&node(&inner, &[A]), "k").await.unwrap(), outcome("done"));
}

/// A settlement is one call of the inner store, also when it is repeated: no read before or after
/// it, which could fail where the settlement itself would not.
/// it or after it, which could fail where the settlement itself would not.
#[tokio::test]
async fn settling_needs_no_other_call_of_the_store() {
    let inner = Arc::new(FaultyStore::new(|| Arc::new(MemoryStore::new())));
    let store = SealedStore::new(Arc::clone(&inner), keys(&[A]));
    let holder = granted(&store, "k").await;
    inner.on_every(Call::Admin, Fault::Fail);
    inner.on_next(1, Call::Settle, Fault::LoseReply);
    let done = || Settlement::Complete(outcome("done"));
    let error = settle(&store, "k", holder, done()).await.unwrap_err();
    assert!(error.may_have_been_applied());
    assert_eq!(settle(&store, "k", holder, done()).await.unwrap(), Fenced::Applied(()));
    inner.heal();
    assert_eq!(replay(&store, "k").await.unwrap(), outcome("done"));
}

#[tokio::test]
async fn records_without_an_outcome_need_no_key() {
    let inner = Arc::new(MemoryStore::new());
    let store = node(&inner, &[A]);
    for settlement in [unknown(), Settlement::Release] {
        let key = format!("{settlement:?}");
        let holder = granted(&store, &key).await;
        assert_eq!(settle(&store, &key, holder, settlement).await.unwrap(), Fenced::Applied(()));
    }
    let other = node(&inner, &[B]);
    let listed = other.list(&Default::default()).await.unwrap().records;
    let mut names: Vec<_> = listed.iter().map(|record| record.state.name()).collect();
    names.sort();
    assert_eq!(names, [StateName::Released, StateName::Unknown]);
}

#[tokio::test]
async fn what_is_sealed_anew_opens_without_the_old_key_and_is_otherwise_the_same() {
    let inner = Arc::new(MemoryStore::new());
    let before = node(&inner, &[A]);
    for key in ["1", "2", "3"] {
        complete(&before, key, key).await;
    }
    let holder = granted(&before, "running").await;
    let rotated = node(&inner, &[B, A]);
    complete(&rotated, "new", "new").await;
    let first = rotated.get(&id("1")).await.unwrap().unwrap();

    let (mut resealed, mut seen, mut after) = (0, 0, None);
    loop {
        let done = rotated.reseal(after, 2).await.unwrap();
        (resealed, seen) = (resealed + done.resealed, seen + done.seen);
        assert!(done.undecodable.is_empty());
        after = done.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((resealed, seen), (3, 5));
    assert_eq!(rotated.reseal(None, 100).await.unwrap().resealed, 0, "all of it is");
    let alone = node(&inner, &[B]);
    for key in ["1", "2", "3", "new"] {
        assert_eq!(replay(&alone, key).await.unwrap(), outcome(key));
    }
    let last = alone.get(&id("1")).await.unwrap().unwrap();
    let updated_at = first.updated_at + std::time::Duration::from_millis(1);
    assert_eq!(last, onceward_core::Record { updated_at, ..first });
    let late = settle(&alone, "running", holder, Settlement::Complete(outcome("late"))).await;
    assert_eq!(late.unwrap(), Fenced::Applied(()));
}

#[tokio::test]
async fn what_does_not_open_is_named_and_left_as_it_is() {
    let inner = Arc::new(MemoryStore::new());
    complete(&node(&inner, &[A]), "k", "done").await;
    let stored = inner.get(&id("k")).await.unwrap();
    let done = node(&inner, &[B]).reseal(None, 100).await.unwrap();
    assert_eq!((done.resealed, done.undecodable), (0, vec![id("k")]));
    assert_eq!(inner.get(&id("k")).await.unwrap(), stored);
}
