//! Bulks of a service that keeps running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use example_cases::{CaseService, Checkpoint};
use example_walk::App;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::test_store::{
    LEASE, TestStore, approve, case, create_cases, lines, page, states, submit,
};

async fn start(service: CaseService) -> App {
    App::start(service.into_router().await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_item_has_its_stored_result_and_a_retry_gets_the_same() {
    for store in TestStore::all() {
        let app = start(CaseService::new(store.settings())).await;
        create_cases(&app, 3, 1).await;
        let mut request = lines([2, 1, 3, 9]);
        request[1]["expectedVersion"] = json!(1);
        let first = approve(&app, "bulk-1", &request).await;
        assert_eq!((first.status, first.replayed()), (200, false), "{}", first.body);
        let failed = |code: &str, retryable: bool| json!({ "state": "failed", "failureCode": code, "retryable": retryable });
        let mut expected = vec![
            json!({ "state": "succeeded", "resultResourceId": "/cases/2" }),
            failed("STALE_VERSION", false),
            failed("NOT_IN_THIS_STATE", true),
            failed("NO_SUCH_CASE", false),
        ];
        for (expected, line) in expected.iter_mut().zip(&request) {
            expected["clientItemId"] = line["clientItemId"].clone();
            expected["caseId"] = line["caseId"].clone();
        }
        let bulk = first.json();
        assert_eq!((&bulk["items"], &bulk["state"]), (&json!(expected), &json!("completed")));

        let location = first.header("location").unwrap();
        assert_eq!(app.get(location, &[]).await.body, first.body, "the page is the result");
        submit(&app, 3).await;
        let retry = approve(&app, "bulk-1", &request).await;
        assert_eq!((retry.status, retry.replayed(), &retry.body), (200, true, &first.body));
        assert_eq!(retry.header("location"), Some(location));
        assert_eq!(case(&app, 2).await["version"], 3);
        assert_eq!(case(&app, 3).await["status"], "submitted", "a failed item stays failed");

        let again = approve(&app, "bulk-2", &request[2..3]).await;
        assert_eq!(states(&again.json()), ["succeeded"], "the retryable item, under a new key");
        let done = approve(&app, "bulk-3", &request[..1]).await.json();
        assert_eq!(done["items"][0]["failureCode"], "NOT_IN_THIS_STATE", "a second intent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_lists_are_refused_by_name_and_leave_the_key_free() {
    let settings = example_cases::Settings { bulk_items_max: 2, ..TestStore::Memory.settings() };
    let app = start(CaseService::new(settings)).await;
    create_cases(&app, 2, 0).await;
    let named = |id: &str| vec![json!({ "clientItemId": id, "caseId": 1 })];
    let (twice, long) = ([lines([1]), lines([1])].concat(), "x".repeat(101));
    for (items, code, message) in [
        (vec![], "NO_ITEMS", "`items` is empty"),
        (twice, "DUPLICATE_ITEM_ID", "the item id \"line-001\" occurs more than once"),
        (lines([1, 2, 3]), "TOO_MANY_ITEMS", "the bulk has 3 items; at most 2 are allowed"),
        (named(""), "INVALID_ITEM_ID", "items[0].clientItemId must have 1 to 100 characters"),
        (named(&long), "INVALID_ITEM_ID", "items[0].clientItemId must have 1 to 100 characters"),
        (named("a\u{0}"), "INVALID_ITEM_ID", "none of them a control character"),
        (vec![json!({ "caseId": 1 })], "INVALID_BODY", "missing field `clientItemId`"),
        (vec![json!({ "clientItemId": "a", "caseId": "1" })], "INVALID_BODY", "caseId"),
    ] {
        let refused = approve(&app, "bulk-1", &items).await;
        assert_eq!((refused.status, &refused.json()["code"]), (400, &json!(code)));
        let text = refused.json()["message"].as_str().unwrap().to_owned();
        assert!(text.contains(message), "{text}");
    }
    assert_eq!(case(&app, 1).await["status"], "submitted");
    let corrected = approve(&app, "bulk-1", &lines([1, 2])).await;
    assert_eq!(states(&corrected.json()), ["succeeded", "succeeded"]);
    assert_eq!(approve(&app, "bulk-1", &lines([1])).await.status, 422, "another list");
    assert_eq!(approve(&app, "bulk-1", &lines([2, 1])).await.status, 422, "another order");
}

/// While the second item runs: its page, a retry, another list under the key, and another caller.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_bulk_has_a_page_for_its_caller_and_its_key_is_in_use() {
    for store in TestStore::all() {
        let (reached, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let service = CaseService::new(store.settings()).on_checkpoint({
            let (reached, go_on) = (reached.clone(), go_on.clone());
            move |checkpoint, item| {
                let stops = (checkpoint, item) == (Checkpoint::ItemChanged, "line-002");
                let (reached, go_on) = (reached.clone(), go_on.clone());
                async move {
                    if stops {
                        reached.notify_one();
                        go_on.notified().await;
                    }
                }
            }
        });
        let app = start(service).await;
        create_cases(&app, 3, 0).await;
        let first = tokio::spawn({
            let app = app.clone();
            async move { approve(&app, "bulk-1", &lines([1, 2, 3])).await }
        });
        timeout(Duration::from_secs(30), reached.notified()).await.expect("the second item runs");

        let retry = approve(&app, "bulk-1", &lines([1, 2, 3])).await;
        assert_eq!((retry.status, retry.header("retry-after").is_some()), (409, true));
        assert_eq!(approve(&app, "bulk-1", &lines([1, 2])).await.status, 422);
        // The refusal names the operation, whose page is that of the bulk.
        let operation = retry.json()["operation_id"].clone();
        let running = page(&app, &operation).await;
        assert_eq!(running["state"], "running");
        let second = if store.is_postgres() { "running" } else { "succeeded" };
        assert_eq!(states(&running), ["succeeded", second, "pending"]);
        let path = format!("/cases/bulk/{}", operation.as_str().unwrap());
        let other = app.get(&path, &[("authorization", "Bearer another")]).await;
        assert_eq!(other.status, 404, "the page of another caller");

        go_on.notify_one();
        let first = first.await.unwrap();
        assert_eq!((first.status, states(&first.json())), (200, vec!["succeeded"; 3]));
        assert_eq!(page(&app, &operation).await, first.json());
        let replayed = approve(&app, "bulk-1", &lines([1, 2, 3])).await;
        assert_eq!((replayed.replayed(), replayed.body), (true, first.body));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_does_not_exist_is_404() {
    let app = start(CaseService::new(TestStore::Memory.settings())).await;
    for path in ["/cases/bulk/7", "/cases/bulk/01935d2a-7c3b-7aaa-8bbb-0123456789ab"] {
        assert_eq!(app.get(path, &[]).await.status, 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_requests_with_one_key_one_does_the_items() {
    for store in TestStore::all() {
        let settings = example_cases::Settings { bulk_concurrency: 4, ..store.settings() };
        let app = start(CaseService::new(settings)).await;
        create_cases(&app, 10, 0).await;
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let app = app.clone();
            requests.spawn(async move { approve(&app, "bulk-1", &lines(1..=10)).await });
        }
        let responses = requests.join_all().await;
        let first: Vec<_> = responses.iter().filter(|it| it.status == 200).collect();
        assert_eq!(first.iter().filter(|it| !it.replayed()).count(), 1);
        assert!(first.iter().all(|it| it.body == first[0].body));
        assert_eq!(states(&first[0].json()), vec!["succeeded"; 10]);
        assert!(responses.iter().all(|it| matches!(it.status, 200 | 409)), "{responses:?}");
        for id in 1..=10 {
            assert_eq!(case(&app, id).await["version"], 3);
        }
    }
}

/// The work of the second item dies, and the service lives on. Without one commit the item is
/// unknown, and the others are done; with one commit it never was. A retry with the same key finds
/// out.
#[tokio::test(flavor = "multi_thread")]
async fn an_item_whose_outcome_is_unknown_is_told_and_a_retry_finds_out() {
    for store in TestStore::all() {
        let has_died = Arc::new(AtomicBool::new(false));
        let service = CaseService::new(store.settings()).on_checkpoint({
            let has_died = has_died.clone();
            move |checkpoint, item| {
                let dies = (checkpoint, item) == (Checkpoint::ItemClaimed, "line-002")
                    && !has_died.swap(true, Ordering::SeqCst);
                async move { assert!(!dies, "of the test: a panic in the middle of an item") }
            }
        });
        let app = start(service).await;
        create_cases(&app, 3, 0).await;
        let request = lines([1, 2, 3]);
        let first = approve(&app, "bulk-1", &request).await;
        if store.is_postgres() {
            assert_eq!((first.status, &first.json()["code"]), (503, &json!("BULK_INTERRUPTED")));
            assert_eq!(case(&app, 2).await["version"], 2, "rolled back");
        } else {
            let told = first.json();
            assert_eq!(
                (first.status, states(&told)),
                (202, vec!["succeeded", "unknown", "succeeded"])
            );
            assert_eq!(page(&app, &told["operation"]).await, told);
        }
        // The key is for the same list of the same caller only.
        assert_eq!(approve(&app, "bulk-1", &request[..2]).await.status, 422);
        let other = [("idempotency-key", "bulk-1"), ("authorization", "Bearer another")];
        let body = json!({ "items": request }).to_string();
        let refused = app.post("/cases:bulkApprove", &other, &body).await;
        assert_eq!(refused.status, 422, "{}", refused.body);
        let resumed = loop {
            let retry = approve(&app, "bulk-1", &request).await;
            match retry.status {
                409 => sleep(LEASE / 20).await,
                _ => break retry,
            }
        };
        assert_eq!((resumed.status, states(&resumed.json())), (200, vec!["succeeded"; 3]));
        assert_eq!(case(&app, 2).await["version"], 3);
        let replay = approve(&app, "bulk-1", &request).await;
        assert_eq!((replay.replayed(), replay.body), (true, resumed.body));
    }
}
