//! Every endpoint, on the embedded store and on PostgreSQL.

use serde_json::{Value, json};

use crate::server::{Client, Server, WORKER, claim_of, code, granted, refused};

#[tokio::test]
async fn every_endpoint_does_what_it_says_on_the_embedded_store() {
    let (server, _directory) = Server::embedded();
    all(&server).await;
}

#[tokio::test]
async fn every_endpoint_does_what_it_says_on_postgres() {
    let Some(postgres) = onceward_services::postgres() else { return };
    let directory = tempfile::tempdir().unwrap();
    all(&Server::start(postgres.url(), directory.path(), "")).await;
}

#[tokio::test]
async fn an_invalidated_result_is_not_answered_and_its_key_not_granted() {
    let Some(postgres) = onceward_services::postgres() else { return };
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(postgres.url(), directory.path(), "");
    let worker = server.client(WORKER);
    let grant = granted(&worker.claim(&claim_of("pay")).await);
    let paid = worker.settle("complete", &grant["lease"], &json!({ "result": "paid" })).await;
    assert_eq!(paid.status, 200, "{paid:?}");
    assert_eq!(worker.claim(&claim_of("pay")).await.json()["result"], "paid");
    let id = grant["operation_id"].as_str().unwrap();
    let command = ["records", "invalidate", id, "--reason", "undone", "--yes", "--store"];
    let mut onceward = std::process::Command::new(env!("CARGO_BIN_EXE_onceward"));
    assert!(onceward.args(command).arg(postgres.url()).status().unwrap().success());
    let refusal = worker.claim(&claim_of("pay")).await;
    assert_eq!(refused(&refusal), (409, "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE".into()));
    assert!(refusal.json()["detail"].as_str().unwrap().contains("invalidated"), "{refusal:?}");
    let shown = worker.get(&format!("/v1/claims/{id}")).await;
    assert_eq!(
        (&shown.json()["state"], &shown.json()["bytes"]["base64"]),
        (&json!("completed"), &json!(""))
    );
}

async fn all(server: &Server) {
    let worker = server.client(WORKER);
    claim_and_complete(&worker).await;
    renew(&worker).await;
    fail(&worker).await;
    unknown(&worker).await;
    release(&worker).await;
    meanings(&worker).await;
    bytes(&worker).await;
    claims_batch(&worker).await;
    settlements_batch(&worker).await;
    scopes(&worker).await;
}

