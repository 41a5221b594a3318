//! The cases of the suite. Each is named after the fact that it shows.

#![expect(missing_docs, reason = "the names are the facts")]

use std::sync::Arc;
use std::time::Duration;

use onceward_core::machine::is_later;
use onceward_core::{
    Begin, BusinessReference, Claim, ClaimRequest, Due, Engine, ErrorCode, Fence, Fenced,
    Fingerprint, Holder, Imported, Intent, Key, KnownReference, Lapsed, Outcome, OwnerToken,
    Policy, Query, Record, Rejection, Retained, Retention, Settled, Settlement, Sketch, State,
    StateName, Tag, Timestamp, UnknownCause, Unpurged, Verdict,
};

use super::rig::{APPLIED, Granted, Rig, complete, outcome, unknown};

pub async fn a_fresh_key_is_granted(rig: &Rig<'_>) {
    let request = rig.request("k");
    let granted = rig.granted(&request).await;
    assert_eq!((granted.operation, granted.attempt), (request.operation, 1));
    let record = rig.get("k").await.expect("the record");
    assert_eq!(record.state.name(), StateName::Running);
    assert_eq!((record.scope, record.fingerprint), (request.scope, request.fingerprint));
    assert_eq!((record.sketch, record.path), (request.sketch, request.path));
}

pub async fn the_same_token_is_granted_the_same_lease_again(rig: &Rig<'_>) {
    let request = rig.request("k");
    let first = rig.granted(&request).await;
    let again = rig.granted(&request).await;
    assert_eq!((first.lease, first.operation), (again.lease, again.operation));
    assert_eq!(again.attempt, 1);
}

pub async fn another_token_finds_it_running(rig: &Rig<'_>) {
    let first = rig.running("k").await;
    match rig.claim(&rig.request("k")).await {
        Claim::Running { operation, lease_left } => {
            assert_eq!(operation, first.operation);
            assert!(lease_left > Duration::ZERO && lease_left <= rig.lease, "{lease_left:?}");
        }
        other => panic!("{other:?}"),
    }
}

fn other_request(rig: &Rig<'_>, key: &str) -> ClaimRequest {
    let (fingerprint, sketch) =
        (Fingerprint::of_parts(&[b"other"]), Sketch::from_stored(b"other."));
    ClaimRequest { fingerprint, sketch, ..rig.request(key) }
}

/// The refusal of [`other_request`], with the first request's sketch.
fn mismatch() -> Claim {
    Claim::Mismatch { first: Sketch::from_stored(b"first.") }
}

pub async fn another_request_is_a_mismatch_even_while_the_first_is_running(rig: &Rig<'_>) {
    rig.running("k").await;
    assert_eq!(rig.claim(&other_request(rig, "k")).await, mismatch());
}

pub async fn another_request_is_a_mismatch_after_completion(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    assert_eq!(rig.settle(&granted, complete("done")).await, APPLIED);
    assert_eq!(rig.claim(&other_request(rig, "k")).await, mismatch());
    assert!(matches!(rig.claim(&rig.request("k")).await, Claim::Completed { .. }));
}

async fn replays(rig: &Rig<'_>, outcome: Outcome) {
    let granted = rig.running("k").await;
    assert_eq!(rig.settle(&granted, Settlement::Complete(outcome.clone())).await, APPLIED);
    let operation = granted.operation;
    assert_eq!(rig.claim(&rig.request("k")).await, Claim::Completed { operation, outcome });
}

pub async fn an_outcome_is_replayed_byte_for_byte(rig: &Rig<'_>) {
    let bytes: Vec<u8> = (0..=255).chain([0, 0, 10, 13]).collect();
    let outcome = Outcome::whole(Tag::from_static("raw/v1"), bytes);
    replays(rig, outcome.with_resource("payment", "pay_789 \u{1f4b6}")).await;
}

pub async fn large_outcomes_survive(rig: &Rig<'_>) {
    let bytes: Vec<u8> = (0..1 << 20).map(|index: u32| (index % 251) as u8).collect();
    replays(rig, Outcome::whole(Tag::from_static("raw/v1"), bytes)).await;
}

pub async fn a_failure_is_replayed_as_a_failure(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    assert_eq!(rig.settle(&granted, Settlement::Fail(outcome("no funds"))).await, APPLIED);
    let (operation, outcome) = (granted.operation, outcome("no funds"));
    assert_eq!(rig.claim(&rig.request("k")).await, Claim::Failed { operation, outcome });
}

pub async fn references_and_omissions_come_back_as_such(rig: &Rig<'_>) {
    let tag = Tag::from_static("ref/v1");
    replays(rig, Outcome::reference(tag.clone(), "pay_789")).await;
    let other = rig.granted(&rig.request("other")).await;
    let omitted = Outcome::omitted(tag, "");
    assert_eq!(rig.settle(&other, Settlement::Complete(omitted.clone())).await, APPLIED);
    let claim = rig.claim(&rig.request("other")).await;
    assert_eq!(claim, Claim::Completed { operation: other.operation, outcome: omitted });
}

pub async fn settling_twice_alike_is_settling_once(rig: &Rig<'_>) {
    let settlements =
        [complete("done"), Settlement::Fail(outcome("failed")), unknown(), Settlement::Release];
    for (index, settlement) in settlements.into_iter().enumerate() {
        let key = format!("k{index}");
        let granted = rig.running(&key).await;
        assert_eq!(rig.settle(&granted, settlement.clone()).await, APPLIED);
        let once = rig.get(&key).await;
        assert_eq!(rig.settle(&granted, settlement).await, APPLIED);
        assert_eq!(rig.get(&key).await, once, "the second time changes nothing");
    }
}

pub async fn settling_twice_differently_is_refused(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    assert_eq!(rig.settle(&granted, complete("done")).await, APPLIED);
    for other in
        [complete("else"), Settlement::Fail(outcome("done")), unknown(), Settlement::Release]
    {
        assert_eq!(rig.settle(&granted, other).await, Fenced::Stale);
    }
    let claim = rig.claim(&rig.request("k")).await;
    assert!(matches!(claim, Claim::Completed { outcome: it, .. } if it == outcome("done")));
}

pub async fn a_wrong_token_or_fence_settles_nothing(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    let before = rig.get("k").await;
    let owner = OwnerToken::draw(&rig.ambient);
    let stranger = Granted { holder: Holder { owner, ..granted.holder }, ..granted };
    let fence = Fence(granted.holder.fence.0 + 1);
    let ahead = Granted { holder: Holder { fence, ..granted.holder }, ..granted };
    for wrong in [stranger, ahead] {
        assert_eq!(rig.settle(&wrong, complete("forged")).await, Fenced::Stale);
        assert_eq!(rig.settle(&wrong, Settlement::Release).await, Fenced::Stale);
        assert_eq!(rig.renew(&wrong).await, Fenced::Stale);
    }
    assert_eq!(rig.get("k").await, before);
}

