//! The service is killed with SIGKILL in the middle of a bulk, several times, and started again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use example_cases::Checkpoint;
use example_walk::Response;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::case_process::{CaseProcess, CrashPoint};
use crate::test_store::{LEASE, TestStore, approve, case, create_cases, lines, page, states};

/// Where each process dies. The next one continues.
const CRASHES: [CrashPoint; 3] = [
    CrashPoint { checkpoint: Checkpoint::ItemChanged, item: "line-002" },
    CrashPoint { checkpoint: Checkpoint::ItemClaimed, item: "line-005" },
    CrashPoint { checkpoint: Checkpoint::BulkDone, item: "" },
];

/// The bulk's items. The case of the fourth one is a draft.
fn request() -> Vec<Value> {
    lines([1, 2, 3, 5, 4])
}

/// Retries until the lease of the dead process has lapsed.
async fn retry_until_answered(process: &CaseProcess) -> Response {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let retry = approve(&process.app, "bulk-1", &request()).await;
        if retry.status != 409 {
            return retry;
        }
        assert!(Instant::now() < deadline, "the lease has not lapsed: {}", retry.body);
        sleep(LEASE / 20).await;
    }
}

/// Sends the bulk until the process stops at its crash point.
async fn send_until_stopped(process: &mut CaseProcess) {
    let app = process.app.clone();
    let sending = async {
        loop {
            let response = approve(&app, "bulk-1", &request()).await;
            assert_eq!(response.status, 409, "only a lease is in the way: {}", response.body);
            sleep(LEASE / 20).await;
        }
    };
    tokio::select! {
        () = process.stopped() => {}
        () = sending => unreachable!("it sends until the process stops"),
    }
}

/// Waits until the page of a bulk whose process has died says so, and returns the states of its
/// items.
async fn states_after_the_crash(process: &CaseProcess, operation: &Value) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let page = page(&process.app, operation).await;
        if page["state"] == "interrupted" {
            return states(&page).into_iter().map(str::to_owned).collect();
        }
        assert_eq!(page["state"], "running", "its lease is alive");
        assert!(Instant::now() < deadline);
        sleep(LEASE / 20).await;
    }
}

async fn killed_in_the_middle(store: &TestStore) {
    let mut process = CaseProcess::start(store, Some(CRASHES[0])).await;
    create_cases(&process.app, 5, 1).await;
    store.begin_ledger();
    send_until_stopped(&mut process).await;
    // The process is stopped in the second item, and alive.
    let busy = approve(&process.app, "bulk-1", &request()).await;
    let operation = busy.json()["operation_id"].clone();
    assert_eq!(approve(&process.app, "bulk-1", &request()[..2]).await.status, 422);
    process.kill().await;

    let mut process = CaseProcess::start(store, Some(CRASHES[1])).await;
    // In one commit the item never was. In the log it is one line, whose claim is not settled.
    let second = if store.is_postgres() { "pending" } else { "succeeded" };
    let found = states_after_the_crash(&process, &operation).await;
    assert_eq!(found, ["succeeded", second, "pending", "pending", "pending"]);
    send_until_stopped(&mut process).await;
    process.kill().await;

    // A limit that was lowered meanwhile does not end the bulk: the refusal is not its outcome.
    let process = CaseProcess::start_with(store, None, 2).await;
    let found = states_after_the_crash(&process, &operation).await;
    assert_eq!(found, ["succeeded", "succeeded", "succeeded", "pending", "pending"]);
    let limited = retry_until_answered(&process).await;
    assert_eq!((limited.status, &limited.json()["code"]), (400, &json!("TOO_MANY_ITEMS")));
    process.kill().await;
    if store.is_postgres() {
        // As if the retention of the finished items were over: their rows are still there.
        let forget = "WITH items AS (
            DELETE FROM onceward.idempotency_record
            WHERE state = 'completed' AND operation_name = 'cases.bulk_approve' RETURNING id
        ) SELECT count(*) FROM items";
        assert_eq!(store.sql(forget), "3");
    }

    let mut process = CaseProcess::start(store, Some(CRASHES[2])).await;
    send_until_stopped(&mut process).await;
    process.kill().await;

    let process = CaseProcess::start(store, None).await;
    let done = retry_until_answered(&process).await;
    assert_eq!((done.status, done.replayed()), (200, false), "{}", done.body);
    let succeeded = "succeeded";
    assert_eq!(states(&done.json()), [succeeded, succeeded, succeeded, "failed", succeeded]);
    assert_eq!(done.json()["items"][3]["retryable"], true);
    for _ in 0..2 {
        let retry = approve(&process.app, "bulk-1", &request()).await;
        assert_eq!((retry.status, retry.replayed(), &retry.body), (200, true, &done.body));
    }
    assert_eq!(page(&process.app, &operation).await, done.json());
    assert_eq!(page(&process.app, &done.json()["operation"]).await, done.json());
    for id in 1..=4 {
        let case = case(&process.app, id).await;
        assert_eq!((&case["status"], &case["version"]), (&json!("approved"), &json!(3)));
    }
    assert_eq!(case(&process.app, 5).await["version"], 1);
    process.kill().await;
    assert_eq!(store.approvals(), BTreeMap::from([(1, 1), (2, 1), (3, 1), (4, 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_of_a_bulk_every_item_is_done_once_on_the_embedded_store() {
    killed_in_the_middle(&TestStore::file()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_of_a_bulk_every_item_is_done_once_on_postgres() {
    let Some(store) = TestStore::postgres() else { return };
    killed_in_the_middle(&store).await;
}