async fn claim_and_complete(worker: &Client) {
    let claim = claim_of("pay-1");
    let first = worker.claim(&claim).await;
    let grant = granted(&first);
    assert_eq!(grant["attempt"], 1);
    assert!(grant["downstream_key"].as_str().unwrap().starts_with("ow_"));
    assert_eq!(grant["lease"]["owner"], claim["owner"]);
    assert_eq!(grant["lease"]["expires_in_ms"], 30_000);
    // After a lost answer, the same attempt gets the same grant.
    assert_eq!(worker.claim(&claim).await.body, first.body);

    let other = worker.claim(&claim_of("pay-1")).await;
    assert_eq!(refused(&other), (409, "IDEMPOTENCY_REQUEST_IN_PROGRESS".into()));
    assert_eq!(other.json()["operation_id"], grant["operation_id"]);
    assert!(other.header("retry-after").is_some() && other.json()["retryable"] == true);

    let page = format!("/v1/claims/{}", grant["operation_id"].as_str().unwrap());
    let running = worker.get(&page).await;
    assert_eq!((running.status, &running.json()["state"]), (200, &json!("running")));
    assert_eq!(running.json()["downstream_key"], grant["downstream_key"]);
    let by_key = worker.get("/v1/claims?tenant=acme&operation=charge&key=pay-1").await;
    assert_eq!(by_key.body, running.body);

    // Kept as written: large numbers and the order of members.
    let result = r#"{"z": 9007199254740993, "a": [1.50, null]}"#;
    let complete = format!(r#"{{"lease": {}, "result": {result}}}"#, grant["lease"]);
    for _ in 0..2 {
        let done = worker.post_text("/v1/claims/complete", &complete).await;
        assert_eq!((done.status, done.json()), (200, json!({ "status": "applied" })));
    }
    let otherwise = worker.settle("complete", &grant["lease"], &json!({ "result": 2 })).await;
    assert_eq!(refused(&otherwise), (409, "LEASE_LOST".into()));
    assert_eq!(refused(&worker.settle("fail", &grant["lease"], &json!({})).await).0, 409);
    assert_eq!(refused(&worker.settle("renew", &grant["lease"], &json!({})).await).0, 409);

    let again = worker.claim(&claim_of("pay-1")).await;
    assert_eq!((again.status, &again.json()["status"]), (200, &json!("completed")));
    assert_eq!(again.json()["operation_id"], grant["operation_id"]);
    assert!(again.body.contains(result), "{}", again.body);
    let page = worker.get(&page).await;
    assert!(page.json()["state"] == "completed" && page.body.contains(result), "{page:?}");
}

async fn renew(worker: &Client) {
    let grant = granted(&worker.claim(&claim_of("renewed")).await);
    let renewed = worker.settle("renew", &grant["lease"], &json!({ "for": "10m" })).await;
    let lease = &renewed.json()["lease"];
    assert_eq!((renewed.status, &renewed.json()["status"]), (200, &json!("applied")));
    assert_eq!(lease["fence"], grant["lease"]["fence"]);
    assert_eq!(lease["expires_in_ms"], 600_000);
    assert!(lease["expires_at"].as_str() > grant["lease"]["expires_at"].as_str());
    assert_eq!(worker.settle("complete", lease, &json!({})).await.status, 200);
}

async fn fail(worker: &Client) {
    let grant = granted(&worker.claim(&claim_of("fails")).await);
    let declined = json!({ "result": { "code": "declined" } });
    for _ in 0..2 {
        assert_eq!(worker.settle("fail", &grant["lease"], &declined).await.status, 200);
    }
    let again = worker.claim(&claim_of("fails")).await.json();
    assert_eq!(
        (&again["status"], &again["result"]["code"]),
        (&json!("failed"), &json!("declined"))
    );
}

async fn unknown(worker: &Client) {
    let grant = granted(&worker.claim(&claim_of("lost")).await);
    for _ in 0..2 {
        let reason = json!({ "reason": "no answer from the bank" });
        assert_eq!(worker.settle("unknown", &grant["lease"], &reason).await.status, 200);
    }
    let again = worker.claim(&claim_of("lost")).await;
    assert_eq!(refused(&again), (409, "IDEMPOTENCY_OUTCOME_UNKNOWN".into()));
    assert_eq!(again.json()["operation_id"], grant["operation_id"]);
    // The holder settles it late.
    assert_eq!(
        worker.settle("complete", &grant["lease"], &json!({ "result": 7 })).await.status,
        200
    );
    assert_eq!(worker.claim(&claim_of("lost")).await.json()["result"], 7);
}

async fn release(worker: &Client) {
    let first = granted(&worker.claim(&claim_of("freed")).await);
    for _ in 0..2 {
        assert_eq!(worker.settle("release", &first["lease"], &json!({})).await.status, 200);
    }
    let second = granted(&worker.claim(&claim_of("freed")).await);
    assert_eq!(second["attempt"], 2);
    assert_eq!(second["downstream_key"], first["downstream_key"]);
    assert!(second["lease"]["fence"].as_u64() > first["lease"]["fence"].as_u64());
    let stale = worker.settle("complete", &first["lease"], &json!({})).await;
    assert_eq!(refused(&stale), (409, "LEASE_LOST".into()));
}

async fn meanings(worker: &Client) {
    let with = |payload: &str| {
        let claim = claim_of("meant").to_string();
        format!("{},\"payload\":{payload}}}", claim.trim_end_matches('}'))
    };
    let claim = async |payload: &str| worker.post_text("/v1/claims", &with(payload)).await;
    let grant = granted(&claim(r#"{"amount":100,"to":"canary-payload"}"#).await);
    let differs = claim(r#"{"amount":101,"to":"canary-payload"}"#).await;
    let reused = "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST";
    assert_eq!(refused(&differs), (422, reused.into()));
    assert_eq!(differs.json()["differs"], json!(["payload:/amount"]));
    assert!(!differs.body.contains("canary"), "{}", differs.body);
    assert_eq!(refused(&claim("null").await), (422, reused.into()));
    assert_eq!(refused(&worker.claim(&claim_of("meant")).await), (422, reused.into()));
    let same = claim(r#" { "to": "canary-payload", "amount": 1.00e2 } "#).await;
    assert_eq!(code(&same), "IDEMPOTENCY_REQUEST_IN_PROGRESS");
    assert_eq!(worker.settle("release", &grant["lease"], &json!({})).await.status, 200);

    let named = |fingerprint: &str| {
        let mut claim = claim_of("named");
        claim["fingerprint"] = fingerprint.into();
        claim
    };
    granted(&worker.claim(&named("sha256:1")).await);
    assert_eq!(refused(&worker.claim(&named("sha256:2")).await), (422, reused.into()));
    let mut both = named("sha256:1");
    both["payload"] = json!(1);
    assert_eq!(refused(&worker.claim(&both).await), (400, "INVALID_REQUEST".into()));
}

async fn bytes(worker: &Client) {
    let grant = granted(&worker.claim(&claim_of("picture")).await);
    let picture = json!({ "bytes": { "base64": "iVBORw0KGgo=", "content_type": "image/png" } });
    assert_eq!(worker.settle("complete", &grant["lease"], &picture).await.status, 200);
    let again = worker.claim(&claim_of("picture")).await.json();
    assert_eq!((&again["bytes"], &again["result"]), (&picture["bytes"], &Value::Null));
    let by_key = worker.get("/v1/claims?tenant=acme&operation=charge&key=picture").await;
    assert_eq!(by_key.json()["bytes"], picture["bytes"]);
}

async fn claims_batch(worker: &Client) {
    let (mut other, mut unread) = (claim_of("pay-1"), claim_of("batch-2"));
    other["payload"] = json!("something else");
    unread["colour"] = json!("canary");
    let mut claims = vec![claim_of("batch-1"), other, unread, claim_of(&"k".repeat(256))];
    claims.push(claim_of("batch-3"));
    let answer = worker.post("/v1/claims/batch", &json!({ "claims": claims })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answers = answer.json()["answers"].clone();
    assert_eq!(answers[0]["claim"]["status"], "granted");
    assert_eq!(answers[1]["problem"]["status"], 422);
    assert_eq!(answers[2]["problem"]["code"], "INVALID_REQUEST");
    assert_eq!(answers[3]["problem"]["code"], "INVALID_IDEMPOTENCY_KEY");
    assert_eq!(answers[4]["claim"]["status"], "granted");
    assert!(answers.as_array().unwrap().len() == 5 && !answer.body.contains("canary"));

    let many: Vec<_> = (0..101).map(|number| claim_of(&format!("many-{number}"))).collect();
    let most = worker.post("/v1/claims/batch", &json!({ "claims": many[..100] })).await.json();
    let granted = |it: &&Value| it["claim"]["status"] == "granted";
    assert_eq!(most["answers"].as_array().unwrap().iter().filter(granted).count(), 100);
    for wrong in [json!({ "claims": many }), json!({ "claims": [] }), json!({ "claims": [1] })] {
        assert_eq!(refused(&worker.post("/v1/claims/batch", &wrong).await).0, 400);
    }
}

async fn settlements_batch(worker: &Client) {
    let mut leases = Vec::new();
    for key in ["s-1", "s-2", "s-3", "s-4", "s-5"] {
        leases.push(granted(&worker.claim(&claim_of(key)).await)["lease"].clone());
    }
    let mut stale = leases[0].clone();
    stale["fence"] = json!(1);
    let settlements = json!({ "settlements": [
        { "action": "complete", "lease": leases[0], "result": "done" },
        { "action": "fail", "lease": leases[1] },
        { "action": "unknown", "lease": leases[2], "reason": "no answer" },
        { "action": "release", "lease": leases[3] },
        { "action": "renew", "lease": leases[4], "for": "1m" },
        { "action": "complete", "lease": stale },
        { "action": "release", "lease": leases[4], "result": 1 },
        { "action": "forget", "lease": leases[4] },
        { "action": "release", "lease": leases[4], "reason": "no answer" },
    ] });
    let answer = worker.post("/v1/settlements/batch", &settlements).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answers = answer.json()["answers"].clone();
    for applied in 0..5 {
        assert_eq!(answers[applied]["settlement"]["status"], "applied", "{answers}");
    }
    assert_eq!(answers[4]["settlement"]["lease"]["expires_in_ms"], 60_000);
    assert_eq!(answers[5]["problem"]["code"], "LEASE_LOST");
    assert_eq!(answers[6]["problem"]["code"], "INVALID_REQUEST");
    assert_eq!(answers[7]["problem"]["code"], "INVALID_REQUEST");
    assert_eq!(answers[8]["problem"]["code"], "INVALID_REQUEST");
    assert_eq!(worker.claim(&claim_of("s-1")).await.json()["result"], "done");
}

/// The same key of another tenant, caller or operation is another key.
async fn scopes(worker: &Client) {
    granted(&worker.claim(&json!({ "operation": "charge", "key": "scoped" })).await);
    for (part, name) in [
        ("tenant", "zenith"),
        ("caller", "shop"),
        ("operation", "refund"),
        ("api_version", "2026-11"),
        ("parent", "cart-7"),
        ("region", "eu"),
    ] {
        let mut claim = json!({ "operation": "charge", "key": "scoped" });
        claim[part] = name.into();
        let grant = granted(&worker.claim(&claim).await);
        let again = worker.claim(&claim).await;
        assert_eq!(code(&again), "IDEMPOTENCY_REQUEST_IN_PROGRESS");
        let operation = if part == "operation" { "" } else { "&operation=charge" };
        let by_key = format!("/v1/claims?key=scoped&{part}={name}{operation}");
        let found = worker.get(&by_key).await.json();
        assert_eq!((&found["operation_id"], &found[part]), (&grant["operation_id"], &json!(name)));
    }
    let mut wrong = json!({ "operation": "charge", "key": "scoped" });
    for (part, name, code) in [
        ("api_version", "", "INVALID_API_VERSION"),
        ("parent", "a\u{1f}b", "INVALID_PARENT"),
        ("region", "onceward:shadow", "INVALID_REGION"),
    ] {
        wrong[part] = name.into();
        assert_eq!(refused(&worker.claim(&wrong).await), (400, code.into()));
        wrong.as_object_mut().unwrap().remove(part);
    }
    let again = worker.claim(&json!({ "operation": "charge", "key": "scoped" })).await;
    assert_eq!(code(&again), "IDEMPOTENCY_REQUEST_IN_PROGRESS");
}