pub async fn settling_what_is_not_there_is_missing(rig: &Rig<'_>) {
    let holder = Holder { owner: OwnerToken::draw(&rig.ambient), fence: Fence(1) };
    let nothing = Granted { id: Rig::id("k"), holder, ..rig.running("other").await };
    assert_eq!(rig.settle(&nothing, complete("done")).await, Fenced::Missing);
    assert_eq!(rig.renew(&nothing).await, Fenced::Missing);
    assert_eq!(rig.resolve(&nothing, Verdict::DidNotHappen).await, Fenced::Missing);
    assert_eq!(rig.get("k").await, None);
}

pub async fn a_released_key_is_granted_under_a_higher_fence_and_the_same_name(rig: &Rig<'_>) {
    let first = rig.running("k").await;
    assert_eq!(rig.settle(&first, Settlement::Release).await, APPLIED);
    let second = rig.running("k").await;
    assert!(second.lease.fence > first.lease.fence);
    assert_eq!((second.operation, second.attempt), (first.operation, 2));
    assert_eq!(rig.settle(&first, complete("late")).await, Fenced::Stale);
}

pub async fn a_released_key_may_be_used_for_another_request(rig: &Rig<'_>) {
    let first = rig.running("k").await;
    assert_eq!(rig.settle(&first, Settlement::Release).await, APPLIED);
    let second = rig.granted(&other_request(rig, "k")).await;
    assert!(second.lease.fence > first.lease.fence);
    assert_ne!(second.operation, first.operation, "another intent has another name");
    assert_eq!(second.attempt, 1);
}

/// An operator would look for the wrong resource.
pub async fn a_released_key_forgets_the_path_of_its_first_request(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    assert_eq!(rig.settle(&granted, Settlement::Release).await, APPLIED);
    rig.granted(&ClaimRequest { path: None, ..rig.request("k") }).await;
    assert_eq!(rig.get("k").await.expect("the record").path, None);
}

pub async fn a_released_key_leaves_no_tombstone(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    let retention = Retention { keep: rig.lease, tombstone: rig.lease * 100 };
    assert_eq!(rig.settle_for(&granted, Settlement::Release, retention).await, APPLIED);
    rig.harness.pass(rig.lease * 2).await;
    assert_eq!(rig.running("k").await.attempt, 1, "new, not expired");
}

pub async fn a_late_duplicate_of_a_released_claim_is_not_granted(rig: &Rig<'_>) {
    let request = rig.request("k");
    let granted = rig.granted(&request).await;
    assert_eq!(rig.settle(&granted, Settlement::Release).await, APPLIED);
    assert!(matches!(rig.claim(&request).await, Claim::Running { .. }));
    rig.granted(&rig.request("k")).await;
}

pub async fn a_lapsed_lease_is_unknown_to_everybody(rig: &Rig<'_>) {
    let request = rig.request("k");
    let granted = rig.granted(&request).await;
    rig.lapse().await;
    let unknown = Claim::Unknown { operation: granted.operation };
    assert_eq!(rig.claim(&rig.request("k")).await, unknown);
    let stored = rig.get("k").await.map(|record| record.state.name());
    assert_eq!(stored, Some(StateName::Unknown), "who was told so can rely on it");
    assert_eq!(rig.claim(&request).await, unknown, "its own token too");
    assert_eq!(rig.claim(&other_request(rig, "k")).await, mismatch());
}

fn takeover(rig: &Rig<'_>, key: &str) -> ClaimRequest {
    ClaimRequest { lapsed: Lapsed::Takeover, ..rig.request(key) }
}

pub async fn a_lapsed_lease_is_taken_over_where_asked_for(rig: &Rig<'_>) {
    let first = rig.running("k").await;
    let second = takeover(rig, "k");
    assert!(matches!(rig.claim(&second).await, Claim::Running { .. }), "not while it lives");
    rig.lapse().await;
    let second = rig.granted(&second).await;
    assert!(second.lease.fence > first.lease.fence);
    assert_eq!((second.operation, second.attempt), (first.operation, 2));
}

pub async fn a_late_duplicate_does_not_take_over_its_own_claim(rig: &Rig<'_>) {
    let request = takeover(rig, "k");
    let granted = rig.granted(&request).await;
    rig.lapse().await;
    assert!(matches!(rig.claim(&request).await, Claim::Running { .. }));
    assert_eq!(rig.settle(&granted, complete("late")).await, APPLIED, "still the holder");
}

async fn taken_over(rig: &Rig<'_>) -> (Granted, Granted) {
    let first = rig.running("k").await;
    rig.lapse().await;
    (first, rig.granted(&takeover(rig, "k")).await)
}

pub async fn stale_owner_cannot_complete_after_takeover(rig: &Rig<'_>) {
    let (stale, current) = taken_over(rig).await;
    assert_eq!(rig.settle(&stale, complete("stale")).await, Fenced::Stale);
    assert_eq!(rig.settle(&current, complete("current")).await, APPLIED);
    let claim = rig.claim(&rig.request("k")).await;
    assert!(matches!(claim, Claim::Completed { outcome: it, .. } if it == outcome("current")));
}

pub async fn stale_owner_can_neither_renew_nor_release_after_takeover(rig: &Rig<'_>) {
    let (stale, current) = taken_over(rig).await;
    let before = rig.get("k").await;
    assert_eq!(rig.renew(&stale).await, Fenced::Stale);
    assert_eq!(rig.settle(&stale, Settlement::Release).await, Fenced::Stale);
    assert_eq!(rig.settle(&stale, unknown()).await, Fenced::Stale);
    assert_eq!(rig.get("k").await, before);
    assert!(matches!(rig.renew(&current).await, Fenced::Applied(_)));
}

pub async fn who_took_over_cannot_say_that_nothing_happened(rig: &Rig<'_>) {
    let (_, current) = taken_over(rig).await;
    assert_eq!(rig.settle(&current, Settlement::Release).await, APPLIED);
    // The first owner may have had its effect, so the key is not free.
    assert_eq!(rig.claim(&other_request(rig, "k")).await, mismatch());
    let third = rig.granted(&takeover(rig, "k")).await;
    assert_eq!((third.operation, third.attempt), (current.operation, 3));
    assert_eq!(rig.settle(&third, Settlement::Release).await, APPLIED);
    assert!(matches!(rig.claim(&rig.request("k")).await, Claim::Unknown { .. }));
}

