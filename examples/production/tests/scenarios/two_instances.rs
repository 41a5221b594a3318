//! Two instances on one store.

use example_production::Orders;
use tokio::task::JoinSet;

use crate::instance::{ORDER, TENANT, create, instance};
use crate::test_store::TestStore;

/// The first request waits for the database until all others have their response.
pub(crate) async fn of_twenty_over_two_instances_one_creates_and_all_others_conflict(
    store: &TestStore,
) {
    let (settings, orders) = (store.settings(), Orders::default());
    let both =
        [instance(&settings, orders.clone()).await, instance(&settings, orders.clone()).await];
    let database = orders.lock().await;
    let mut requests = JoinSet::new();
    for number in 0..20 {
        let app = both[number % 2].clone();
        requests.spawn(async move { create(&app, TENANT, "order-123", ORDER).await });
    }
    for _ in 0..19 {
        let other = requests.join_next().await.unwrap().unwrap();
        assert_eq!((other.status, other.header("retry-after")), (409, Some("1")));
        assert_eq!(other.json()["code"], "IDEMPOTENCY_REQUEST_IN_PROGRESS");
    }
    drop(database);
    let winner = requests.join_next().await.unwrap().unwrap();
    assert_eq!(winner.status, 201);
    for app in &both {
        let replay = create(app, TENANT, "order-123", ORDER).await;
        assert_eq!((replay.status, replay.replayed(), &replay.body), (200, true, &winner.body));
    }
    assert_eq!(orders.lock().await.len(), 1);
}
