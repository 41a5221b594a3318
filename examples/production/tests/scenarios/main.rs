//! The scenarios on each store: the twelve of the contract, several instances, restarts.

mod contract;
mod instance;
#[cfg(feature = "redis")]
mod key_prefix;
#[cfg(any(feature = "embedded", feature = "postgres", feature = "redis"))]
mod restart;
mod test_store;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod two_instances;

/// Runs scenarios as tests on a store. A test is skipped where the store's server is missing.
macro_rules! on {
    ($store:ident: $($file:ident::$scenario:ident),* $(,)?) => {
        mod $store {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $scenario() {
                    let Some(store) = crate::test_store::$store() else { return };
                    crate::$file::$scenario(&store).await;
                }
            )*
        }
    };
}

/// The scenarios of every store, and others that the store has.
macro_rules! all_on {
    ($store:ident $(, $file:ident::$scenario:ident)* $(,)?) => {
        on! {
            $store:
            contract::s01_the_first_call_creates,
            contract::s02_a_retry_is_answered_by_the_layer,
            contract::s03_another_payload_is_a_conflict,
            contract::s04_another_key_is_another_order,
            contract::s05_without_a_key_every_request_passes_through,
            contract::s06_a_missing_tenant_is_refused,
            contract::s07_a_malformed_tenant_is_refused,
            contract::s08_an_empty_key_is_refused,
            contract::s09_an_oversized_key_is_refused,
            contract::s10_tenants_are_isolated,
            contract::s11_reading_passes_through,
            contract::s12_of_twenty_at_once_one_creates_and_all_others_conflict,
            contract::a_route_without_its_own_operation_is_protected_too,
            contract::a_response_too_large_to_store_is_sent_once_and_its_order_created_once,
            $($file::$scenario,)*
        }
    };
}

all_on!(memory);
#[cfg(feature = "embedded")]
all_on!(embedded, restart::a_killed_instance_replays_after_its_restart);
#[cfg(feature = "redis")]
all_on!(
    redis,
    two_instances::of_twenty_over_two_instances_one_creates_and_all_others_conflict,
    restart::a_killed_instance_replays_after_its_restart,
);
#[cfg(feature = "postgres")]
all_on!(
    postgres,
    two_instances::of_twenty_over_two_instances_one_creates_and_all_others_conflict,
    restart::a_killed_instance_replays_after_its_restart,
);
