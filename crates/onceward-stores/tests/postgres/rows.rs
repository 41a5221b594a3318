//! The content of rows, and rows that this release cannot read.

use std::time::Duration;

use onceward_core::{
    Claim, ClaimRequest, ErrorCode, Fenced, Imported, Key, Query, Record, Retention, Scope,
    Settlement, Sketch, State, StateName, Store as _, StoreAdmin as _, StoreErrorKind,
    UnknownCause,
};
use onceward_services::query;
use onceward_stores::postgres::{PostgresStore, Settings};

use super::common::{DAY, complete, granted, id, outcome, plain, request, settle, shared, small};
use crate::archive::files::expired;

#[tokio::test]
async fn a_record_comes_back_with_all_its_parts() {
    let Some(server) = shared() else { return };
    let settings = small();
    let schema = settings.schema.clone();
    let store = PostgresStore::open(server.url(), settings).await.unwrap();
    let scope = Scope::new("tenant", "caller", "operation").unwrap();
    let scope = scope.with_api_version("2").unwrap().with_parent("cart").unwrap();
    let full = ClaimRequest {
        scope: scope.with_region("eu").unwrap(),
        key: Some(Key::new("it's \"quoted\" \\ {odd}").unwrap()),
        sketch: Sketch::from_stored(&[0, 255, 1, 2, 3, 4]),
        path: None,
        ..request("key")
    };
    let Claim::Granted { lease, .. } = store.claim(&full).await.unwrap() else { panic!() };
    let found: Record = store.get(&full.id).await.unwrap().unwrap();
    assert_eq!(
        (&found.scope, &found.key, &found.sketch, found.owner, found.fence, found.operation),
        (&full.scope, &full.key, &full.sketch, full.owner, lease.fence, full.operation)
    );
    let holder = onceward_core::Holder { owner: full.owner, fence: lease.fence };
    let row = async |columns: &str| {
        let table = format!("{schema}.idempotency_record WHERE operation_name = 'operation'");
        query(server, &format!("SELECT concat_ws('|', {columns}) FROM {table}")).unwrap()
    };
    let unclear = Settlement::Unknown(UnknownCause::Status(502));
    assert_eq!(settle(&store, "key", holder, unclear, DAY).await.unwrap(), Fenced::Applied(()));
    assert_eq!(row("state, unknown_cause").await, "unknown|status 502");
    // As an earlier release leaves it.
    let sql = format!("UPDATE {schema}.idempotency_record SET unknown_cause = NULL");
    query(server, &sql).unwrap();
    let found = store.get(&full.id).await.unwrap().unwrap();
    assert_eq!(found.state, State::Unknown { cause: UnknownCause::Unrecorded });
    let result = outcome("done").with_resource("payment", "pay_7").with_status(402);
    let result = result.with_error_code(ErrorCode::new("declined"));
    let settled = settle(&store, "key", holder, Settlement::Complete(result.clone()), DAY).await;
    assert_eq!(settled.unwrap(), Fenced::Applied(()));
    let columns = "state, unknown_cause, http_status, error_code, resource_id";
    assert_eq!(row(columns).await, "completed|402|declined|pay_7");
    let found = store.get(&full.id).await.unwrap().unwrap();
    assert_eq!(found.state.outcome(), Some(&result));
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_told_and_does_not_hide_the_others() {
    let Some(server) = shared() else { return };
    let settings = small();
    let schema = settings.schema.clone();
    let store = PostgresStore::open(server.url(), settings).await.unwrap();
    complete(&store, "broken", "x").await;
    complete(&store, "good", "y").await;
    let client = plain(server.url()).await;
    for damage in ["state = 'paused'", "outcome_content = NULL, state = 'completed'"] {
        let sql = format!("UPDATE {schema}.idempotency_record SET {damage} WHERE id = $1");
        client.execute(&sql, &[&id("broken").as_bytes().as_slice()]).await.unwrap();
        let refused = store.claim(&request("broken")).await.unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Undecodable);
        assert!(!refused.may_have_been_applied());
        let refused = store.get(&id("broken")).await.unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Undecodable);
        for standing in [None, Some(StateName::Completed)] {
            let query = Query { standing, ..Query::default() };
            let page = store.list(&query).await.unwrap();
            assert_eq!((page.records.len(), page.undecodable), (1, vec![id("broken")]));
        }
    }
    assert!(matches!(store.claim(&request("good")).await.unwrap(), Claim::Completed { .. }));
}