pub async fn late_completion_by_the_same_fence_is_accepted(rig: &Rig<'_>) {
    for (key, seen) in [("seen as unknown", true), ("not looked at", false)] {
        let granted = rig.running(key).await;
        rig.lapse().await;
        if seen {
            assert!(matches!(rig.claim(&rig.request(key)).await, Claim::Unknown { .. }));
        }
        assert_eq!(rig.settle(&granted, complete("late")).await, APPLIED);
        assert!(matches!(rig.claim(&rig.request(key)).await, Claim::Completed { .. }));
    }
}

pub async fn renewal_extends_a_live_lease(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    for _ in 0..3 {
        rig.harness.pass(rig.lease * 2 / 3).await;
        match rig.renew(&granted).await {
            Fenced::Applied(lease) => {
                assert!(lease.until > granted.lease.until);
                assert_eq!(lease.fence, granted.lease.fence);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(rig.claim(&rig.request("k")).await, Claim::Running { .. }));
}

pub async fn renewal_is_refused_after_the_lapse(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    rig.lapse().await;
    assert_eq!(rig.renew(&granted).await, Fenced::Stale);
    assert!(matches!(rig.claim(&rig.request("k")).await, Claim::Unknown { .. }));
}

pub async fn a_late_renewal_does_not_stop_a_takeover(rig: &Rig<'_>) {
    let stale = rig.running("k").await;
    rig.lapse().await;
    assert_eq!(rig.renew(&stale).await, Fenced::Stale);
    assert_eq!(rig.resolve(&stale, Verdict::StillUnknown).await, APPLIED);
    assert_eq!(rig.granted(&takeover(rig, "k")).await.attempt, 2);
}

pub async fn unknown_is_left_neither_by_claims_nor_by_time(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    assert_eq!(rig.settle(&granted, unknown()).await, APPLIED);
    for _ in 0..3 {
        let claim = rig.claim(&takeover(rig, "k")).await;
        assert_eq!(claim, Claim::Unknown { operation: granted.operation });
        rig.harness.pass(rig.lease * 2).await;
        rig.store.purge(100).await.expect("purge");
    }
}

/// Why a key's record is unknown, as it is stored.
async fn stored_cause(rig: &Rig<'_>, key: &str) -> Option<UnknownCause> {
    match rig.get(key).await.expect("the record").state {
        State::Unknown { cause } => Some(cause),
        _ => None,
    }
}

fn causes() -> [UnknownCause; 5] {
    let texts =
        ["status 502", "reported: no answer \u{1f4b6}", "cut", "unrecorded", "of a newer release"];
    texts.map(UnknownCause::parse)
}

pub async fn an_unknown_outcome_keeps_its_first_cause(rig: &Rig<'_>) {
    for (index, cause) in causes().into_iter().enumerate() {
        let key = format!("k{index}");
        let granted = rig.running(&key).await;
        for said in [cause.clone(), UnknownCause::Shutdown] {
            assert_eq!(rig.settle(&granted, Settlement::Unknown(said)).await, APPLIED);
            assert_eq!(stored_cause(rig, &key).await.as_ref(), Some(&cause));
        }
        rig.claim(&rig.request(&key)).await;
        assert_eq!(stored_cause(rig, &key).await, Some(cause), "after a claim");
        assert_eq!(rig.resolve(&granted, Verdict::DidNotHappen).await, APPLIED);
        assert_eq!(stored_cause(rig, &key).await, None, "after evidence");
    }
}

pub async fn a_lapse_that_a_claim_finds_is_stored_as_the_cause(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    rig.lapse().await;
    assert!(matches!(rig.claim(&rig.request("k")).await, Claim::Unknown { .. }));
    assert_eq!(stored_cause(rig, "k").await, Some(UnknownCause::Lapsed));
    assert_eq!(rig.settle(&granted, unknown()).await, APPLIED);
    assert_eq!(stored_cause(rig, "k").await, Some(UnknownCause::Lapsed));
    assert_eq!(rig.settle(&granted, complete("late")).await, APPLIED);
    assert_eq!(stored_cause(rig, "k").await, None);
}

pub async fn an_imported_unknown_keeps_its_cause(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    assert_eq!(rig.settle(&granted, unknown()).await, APPLIED);
    let record = rig.get("k").await.expect("the record");
    for (index, cause) in causes().into_iter().enumerate() {
        let key = format!("other {index}");
        let record = Record { state: State::Unknown { cause }, ..moved(&record, &key) };
        assert_eq!(import(rig, &record).await, Imported::Written);
        assert_eq!(rig.get(&key).await, Some(record));
    }
}

pub async fn status_and_error_code_are_kept_beside_an_outcome(rig: &Rig<'_>) {
    let declined = outcome("no").with_status(402).with_error_code(ErrorCode::new("declined"));
    let made = outcome("done").with_status(201).with_resource("payment", "pay_789");
    let settlements = [Settlement::Fail(declined.clone()), Settlement::Complete(made.clone())];
    for (key, settlement) in ["declined", "made"].into_iter().zip(settlements) {
        let granted = rig.running(key).await;
        for _ in 0..2 {
            assert_eq!(rig.settle(&granted, settlement.clone()).await, APPLIED);
        }
        let other = Settlement::Fail(outcome("no").with_status(409));
        assert_eq!(rig.settle(&granted, other).await, Fenced::Stale);
    }
    for (key, wanted) in [("declined", declined), ("made", made)] {
        let record = rig.get(key).await.expect("the record");
        assert_eq!(record.state.outcome(), Some(&wanted));
        match rig.claim(&rig.request(key)).await {
            Claim::Completed { outcome, .. } | Claim::Failed { outcome, .. } => {
                assert_eq!(outcome, wanted);
            }
            other => panic!("{other:?}"),
        }
        let record = moved(&record, &format!("{key}, imported"));
        assert_eq!(import(rig, &record).await, Imported::Written);
        assert_eq!(rig.get(&format!("{key}, imported")).await, Some(record));
    }
}

pub async fn evidence_that_it_happened_completes(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    rig.lapse().await;
    for _ in 0..2 {
        assert_eq!(rig.resolve(&granted, Verdict::Happened(outcome("seen"))).await, APPLIED);
    }
    let claim = rig.claim(&rig.request("k")).await;
    assert!(matches!(claim, Claim::Completed { outcome: it, .. } if it == outcome("seen")));
    assert_eq!(rig.settle(&granted, complete("mine")).await, Fenced::Stale);
    assert_eq!(rig.settle(&granted, complete("seen")).await, APPLIED, "they agree");
}

pub async fn evidence_that_it_did_not_happen_frees_the_key(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    assert_eq!(rig.settle(&granted, unknown()).await, APPLIED);
    assert_eq!(rig.resolve(&granted, Verdict::StillUnknown).await, APPLIED);
    assert!(matches!(rig.claim(&rig.request("k")).await, Claim::Unknown { .. }));
    assert_eq!(rig.resolve(&granted, Verdict::DidNotHappen).await, APPLIED);
    let again = rig.running("k").await;
    assert!(again.lease.fence > granted.lease.fence);
    assert_eq!(rig.settle(&granted, complete("late")).await, Fenced::Stale);
}

pub async fn evidence_about_an_old_fence_is_refused(rig: &Rig<'_>) {
    let (stale, current) = taken_over(rig).await;
    rig.lapse().await;
    let happened = Verdict::Happened(outcome("old"));
    assert_eq!(rig.resolve(&stale, happened.clone()).await, Fenced::Stale);
    assert_eq!(rig.resolve(&current, happened).await, APPLIED);
}

pub async fn evidence_about_a_live_lease_is_refused(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    let before = rig.get("k").await;
    for verdict in [Verdict::DidNotHappen, Verdict::StillUnknown] {
        assert_eq!(rig.resolve(&granted, verdict).await, Fenced::Stale);
    }
    assert_eq!(rig.get("k").await, before);
}

pub async fn an_invalidated_outcome_is_not_replayed_and_its_key_does_not_run_again(rig: &Rig<'_>) {
    let labelled = outcome("personal data").with_status(402);
    let labelled = labelled.with_error_code(ErrorCode::new("card_declined"));
    let settlements = [Settlement::Complete(labelled.clone()), Settlement::Fail(labelled.clone())];
    for (index, settlement) in settlements.into_iter().enumerate() {
        let key = format!("k{index}");
        let granted = rig.running(&key).await;
        let retention = Retention { keep: rig.lease * 4, tombstone: Duration::ZERO };
        assert_eq!(rig.settle_for(&granted, settlement.clone(), retention).await, APPLIED);
        let before = rig.get(&key).await.expect("the record");
        assert!(!matches!(rig.claim(&rig.request(&key)).await, Claim::Granted { .. }));
        assert_eq!(rig.invalidate(&granted).await, APPLIED);
        let after = rig.get(&key).await.expect("the record");
        let (operation, outcome) = (granted.operation, labelled.invalidated());
        let replay = match &settlement {
            Settlement::Complete(_) => Claim::Completed { operation, outcome: outcome.clone() },
            _ => Claim::Failed { operation, outcome: outcome.clone() },
        };
        assert_eq!(after.state.outcome(), Some(&outcome));
        assert_eq!(after.state.retained(), before.state.retained());
        assert!(is_later(&after, &before), "no copy from before replaces it");
        assert_eq!(rig.claim(&rig.request(&key)).await, replay);
        assert_eq!(rig.claim(&takeover(rig, &key)).await, replay);
        assert_eq!(rig.claim(&other_request(rig, &key)).await, mismatch());

        // Nothing brings the content back: neither its owner, nor a copy, nor evidence.
        assert_eq!(rig.settle_for(&granted, settlement, retention).await, Fenced::Stale);
        assert_eq!(import(rig, &before).await, Imported::Kept);
        let happened = Verdict::Happened(labelled.clone());
        assert_eq!(rig.resolve(&granted, happened).await, Fenced::Stale);
        assert_eq!(rig.invalidate(&granted).await, APPLIED, "again");
        assert_eq!(rig.get(&key).await.as_ref(), Some(&after), "the second time changes nothing");
        rig.harness.pass(retention.keep).await;
        assert_eq!(rig.invalidate(&granted).await, Fenced::Missing, "past its time");
        assert_eq!(rig.running(&key).await.attempt, 1, "new after its retention, as before");
    }
}

pub async fn only_a_settled_record_is_invalidated(rig: &Rig<'_>) {
    let done = rig.running("done").await;
    assert_eq!(rig.settle(&done, complete("done")).await, APPLIED);
    let fence = Fence(done.holder.fence.0 + 1);
    let ahead = Granted { holder: Holder { fence, ..done.holder }, ..done };
    assert_eq!(rig.invalidate(&ahead).await, Fenced::Stale, "another fence");
    assert_eq!(rig.invalidate(&Granted { id: Rig::id("none"), ..done }).await, Fenced::Missing);
    let lost = rig.running("unknown").await;
    assert_eq!(rig.settle(&lost, unknown()).await, APPLIED);
    let released = rig.running("released").await;
    assert_eq!(rig.settle(&released, Settlement::Release).await, APPLIED);
    let expired = rig.running("expired").await;
    let short = Retention { keep: rig.lease, tombstone: rig.lease * 100 };
    assert_eq!(rig.settle_for(&expired, complete("done"), short).await, APPLIED);
    rig.harness.pass(rig.lease).await;
    let running = rig.running("running").await;
    for (key, granted) in
        [("unknown", lost), ("released", released), ("expired", expired), ("running", running)]
    {
        let before = rig.get(key).await;
        assert_eq!(rig.invalidate(&granted).await, Fenced::Stale, "{key}");
        assert_eq!(rig.get(key).await, before, "{key}");
    }
    assert_eq!(rig.settle(&running, complete("done")).await, APPLIED);
    assert!(matches!(rig.claim(&rig.request("done")).await, Claim::Completed { .. }));
}

pub async fn inside_retention_it_is_replayed_and_afterwards_new(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    let retention = Retention { keep: rig.lease * 2, tombstone: Duration::ZERO };
    assert_eq!(rig.settle_for(&granted, complete("done"), retention).await, APPLIED);
    rig.harness.pass(rig.lease).await;
    assert!(matches!(rig.claim(&rig.request("k")).await, Claim::Completed { .. }));
    rig.harness.pass(rig.lease * 2).await;
    let anew = rig.running("k").await;
    assert_ne!(anew.operation, granted.operation, "a new intent has a new name");
    assert_eq!(anew.attempt, 1);
}

pub async fn a_tombstone_answers_expired_and_then_the_key_is_new(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    let retention = Retention { keep: rig.lease, tombstone: rig.lease * 2 };
    assert_eq!(rig.settle_for(&granted, complete("done"), retention).await, APPLIED);
    rig.harness.pass(rig.lease * 2).await;
    for _ in 0..2 {
        assert_eq!(rig.claim(&rig.request("k")).await, Claim::Expired);
        assert_eq!(rig.settle(&granted, complete("done")).await, Fenced::Stale);
        rig.store.purge(100).await.expect("purge");
    }
    let record = rig.get("k").await.expect("the tombstone");
    assert_eq!((record.state.name(), record.state.outcome()), (StateName::Expired, None));
    assert_eq!((record.sketch, record.path), (Sketch::default(), None), "of the request");
    rig.harness.pass(rig.lease * 2).await;
    rig.running("k").await;
}

pub async fn what_is_past_its_time_is_absent_before_it_is_purged(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    let retention = Retention { keep: rig.lease, tombstone: Duration::ZERO };
    assert_eq!(rig.settle_for(&granted, complete("done"), retention).await, APPLIED);
    rig.harness.pass(rig.lease * 2).await;
    assert_eq!(rig.settle(&granted, complete("done")).await, Fenced::Missing);
    assert_eq!(rig.renew(&granted).await, Fenced::Missing);
    let page = rig.store.list(&Query::default()).await.expect("a page");
    assert_eq!(page.records.len(), 0);
}

pub async fn purging_takes_what_is_due_in_chunks_and_nothing_else(rig: &Rig<'_>) {
    let short = Retention { keep: rig.lease, tombstone: Duration::ZERO };
    for index in 0..5 {
        let granted = rig.running(&format!("due {index}")).await;
        assert_eq!(rig.settle_for(&granted, complete("done"), short).await, APPLIED);
    }
    let kept = rig.running("kept").await;
    assert_eq!(rig.settle(&kept, complete("kept")).await, APPLIED);
    let unclear = rig.running("unknown").await;
    assert_eq!(rig.settle(&unclear, unknown()).await, APPLIED);
    rig.running("running").await;
    rig.harness.pass(rig.lease * 3).await;

    let first = rig.store.purge(3).await.expect("purge");
    assert_eq!((first.removed, first.more), (3, true));
    let rest = rig.store.purge(3).await.expect("purge");
    assert_eq!((rest.removed, rest.more), (2, false));
    assert_eq!(rig.store.purge(3).await.expect("purge").removed, 0);
    for key in ["kept", "unknown", "running"] {
        assert!(rig.get(key).await.is_some(), "{key} is still there");
    }
    assert_eq!(rig.get("due 0").await, None);
}

/// The ids of records that are due, and whether there are more.
async fn due(rig: &Rig<'_>, limit: usize) -> (Vec<Record>, bool) {
    let Due { mut records, more } = rig.store.due(limit).await.expect("due records");
    records.sort_unstable_by_key(|record| record.id);
    (records, more)
}

async fn purge_versions(rig: &Rig<'_>, records: &[Record]) -> (usize, usize) {
    let versions: Vec<_> = records.iter().map(Record::version).collect();
    let purged = rig.store.purge_versions(&versions).await.expect("a purge");
    (purged.removed, purged.tombstoned)
}

pub async fn what_is_due_is_listed_and_purged_only_as_it_was_listed(rig: &Rig<'_>) {
    if !rig.store.archives() {
        return;
    }
    let keep = Retention { keep: rig.lease, tombstone: Duration::ZERO };
    let bury = Retention { tombstone: rig.lease * 50, ..keep };
    let gone = rig.running("gone").await;
    let labelled = outcome("gone").with_status(201).with_resource("payment", "pay_789");
    let done = Settlement::Complete(labelled);
    assert_eq!(rig.settle_for(&gone, done, keep).await, APPLIED);
    let buried = rig.running("buried").await;
    assert_eq!(rig.settle_for(&buried, Settlement::Fail(outcome("no")), bury).await, APPLIED);
    let kept = rig.running("kept").await;
    assert_eq!(rig.settle(&kept, complete("kept")).await, APPLIED);
    let lost = rig.running("lost").await;
    assert_eq!(rig.settle(&lost, unknown()).await, APPLIED);
    rig.running("running").await;
    assert_eq!(due(rig, 10).await, (vec![], false));
    assert_eq!(purge_versions(rig, &[]).await, (0, 0));
    let stored = [rig.get("gone").await, rig.get("buried").await, rig.get("kept").await];
    let [gone, buried, kept] = stored.map(|record| record.expect("the record"));
    rig.harness.pass(rig.lease * 3 / 2).await;

    let (listed, more) = due(rig, 10).await;
    let ids = |records: &[Record]| records.iter().map(|it| it.id).collect::<Vec<_>>();
    let mut expected = vec![gone.id, buried.id];
    expected.sort_unstable();
    assert_eq!((ids(&listed), more), (expected, false));
    assert_eq!(due(rig, 10).await.0, listed, "listing changes nothing");
    // Neither a record that is not due nor another version of one that is.
    assert_eq!(purge_versions(rig, &[kept]).await, (0, 0));
    let tick = Duration::from_millis(1);
    for record in &listed {
        let other = [
            Record { fence: Fence(record.fence.0 - 1), ..record.clone() },
            Record { updated_at: record.updated_at + tick, ..record.clone() },
            Record {
                state: State::Released {
                    retained: record.state.retained().expect("it is settled"),
                },
                ..record.clone()
            },
        ];
        assert_eq!(purge_versions(rig, &other).await, (0, 0), "{record:?}");
    }
    assert_eq!(due(rig, 10).await.0, listed, "they stay");
    assert_eq!(purge_versions(rig, &listed).await, (1, 1));
    assert_eq!(purge_versions(rig, &listed).await, (0, 0), "once");
    assert_eq!(rig.get("gone").await, None);
    assert_eq!(rig.get("buried").await.map(|it| it.state.name()), Some(StateName::Expired));
    assert_eq!(rig.claim(&rig.request("buried")).await, Claim::Expired);
    assert!(matches!(rig.claim(&rig.request("kept")).await, Claim::Completed { .. }));
    assert_eq!(due(rig, 10).await, (vec![], false));
    rig.harness.pass(rig.lease * 50).await;
    let (listed, _) = due(rig, 10).await;
    assert_eq!(listed.iter().map(|it| it.state.name()).collect::<Vec<_>>(), [StateName::Expired]);
    assert_eq!(purge_versions(rig, &listed).await, (1, 0));
    assert_eq!(rig.get("buried").await, None);
    let again = rig.running("gone").await;
    assert!(again.lease.fence > gone.fence, "as after every purge");
}

pub async fn what_is_due_is_listed_in_chunks_and_never_starves(rig: &Rig<'_>) {
    if !rig.store.archives() {
        return;
    }
    let keep = Retention { keep: rig.lease, tombstone: Duration::ZERO };
    for index in 0..9 {
        let granted = rig.running(&format!("k{index}")).await;
        assert_eq!(rig.settle_for(&granted, complete("done"), keep).await, APPLIED);
    }
    rig.harness.pass(rig.lease * 3 / 2).await;
    // A key that is used again leaves nothing behind that stands in the way.
    assert_eq!(rig.running("k0").await.attempt, 1);
    let (mut seen, mut rounds) = (0, 0);
    loop {
        let (listed, more) = due(rig, 3).await;
        assert!(listed.len() <= 3);
        seen += listed.len();
        assert_eq!(purge_versions(rig, &listed).await, (listed.len(), 0));
        rounds += 1;
        assert!(rounds < 10, "it ends");
        if !more && listed.is_empty() {
            break;
        }
    }
    assert_eq!(seen, 8);
    assert!(rig.get("k0").await.is_some());
}

pub async fn a_record_past_its_time_is_kept_from_claims_that_ask_for_it(rig: &Rig<'_>) {
    let keep = Retention { keep: rig.lease, tombstone: Duration::ZERO };
    let granted = rig.running("k").await;
    assert_eq!(rig.settle_for(&granted, complete("done"), keep).await, APPLIED);
    let request = |key: &str| ClaimRequest { unpurged: Unpurged::Keep, ..rig.request(key) };
    assert!(matches!(rig.claim(&request("k")).await, Claim::Completed { .. }));
    rig.harness.pass(rig.lease * 3 / 2).await;
    assert_eq!(rig.claim(&request("k")).await, Claim::Expired);
    assert_eq!(
        rig.claim(&ClaimRequest { lapsed: Lapsed::Takeover, ..request("k") }).await,
        Claim::Expired
    );
    let stored = rig.get("k").await.expect("it stays");
    assert_eq!(stored.state.outcome(), Some(&outcome("done")));
    assert_eq!(rig.store.purge(100).await.expect("a purge").removed, 1);
    assert_eq!(rig.granted(&request("k")).await.attempt, 1, "new, once it is removed");
    assert_eq!(rig.granted(&request("new")).await.attempt, 1);
}

pub async fn fences_increase_even_when_the_record_was_forgotten(rig: &Rig<'_>) {
    if !rig.harness.traits().fences_outlive_records {
        return;
    }
    let short = Retention { keep: rig.lease, tombstone: Duration::ZERO };
    let mut last = Fence(0);
    for _ in 0..4 {
        let granted = rig.running("k").await;
        assert!(granted.lease.fence > last);
        last = granted.lease.fence;
        assert_eq!(rig.settle_for(&granted, complete("done"), short).await, APPLIED);
        rig.harness.pass(rig.lease * 2).await;
        rig.store.purge(100).await.expect("purge");
    }
}

pub async fn keys_do_not_see_each_other(rig: &Rig<'_>) {
    let first = rig.granted(&rig.request_of("a", "k")).await;
    let second = rig.granted(&rig.request_of("b", "k")).await;
    assert_ne!((first.id, first.operation), (second.id, second.operation));
    assert_eq!(rig.settle(&first, complete("a's")).await, APPLIED);
    assert!(matches!(rig.claim(&rig.request_of("b", "k")).await, Claim::Running { .. }));
}

async fn granted_of(rig: &Rig<'_>, requests: Vec<ClaimRequest>) -> usize {
    let tasks: Vec<_> = requests
        .into_iter()
        .map(|request| {
            let store = Arc::clone(&rig.store);
            tokio::spawn(async move { store.claim(&request).await.expect("a claim") })
        })
        .collect();
    let mut granted = 0;
    for task in tasks {
        granted += usize::from(matches!(task.await.expect("a task"), Claim::Granted { .. }));
    }
    granted
}

pub async fn of_concurrent_claims_one_is_granted(rig: &Rig<'_>) {
    for round in 0..5 {
        let key = format!("k{round}");
        let requests = (0..64).map(|_| rig.request(&key)).collect();
        assert_eq!(granted_of(rig, requests).await, 1);
    }
}

pub async fn of_concurrent_takeovers_one_is_granted(rig: &Rig<'_>) {
    rig.running("k").await;
    rig.lapse().await;
    let requests = (0..64).map(|_| takeover(rig, "k")).collect();
    assert_eq!(granted_of(rig, requests).await, 1);
}

pub async fn listing_pages_through_all_records_once(rig: &Rig<'_>) {
    for index in 0..25 {
        rig.running(&format!("k{index}")).await;
    }
    let (mut seen, mut query) = (Vec::new(), Query { limit: 10, ..Query::default() });
    loop {
        let page = rig.store.list(&query).await.expect("a page");
        assert!(page.records.len() <= 10);
        seen.extend(page.records.iter().map(|record| record.id));
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen.len(), 25);
    assert!(seen.is_sorted_by(|a, b| a < b), "in order, each once");
}

pub async fn listing_selects_by_standing_and_tenant(rig: &Rig<'_>) {
    let lapsing = rig.running("lapsing").await;
    rig.lapse().await;
    rig.running("running").await;
    rig.granted(&rig.request_of("other", "k")).await;
    let list = async |query: Query| rig.store.list(&query).await.expect("a page").records;

    let unknown = list(Query { standing: Some(StateName::Unknown), ..Query::default() }).await;
    assert_eq!(unknown.iter().map(|it| it.id).collect::<Vec<_>>(), [lapsing.id]);
    let other = list(Query { tenant: Some("other".into()), ..Query::default() }).await;
    assert_eq!(other.len(), 1);
    let none = list(Query { operation_name: Some("else".into()), ..Query::default() }).await;
    assert_eq!(none.len(), 0);
}

pub async fn an_operation_is_found_by_its_name_wherever_it_stands(rig: &Rig<'_>) {
    let mut granted = Vec::new();
    for index in 0..20 {
        // Longer than this takes, also on a busy machine.
        let request = rig.request(&format!("k{index}"));
        granted.push(rig.granted(&ClaimRequest { lease: rig.lease * 100, ..request }).await);
    }
    assert_eq!(rig.settle(&granted[0], complete("done")).await, APPLIED);
    assert_eq!(rig.settle(&granted[1], unknown()).await, APPLIED);
    for it in &granted {
        let found = rig.store.find(&it.operation).await.unwrap().expect("the operation");
        assert_eq!((found.id, found.operation), (it.id, it.operation));
        let is_unknown = rig.store.is_unknown(&found).await.unwrap();
        assert_eq!(is_unknown, it.id == granted[1].id, "{found:?}");
    }
    let lapsing = rig.running("lapsing").await;
    rig.lapse().await;
    let lapsed = rig.store.find(&lapsing.operation).await.unwrap().expect("the operation");
    assert!(rig.store.is_unknown(&lapsed).await.unwrap());
    let unclaimed = rig.request("k0").operation;
    assert_eq!(rig.store.find(&unclaimed).await.unwrap(), None);
}

pub async fn a_business_reference_is_known_when_its_key_is_forgotten(rig: &Rig<'_>) {
    let keep = rig.lease * 2;
    let policy = Policy::builder().lease(rig.lease).retention(keep).reference_retention(keep * 10);
    let engine = Engine::builder(Arc::clone(&rig.store)).policy(policy.build().unwrap()).build();
    let reference = BusinessReference::new("RF18-5390", KnownReference::Replay).unwrap();
    let intent = |key: &str, request: &[u8]| {
        let fingerprint = Fingerprint::of_parts(&[request]);
        Intent::new(Rig::scope("tenant"), Key::new(key).unwrap(), fingerprint)
            .with_reference(reference.clone())
    };
    let Begin::Execute(permit) = engine.begin(&intent("k1", b"pay")).await.unwrap() else {
        panic!("the first one runs");
    };
    let operation = permit.operation();
    assert_eq!(permit.complete(outcome("paid")).await, Settled::Durable);
    for _ in 0..2 {
        for key in ["k1", "k2"] {
            match engine.begin(&intent(key, b"pay")).await.unwrap() {
                Begin::Replay(replay) => {
                    assert_eq!((replay.operation, replay.outcome), (operation, outcome("paid")));
                }
                other => panic!("{other:?}"),
            }
        }
        rig.harness.pass(keep * 2).await;
    }
    let taken = engine.begin(&intent("k3", b"other")).await.unwrap();
    assert!(matches!(taken, Begin::Reject(Rejection::ReferenceTaken { .. })), "{taken:?}");
}

pub async fn stats_count_what_is_there(rig: &Rig<'_>) {
    rig.running("running").await;
    let done = rig.running("done").await;
    assert_eq!(rig.settle(&done, complete("done")).await, APPLIED);
    let stats = rig.store.stats().await.expect("stats");
    assert_eq!(stats.records, 2);
    assert!(stats.bytes > 0);
    let count = |name: StateName| stats.by_state[name as usize];
    assert_eq!((count(StateName::Running), count(StateName::Completed)), (1, 1));
}

pub async fn stats_count_lapsed_claims_as_unknown_and_tell_the_oldest(rig: &Rig<'_>) {
    let counts = async || {
        let stats = rig.store.stats().await.expect("stats");
        let count = |name: StateName| stats.by_state[name as usize];
        let open = (count(StateName::Running), count(StateName::Unknown));
        (open, stats.oldest_unknown)
    };
    let changed = async |key: &str| Some(rig.get(key).await.expect("the record").updated_at);
    assert_eq!(counts().await, ((0, 0), None));
    let said = rig.running("said").await;
    assert_eq!(rig.settle(&said, unknown()).await, APPLIED);
    rig.harness.pass(Duration::from_millis(5)).await;
    let lapsed = rig.running("lapsed").await;
    rig.lapse().await;
    let long = ClaimRequest { lease: rig.lease * 100, ..rig.request("running") };
    rig.granted(&long).await;
    assert_eq!(counts().await, ((1, 2), changed("said").await));
    assert_eq!(rig.resolve(&said, Verdict::DidNotHappen).await, APPLIED);
    assert_eq!(counts().await, ((1, 1), changed("lapsed").await));
    assert!(matches!(rig.claim(&rig.request("lapsed")).await, Claim::Unknown { .. }));
    assert_eq!(counts().await, ((1, 1), changed("lapsed").await), "once the lapse is stored");
    assert_eq!(rig.settle(&lapsed, complete("late")).await, APPLIED);
    assert_eq!(counts().await, ((1, 0), None));
}

/// Records of every state and with every field, as another store would have them.
async fn exported(rig: &Rig<'_>) -> Vec<Record> {
    // Longer than this takes, also on a busy machine.
    let request = ClaimRequest { lease: rig.lease * 100, ..rig.request("k") };
    let granted = rig.granted(&request).await;
    let running = rig.get("k").await.expect("the record");
    assert_eq!(rig.settle(&granted, complete("done")).await, APPLIED);
    let completed = rig.get("k").await.expect("the record");
    let retained = completed.state.retained().expect("it is settled");
    let later = |duration| Retained { tombstone_until: retained.until + duration, ..retained };
    let named = outcome("no").with_resource("payment", "pay_789 \u{1f4b6}");
    // As in shadow mode: no request can name this region, and records of it can be read.
    let scope = Rig::scope("tenant").with_restored_region("onceward:shadow").unwrap();
    let scope = scope.with_parent("cart-1").unwrap();
    let other = |state| Record { state, ..running.clone() };
    let unknown = Record {
        key: Some(Key::new("kept").unwrap()),
        scope: scope.with_api_version("2026-11").unwrap(),
        taken_over: true,
        attempts: 7,
        ..other(State::Unknown { cause: UnknownCause::Status(502) })
    };
    let tombstone = Record {
        sketch: Sketch::default(),
        path: None,
        ..other(State::Expired { retained: later(rig.lease) })
    };
    vec![
        other(State::Failed { outcome: named, retained: later(rig.lease) }),
        other(State::Released { retained }),
        unknown,
        tombstone,
        completed,
        running,
    ]
}

/// The same record under another key, whose record the store does not have.
fn moved(record: &Record, key: &str) -> Record {
    Record { id: Rig::id(key), ..record.clone() }
}

async fn import(rig: &Rig<'_>, record: &Record) -> Imported {
    rig.store.import(record).await.expect("an import")
}

pub async fn an_imported_record_is_the_one_that_was_exported(rig: &Rig<'_>) {
    for (index, record) in exported(rig).await.iter().enumerate() {
        let key = format!("other {index}");
        let record = moved(record, &key);
        for imported in [Imported::Written, Imported::Kept] {
            assert_eq!(import(rig, &record).await, imported, "{record:?}");
            assert_eq!(rig.get(&key).await.as_ref(), Some(&record));
        }
    }
    let stats = rig.store.stats().await.expect("stats");
    assert_eq!((stats.records, stats.by_state), (7, [1, 2, 1, 1, 1, 1]));
}

pub async fn an_imported_outcome_is_replayed(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    assert_eq!(rig.settle(&granted, complete("done")).await, APPLIED);
    let record = moved(&rig.get("k").await.expect("the record"), "other");
    assert_eq!(import(rig, &record).await, Imported::Written);
    let done = Claim::Completed { operation: granted.operation, outcome: outcome("done") };
    assert_eq!(rig.claim(&rig.request("other")).await, done);
    assert_eq!(rig.claim(&other_request(rig, "other")).await, mismatch());
    let holder = Granted { id: record.id, ..granted };
    assert_eq!(rig.settle(&holder, complete("done")).await, APPLIED, "as before");
    assert_eq!(rig.settle(&holder, complete("else")).await, Fenced::Stale);
}

pub async fn an_imported_lease_is_held_by_its_holder_who_renews_and_settles(rig: &Rig<'_>) {
    let request = rig.request("k");
    let granted = rig.granted(&request).await;
    let record = moved(&rig.get("k").await.expect("the record"), "other");
    assert_eq!(import(rig, &record).await, Imported::Written);
    let running = rig.claim(&rig.request("other")).await;
    assert!(matches!(running, Claim::Running { .. }), "{running:?}");
    let again = rig.granted(&ClaimRequest { id: record.id, ..request }).await;
    assert_eq!((again.lease, again.operation), (granted.lease, granted.operation));
    let renewed = rig.renew(&again).await;
    assert!(matches!(renewed, Fenced::Applied(_)), "{renewed:?}");
    assert_eq!(rig.settle(&again, complete("done")).await, APPLIED);
    assert!(matches!(rig.claim(&rig.request("other")).await, Claim::Completed { .. }));
}

pub async fn an_imported_unknown_is_left_by_evidence_only(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    assert_eq!(rig.settle(&granted, unknown()).await, APPLIED);
    let record = moved(&rig.get("k").await.expect("the record"), "other");
    assert_eq!(import(rig, &record).await, Imported::Written);
    let unknown = Claim::Unknown { operation: granted.operation };
    assert_eq!(rig.claim(&takeover(rig, "other")).await, unknown);
    let other = Granted { id: record.id, ..granted };
    assert_eq!(rig.resolve(&other, Verdict::Happened(outcome("seen"))).await, APPLIED);
    assert!(matches!(rig.claim(&rig.request("other")).await, Claim::Completed { .. }));
}

pub async fn fences_go_on_above_those_of_imported_records(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    let short = Retention { keep: rig.lease, tombstone: Duration::ZERO };
    assert_eq!(rig.settle_for(&granted, Settlement::Release, short).await, APPLIED);
    let record = rig.get("k").await.expect("the record");
    // From a store whose clock was ahead by hours.
    let ahead = Fence(record.fence.0 + 10_000_000);
    for key in ["used at once", "forgotten before"] {
        let record = Record { fence: ahead, ..moved(&record, key) };
        assert_eq!(import(rig, &record).await, Imported::Written);
    }
    let next = rig.running("used at once").await;
    assert!(next.lease.fence > ahead, "{next:?}");
    if rig.harness.traits().fences_outlive_records {
        rig.harness.pass(rig.lease * 2).await;
        rig.store.purge(100).await.expect("purge");
        assert_eq!(rig.get("forgotten before").await, None);
        let next = rig.running("forgotten before").await;
        assert!(next.lease.fence > ahead, "{next:?}");
    }
}

pub async fn what_was_imported_goes_at_its_time(rig: &Rig<'_>) {
    let granted = rig.running("k").await;
    let retention = Retention { keep: rig.lease, tombstone: rig.lease * 4 };
    assert_eq!(rig.settle_for(&granted, complete("done"), retention).await, APPLIED);
    let record = rig.get("k").await.expect("the record");
    assert_eq!(import(rig, &moved(&record, "early")).await, Imported::Written);
    rig.harness.pass(rig.lease * 3 / 2).await;
    assert_eq!(rig.claim(&rig.request("early")).await, Claim::Expired);
    assert_eq!(rig.store.purge(100).await.expect("purge").tombstoned, 2);
    rig.harness.pass(rig.lease * 4).await;
    assert_eq!(rig.store.purge(100).await.expect("purge").removed, 2);
    // Due long before it was imported, and the purge had passed it already.
    let retained = record.state.retained().expect("it is settled");
    let earlier =
        |at: Timestamp| Timestamp::from_millis(at.as_millis() - rig.lease.as_millis() as u64 * 10);
    let (until, tombstone_until) = (earlier(retained.until), earlier(retained.tombstone_until));
    let retained = Retained { until, tombstone_until };
    let late = Record { state: State::Released { retained }, ..moved(&record, "late") };
    assert_eq!(import(rig, &late).await, Imported::Written);
    assert_eq!(rig.store.purge(100).await.expect("purge").removed, 1);
    rig.running("late").await;
}

/// Every pair of states that a key's record can have in two stores.
pub async fn importing_keeps_the_latest_whatever_the_order(rig: &Rig<'_>) {
    let records = lives(exported(rig).await);
    for (first, one) in records.iter().enumerate() {
        for (second, two) in records.iter().enumerate() {
            let key = format!("{first} then {second}");
            let (one, two) = (moved(one, &key), moved(two, &key));
            assert_eq!(import(rig, &one).await, Imported::Written);
            let latest = if is_later(&two, &one) { &two } else { &one };
            let kept = import(rig, &two).await == Imported::Kept;
            assert_eq!(kept, latest == &one, "{one:?}, then {two:?}");
            assert_eq!(rig.get(&key).await.as_ref(), Some(latest));
        }
    }
}

/// Every state, renewed and handed back too, under one fence and some of them under a higher one.
fn lives(records: Vec<Record>) -> Vec<Record> {
    let running = records.last().expect("the running one").clone();
    let State::Running { lease_until } = running.state else { panic!("{running:?}") };
    let tick = Duration::from_millis(1);
    let renewed = Record {
        state: State::Running { lease_until: lease_until + tick },
        updated_at: running.updated_at + tick,
        ..running.clone()
    };
    let handed_back = Record {
        state: State::Running { lease_until: running.updated_at },
        taken_over: true,
        ..running.clone()
    };
    let higher = |record: &Record| Record { fence: Fence(record.fence.0 + 1), ..record.clone() };
    let mut lives = vec![higher(&running), higher(&renewed), renewed, handed_back];
    lives.extend(records);
    lives
}
