//! Keys and expected versions: each catches its own errors.

use example_cases::{CaseService, Settings};
use example_walk::{App, Response};

async fn start() -> App {
    let service = CaseService::new(Settings::default()).into_router();
    let app = App::start(service.await.unwrap()).await;
    let created =
        app.post("/cases", &[("idempotency-key", "new-1")], r#"{"title":"Broken window"}"#).await;
    assert_eq!((created.status, created.header("location")), (201, Some("/cases/1")));
    app
}

async fn take(app: &App, step: &str, key: &str, expected_version: u64) -> Response {
    let body = format!(r#"{{"expectedVersion":{expected_version}}}"#);
    app.post(&format!("/cases/1/{step}"), &[("idempotency-key", key)], &body).await
}

async fn state(app: &App) -> (String, u64) {
    let case = app.get("/cases/1", &[]).await.json();
    (case["status"].as_str().unwrap().to_owned(), case["version"].as_u64().unwrap())
}

#[tokio::test]
async fn a_case_goes_from_draft_to_paid() {
    let app = start().await;
    for (version, step, status) in
        [(1, "submit", "submitted"), (2, "approve", "approved"), (3, "pay", "paid")]
    {
        let taken = take(&app, step, step, version).await;
        assert_eq!((taken.status, &taken.json()["status"]), (200, &status.into()));
    }
    assert_eq!(state(&app).await, ("paid".into(), 4));
}

#[tokio::test]
async fn a_retry_is_replayed_after_the_state_has_changed() {
    let app = start().await;
    let first = take(&app, "submit", "submit-1", 1).await;
    take(&app, "approve", "approve-1", 2).await;
    let retry = take(&app, "submit", "submit-1", 1).await;
    assert_eq!((retry.status, retry.replayed(), retry.body), (200, true, first.body));
    assert_eq!(state(&app).await, ("approved".into(), 3));
}

#[tokio::test]
async fn a_new_key_with_an_old_version_is_refused() {
    let app = start().await;
    take(&app, "submit", "submit-1", 1).await;
    let stale = take(&app, "submit", "submit-2", 1).await;
    assert_eq!((stale.status, stale.replayed()), (409, false));
    assert_eq!(stale.json()["code"], "STALE_VERSION");
    assert_eq!(state(&app).await, ("submitted".into(), 2));
}

/// The refused version becomes the current one, and the retry still gets the refusal.
#[tokio::test]
async fn a_refusal_is_replayed_even_if_the_step_would_succeed_now() {
    let app = start().await;
    let early = take(&app, "approve", "approve-1", 2).await;
    assert_eq!((early.status, &early.json()["version"]), (409, &1.into()));
    take(&app, "submit", "submit-1", 1).await;
    let retry = take(&app, "approve", "approve-1", 2).await;
    assert_eq!((retry.status, retry.replayed(), retry.body), (409, true, early.body));
    assert_eq!(state(&app).await, ("submitted".into(), 2));
    assert_eq!(take(&app, "approve", "approve-2", 2).await.status, 200, "a new intent succeeds");
}

#[tokio::test]
async fn a_step_that_is_not_allowed_is_refused_with_the_right_version_too() {
    let app = start().await;
    for step in ["approve", "reject", "pay"] {
        let refused = take(&app, step, step, 1).await;
        assert_eq!((refused.status, &refused.json()["code"]), (409, &"NOT_IN_THIS_STATE".into()));
    }
    take(&app, "submit", "submit-1", 1).await;
    assert_eq!(take(&app, "reject", "reject-1", 2).await.json()["status"], "rejected");
    assert_eq!(take(&app, "pay", "pay-1", 3).await.status, 409);
    assert_eq!(state(&app).await, ("rejected".into(), 3));
}

#[tokio::test]
async fn one_key_with_another_version_step_or_case_is_refused() {
    let app = start().await;
    take(&app, "submit", "submit-1", 1).await;
    assert_eq!(take(&app, "submit", "submit-1", 2).await.status, 422);
    assert_eq!(take(&app, "approve", "submit-1", 1).await.status, 422);
    let body = r#"{"expectedVersion":1}"#;
    let other = app.post("/cases/2/submit", &[("idempotency-key", "submit-1")], body).await;
    assert_eq!(other.status, 422);
    assert_eq!(state(&app).await, ("submitted".into(), 2));
}

#[tokio::test]
async fn of_two_concurrent_intents_one_wins_and_one_is_stale() {
    let app = start().await;
    let (one, two) =
        tokio::join!(take(&app, "submit", "submit-1", 1), take(&app, "submit", "submit-2", 1));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
    assert_eq!(state(&app).await, ("submitted".into(), 2));
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_by_name() {
    for (store, expected) in [
        (
            "redis://:canary@localhost",
            "STORE is a `redis:` URL; it must be `memory:`, a `file:` or",
        ),
        ("mysql://canary", "STORE is a `mysql:` URL; it must be"),
        ("file:./data?canary=1", "STORE: `file:` stores have no option `canary`"),
        ("canary", "STORE is a text without a scheme; it must be"),
    ] {
        let settings = Settings { store: store.into(), ..Settings::default() };
        let error = CaseService::new(settings).into_router().await.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains("canary@") && !error.contains("//canary"), "{error}");
    }
    let store = "postgres://localhost/canary?transactions_max=3".into();
    let settings = Settings { store, ..Settings::default() };
    let error = CaseService::new(settings).into_router().await.unwrap_err().to_string();
    let expected =
        "BULK_CONCURRENCY is 4; it must be at most `transactions_max` of STORE (8 if not set)";
    assert_eq!(error, expected);
    let settings = Settings { lease: std::time::Duration::ZERO, ..Settings::default() };
    let error = CaseService::new(settings).into_router().await.unwrap_err().to_string();
    assert!(error.starts_with("LEASE: "), "{error}");
}
