//! Many cases under one key.

use std::sync::Arc;
use std::time::Duration;

use example_cases::{Cases, app, app_on};
use example_walk::{App, Response};
use onceward::{Engine, Policy};
use onceward_testkit::clock::ManualClock;
use onceward_testkit::faulty::{Call, Fault, FaultyStore};
use serde_json::{Value, json};
use tokio::time::timeout;

const LEASE: Duration = Duration::from_secs(30);

/// Creates and submits cases, which are at version 2 then.
async fn submitted(app: &App, count: usize) {
    for id in 1..=count {
        let key = format!("new-{id}");
        app.post("/cases", &[("idempotency-key", &key)], r#"{"title":"Broken window"}"#).await;
        let (key, path) = (format!("submit-{id}"), format!("/cases/{id}/submit"));
        let taken = app.post(&path, &[("idempotency-key", &key)], r#"{"expectedVersion":1}"#).await;
        assert_eq!(taken.status, 200);
    }
}

fn line(case: usize, expected_version: u64) -> Value {
    let id = format!("line-{case:03}");
    json!({ "clientItemId": id, "caseId": case, "expectedVersion": expected_version })
}

async fn approve(app: &App, key: &str, lines: &[Value]) -> Response {
    let body = json!({ "items": lines }).to_string();
    app.post("/cases:bulkApprove", &[("idempotency-key", key)], &body).await
}

async fn case(app: &App, id: usize) -> Value {
    app.get(&format!("/cases/{id}"), &[]).await.json()
}

#[tokio::test]
async fn each_item_has_its_result_and_a_retry_gets_the_same() {
    let app = App::start(app(Cases::default()).unwrap()).await;
    submitted(&app, 2).await;
    let lines = [line(1, 2), line(2, 1), line(9, 2)];
    let first = approve(&app, "bulk-1", &lines).await;
    assert_eq!((first.status, first.replayed()), (200, false));
    let results = first.json()["items"].clone();
    assert_eq!(results[0]["clientItemId"], "line-001");
    assert_eq!(
        (&results[0]["state"], &results[0]["value"]["status"]),
        (&json!("succeeded"), &json!("approved"))
    );
    assert_eq!(
        (&results[1]["state"], &results[1]["error"]["code"]),
        (&json!("failed"), &json!("STALE_VERSION"))
    );
    assert_eq!(results[2]["state"], "failed", "there is no case 9");

    let retry = approve(&app, "bulk-1", &lines).await;
    assert_eq!((retry.status, retry.replayed(), retry.body), (200, true, first.body));
    assert_eq!(case(&app, 1).await["version"], 3);

    let again = approve(&app, "bulk-2", &[line(2, 2)]).await;
    assert_eq!(again.json()["items"][0]["state"], "succeeded", "a failed item, under a new key");
}

#[tokio::test]
async fn other_items_under_the_key_and_invalid_lists_are_refused() {
    let app = App::start(app(Cases::default()).unwrap()).await;
    submitted(&app, 2).await;
    assert_eq!(approve(&app, "bulk-1", &[line(1, 2)]).await.status, 200);
    assert_eq!(approve(&app, "bulk-1", &[line(1, 2), line(2, 2)]).await.status, 422);
    assert_eq!(approve(&app, "bulk-2", &[line(2, 2), line(2, 2)]).await.status, 400);
    assert_eq!(case(&app, 2).await["status"], "submitted");
}

/// The first item is done, the second has changed its case and its outcome is not stored, the
/// third has not begun: here the process dies.
#[tokio::test]
async fn after_a_crash_in_the_middle_a_retry_resumes_and_does_no_item_twice() {
    let clock = ManualClock::new();
    let store = Arc::new(FaultyStore::over_memory(clock.clone()));
    let policy = Policy::builder().lease(LEASE).call_timeout(LEASE / 3).build().unwrap();
    let engine = || Engine::builder(store.clone()).policy(policy.clone()).build();
    let cases = Cases::default();
    let lines = [line(1, 2), line(2, 2), line(3, 2)];

    // A runtime stands for a process: when it ends, its tasks stop at once.
    let mut process = tokio::runtime::Builder::new_multi_thread();
    let process = process.worker_threads(1).enable_all().build().unwrap();
    let router = app_on(engine(), cases.clone()).unwrap();
    let first = process.spawn(App::start(router)).await.unwrap();
    submitted(&first, 3).await;
    store.on_nth(2, Call::Settle, Fault::Delay(LEASE));
    let cut_off = process.spawn({
        let (first, lines) = (first.clone(), lines.clone());
        async move { approve(&first, "bulk-1", &lines).await }
    });
    let second_is_changed = async {
        while cases.lock().await[1].version() < 3 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LEASE, second_is_changed).await.expect("the second item is reached");
    process.shutdown_background();
    assert!(cut_off.await.is_err(), "the response never comes");

    let second = App::start(app_on(engine(), cases).unwrap()).await;
    assert_eq!(approve(&second, "bulk-1", &lines).await.status, 409, "the lease is alive");
    clock.advance(LEASE * 2);
    let resumed = approve(&second, "bulk-1", &lines).await;
    assert_eq!((resumed.status, resumed.replayed()), (200, false), "{}", resumed.body);
    for (index, id) in [1, 2, 3].into_iter().enumerate() {
        assert_eq!(resumed.json()["items"][index]["state"], "succeeded", "{}", resumed.body);
        let case = case(&second, id).await;
        assert_eq!((&case["status"], &case["version"]), (&json!("approved"), &json!(3)));
    }
    let retry = approve(&second, "bulk-1", &lines).await;
    assert_eq!((retry.replayed(), retry.body), (true, resumed.body));
}
