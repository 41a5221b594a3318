//! `onceward claims` with `[resolver]`, `[reconciler]` and `[admin]`.

use std::time::{Duration, Instant};

use axum::extract::Path;
use axum::routing::get;
use axum::{Json, Router};
use example_walk::App;
use serde_json::json;

use crate::server::{OPERATOR, Server, WORKER, claim_of, granted, records_in, refused};

/// Settings with a resolver that is asked continuously.
fn settings(resolver: &str) -> String {
    format!(
        "[admin]\naddress = \"127.0.0.1:0\"\n\
         [resolver.http]\nurl = \"{resolver}\"\ngrace = \"1ms\"\n\
         [reconciler]\nevery = \"30ms\"\nbackoff = \"30ms\"\n"
    )
}

/// Starts a service with two resolvers: one answers *happened*, the other *did not happen*.
async fn resolver_service() -> String {
    let known = async |Path(operation): Path<String>| {
        // The gateway's probe, about an operation that does not exist.
        Json(match operation.ends_with("-8000-000000000000") {
            true => json!({ "outcome": "did_not_happen" }),
            false => json!({ "outcome": "happened", "result": { "charge": operation } }),
        })
    };
    let none = async || Json(json!({ "outcome": "did_not_happen" }));
    let router =
        Router::new().route("/known/{operation}", get(known)).route("/none/{id}", get(none));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < end, "timed out");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_left_unknown_is_asked_about_and_operators_see_it() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("{}/known/{{operation}}", resolver_service().await);
    let server = Server::start(&records_in(directory.path()), directory.path(), &settings(&url));
    let admin = server.program.line().unwrap();
    let admin = admin.split("metrics at http://").nth(1).expect("an admin address");
    let admin = App::at(admin.split('/').next().unwrap());
    let worker = server.client(WORKER);
    let claim = granted(&worker.claim(&claim_of("k")).await);
    assert_eq!(worker.settle("unknown", &claim["lease"], &json!({})).await.status, 200);
    let answer = until(async || {
        let answer = worker.claim(&claim_of("k")).await;
        (answer.status == 200).then_some(answer)
    });
    let answer = answer.await.json();
    assert_eq!(answer["status"], "completed");
    assert_eq!(answer["result"], json!({ "charge": claim["operation_id"] }));

    assert_eq!(admin.get("/ready", &[]).await.body, "ready\n");
    let counted = "idempotency_recovery_total{operation=\"charge\",status=\"happened\"} 1\n";
    until(async || admin.get("/metrics", &[]).await.body.contains(counted).then_some(())).await;
    assert_eq!(refused(&admin.get("/v1/decisions", &[]).await).0, 401);
    let operator = format!("Bearer {OPERATOR}");
    let trail = admin.get("/v1/decisions", &[("authorization", &operator)]).await;
    assert_eq!(trail.json()["decisions"][0]["by"], "http", "{trail:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_did_not_happen_is_claimed_again() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("{}/none/{{operation}}", resolver_service().await);
    let server = Server::start(&records_in(directory.path()), directory.path(), &settings(&url));
    let worker = server.client(WORKER);
    let claim = granted(&worker.claim(&claim_of("k")).await);
    assert_eq!(worker.settle("unknown", &claim["lease"], &json!({})).await.status, 200);
    let again = until(async || {
        let answer = worker.claim(&claim_of("k")).await;
        (answer.status == 200).then_some(answer)
    });
    assert_eq!(granted(&again.await)["attempt"], 2);
}