/// It comes before all others that are due, and cannot be archived.
#[tokio::test]
async fn a_due_row_that_cannot_be_read_is_kept_and_does_not_stand_in_the_way_of_others() {
    let Some(server) = shared() else { return };
    let settings = small();
    let schema = settings.schema.clone();
    let store = PostgresStore::open(server.url(), settings).await.unwrap();
    for key in ["broken", "good"] {
        let imported = store.import(&expired(key, "done")).await.unwrap();
        assert_eq!(imported, Imported::Written);
    }
    let client = plain(server.url()).await;
    let damage = format!(
        "UPDATE {schema}.idempotency_record \
         SET outcome_content = 'odd', purge_after = purge_after - interval '1 second' WHERE id = $1"
    );
    client.execute(&damage, &[&id("broken").as_bytes().as_slice()]).await.unwrap();
    let first = store.due(1).await.unwrap();
    assert_eq!((first.records.len(), first.more), (0, true));
    let second = store.due(1).await.unwrap();
    let [good] = &second.records[..] else { panic!("{second:?}") };
    assert_eq!(good.id, id("good"));
    assert_eq!(store.purge_versions(&[good.version()]).await.unwrap().removed, 1);
    let kept = store.get(&id("broken")).await.unwrap_err();
    assert_eq!(kept.kind, StoreErrorKind::Undecodable);
}

/// The purge time that was predicted at the claim fits at the settlement, so no index is touched.
#[tokio::test]
async fn renewals_and_settlements_leave_the_indexes_alone() {
    let Some(server) = shared() else { return };
    let settings = small();
    let schema = settings.schema.clone();
    let store = PostgresStore::open(server.url(), settings).await.unwrap();
    for index in 0..50 {
        let key = format!("k{index}");
        let holder = granted(&store, &key).await;
        let lease = Duration::from_secs(60);
        let renew = onceward_core::RenewRequest { id: id(&key), holder, lease };
        assert!(matches!(store.renew(&renew).await.unwrap(), Fenced::Applied(_)));
        let done = Settlement::Complete(outcome("done"));
        assert_eq!(settle(&store, &key, holder, done, DAY).await.unwrap(), Fenced::Applied(()));
    }
    drop(store);
    let client = plain(server.url()).await;
    let sql = format!(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables \
         WHERE schemaname = '{schema}' AND relname = 'idempotency_record'"
    );
    let counted = async || {
        let row = client.query_one(&sql, &[]).await.unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1))
    };
    super::common::eventually("the server has counted", async || counted().await.0 == 100).await;
    let (all, hot) = counted().await;
    assert!(hot >= 90, "{hot} of {all}");
}

/// Retention that changes, and records that are still open at their purge time.
#[tokio::test]
async fn what_was_foretold_wrongly_is_purged_when_it_is_due() {
    let Some(server) = shared() else { return };
    let settings = Settings { purge_slack_max: Duration::from_millis(1), ..small() };
    let store = PostgresStore::open(server.url(), settings).await.unwrap();
    let short = Retention { keep: Duration::from_millis(1), tombstone: Duration::ZERO };
    let long = granted(&store, "long").await;
    let done = || Settlement::Complete(outcome("done"));
    assert_eq!(settle(&store, "long", long, done(), DAY).await.unwrap(), Fenced::Applied(()));
    let first = granted(&store, "short").await;
    assert_eq!(settle(&store, "short", first, done(), short).await.unwrap(), Fenced::Applied(()));
    // Predicted by the short retention before, and still open after it.
    let open = granted(&store, "open").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let purged = store.purge(10).await.unwrap();
    assert_eq!((purged.removed, purged.tombstoned, purged.more), (1, 0, false));
    assert_eq!(settle(&store, "open", open, done(), short).await.unwrap(), Fenced::Applied(()));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(store.purge(10).await.unwrap().removed, 1);
    assert!(store.get(&id("long")).await.unwrap().is_some());
}
