//! One suite for every store: each case is a fact, and a decorated store passes the same.
//!
//! A store's crate writes `store_conformance!(harness)` in a test file and gets one test for each
//! case. A store that cannot pass a case says so in its [`Traits`], with the reason in
//! `docs/guarantees.md`.

mod cases;
mod rig;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::{Clock, FullStore};

pub use cases::*;
pub use rig::Rig;

use crate::clock::ManualClock;

/// Properties of a store that the contract of the traits leaves open.
#[derive(Debug, Clone, Copy)]
pub struct Traits {
    /// Length of a lease in the suite. Long on clocks that are moved by hand; on real
    /// clocks as short as the store's round trips allow.
    pub lease: Duration,
    /// True if fences still increase after a record was purged and its key is used again.
    pub fences_outlive_records: bool,
}

/// Opens stores for the suite, and makes time pass for them.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The store's properties.
    fn traits(&self) -> Traits;

    /// A new, empty store.
    async fn open(&self) -> Arc<dyn FullStore>;

    /// Lets time pass on the store's clock.
    async fn pass(&self, duration: Duration);
}

/// A harness for stores that take a clock: time passes at no cost.
pub struct ManualHarness<F> {
    clock: ManualClock,
    open: F,
}

impl<F> ManualHarness<F>
where
    F: Fn(Arc<dyn Clock>) -> Arc<dyn FullStore> + Send + Sync,
{
    /// Stores opened by `open` with the clock that it is given.
    pub fn new(open: F) -> Self {
        Self { clock: ManualClock::new(), open }
    }
}

#[async_trait]
impl<F> Harness for ManualHarness<F>
where
    F: Fn(Arc<dyn Clock>) -> Arc<dyn FullStore> + Send + Sync,
{
    fn traits(&self) -> Traits {
        Traits { lease: Duration::from_secs(10), fences_outlive_records: true }
    }

    async fn open(&self) -> Arc<dyn FullStore> {
        (self.open)(Arc::new(self.clock.clone()))
    }

    async fn pass(&self, duration: Duration) {
        self.clock.advance(duration);
    }
}

impl<F> std::fmt::Debug for ManualHarness<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManualHarness").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// Makes one test for each case of the suite.
///
/// ```text
/// onceward_testkit::store_conformance!(ManualHarness::new(|clock| open(clock)));
/// onceward_testkit::store_conformance!(or_skip harness_if_the_server_is_there());
/// ```
///
/// After `or_skip` the harness is an `Option`. If it is `None`, the cases are skipped; the
/// expression has reported why.
#[macro_export]
macro_rules! store_conformance {
    (or_skip $harness:expr) => {
        $crate::store_conformance! { @all $harness }
    };
    (@all $harness:expr) => {
        $crate::store_conformance! { @each $harness;
            a_fresh_key_is_granted
            the_same_token_is_granted_the_same_lease_again
            another_token_finds_it_running
            another_request_is_a_mismatch_even_while_the_first_is_running
            another_request_is_a_mismatch_after_completion
            an_outcome_is_replayed_byte_for_byte
            a_failure_is_replayed_as_a_failure
            references_and_omissions_come_back_as_such
            settling_twice_alike_is_settling_once
            settling_twice_differently_is_refused
            a_wrong_token_or_fence_settles_nothing
            settling_what_is_not_there_is_missing
            a_released_key_is_granted_under_a_higher_fence_and_the_same_name
            a_released_key_may_be_used_for_another_request
            a_released_key_forgets_the_path_of_its_first_request
            a_released_key_leaves_no_tombstone
            a_late_duplicate_of_a_released_claim_is_not_granted
            a_lapsed_lease_is_unknown_to_everybody
            a_lapsed_lease_is_taken_over_where_asked_for
            a_late_duplicate_does_not_take_over_its_own_claim
            stale_owner_cannot_complete_after_takeover
            stale_owner_can_neither_renew_nor_release_after_takeover
            who_took_over_cannot_say_that_nothing_happened
            late_completion_by_the_same_fence_is_accepted
            renewal_extends_a_live_lease
            renewal_is_refused_after_the_lapse
            a_late_renewal_does_not_stop_a_takeover
            unknown_is_left_neither_by_claims_nor_by_time
            an_unknown_outcome_keeps_its_first_cause
            a_lapse_that_a_claim_finds_is_stored_as_the_cause
            an_imported_unknown_keeps_its_cause
            status_and_error_code_are_kept_beside_an_outcome
            evidence_that_it_happened_completes
            evidence_that_it_did_not_happen_frees_the_key
            evidence_about_an_old_fence_is_refused
            evidence_about_a_live_lease_is_refused
            an_invalidated_outcome_is_not_replayed_and_its_key_does_not_run_again
            only_a_settled_record_is_invalidated
            inside_retention_it_is_replayed_and_afterwards_new
            a_tombstone_answers_expired_and_then_the_key_is_new
            what_is_past_its_time_is_absent_before_it_is_purged
            purging_takes_what_is_due_in_chunks_and_nothing_else
            what_is_due_is_listed_and_purged_only_as_it_was_listed
            what_is_due_is_listed_in_chunks_and_never_starves
            a_record_past_its_time_is_kept_from_claims_that_ask_for_it
            fences_increase_even_when_the_record_was_forgotten
            keys_do_not_see_each_other
            of_concurrent_claims_one_is_granted
            of_concurrent_takeovers_one_is_granted
            listing_pages_through_all_records_once
            listing_selects_by_standing_and_tenant
            an_operation_is_found_by_its_name_wherever_it_stands
            a_business_reference_is_known_when_its_key_is_forgotten
            stats_count_what_is_there
            stats_count_lapsed_claims_as_unknown_and_tell_the_oldest
            large_outcomes_survive
            an_imported_record_is_the_one_that_was_exported
            an_imported_outcome_is_replayed
            an_imported_lease_is_held_by_its_holder_who_renews_and_settles
            an_imported_unknown_is_left_by_evidence_only
            fences_go_on_above_those_of_imported_records
            what_was_imported_goes_at_its_time
            importing_keeps_the_latest_whatever_the_order
        }
    };
    (@each $harness:expr; $($case:ident)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                let Some(harness) = $harness else { return };
                let rig = $crate::conformance::Rig::new(&harness).await;
                $crate::conformance::$case(&rig).await;
            }
        )*
    };
    ($harness:expr) => {
        $crate::store_conformance! { @all Some($harness) }
    };
}

#[cfg(test)]
mod tests {
    /// A case that is not listed would never run.
    #[test]
    fn every_case_is_in_the_list() {
        let (list, cases) = (include_str!("mod.rs"), include_str!("cases.rs"));
        for line in cases.lines() {
            let Some(rest) = line.trim().strip_prefix("pub async fn ") else { continue };
            let name = rest.split('(').next().unwrap();
            assert!(list.lines().any(|line| line.trim() == name), "{name} is not listed");
        }
    }
}
