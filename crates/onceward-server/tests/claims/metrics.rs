//! Metrics of the claims API: each line after the scenario that moves it.

use example_walk::App;
use serde_json::json;

use crate::server::{
    OPERATOR, Server, WORKER, claim_of, claims_address, configuration, granted, records_in,
    refused, variables,
};

async fn metrics(admin: &App) -> String {
    admin.get("/metrics", &[]).await.body
}

#[track_caller]
fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|it| it == *line), "{line} is not in:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_settlements_replays_and_decisions_are_counted_by_operation() {
    let directory = tempfile::tempdir().unwrap();
    let admin = "[admin]\naddress = \"127.0.0.1:0\"\n";
    let server = Server::start(&records_in(directory.path()), directory.path(), admin);
    let line = server.program.line().unwrap();
    let admin = line.split("metrics at http://").nth(1).expect("an admin address");
    let admin = App::at(admin.split('/').next().unwrap());
    let worker = server.client(WORKER);
    let (none, result) = (json!({}), json!({ "result": 1 }));

    let done = granted(&worker.claim(&claim_of("done")).await);
    refused(&worker.claim(&claim_of("done")).await);
    assert_eq!(worker.settle("complete", &done["lease"], &result).await.status, 200);
    worker.claim(&claim_of("done")).await;
    let failed = granted(&worker.claim(&claim_of("failed")).await);
    assert_eq!(worker.settle("fail", &failed["lease"], &result).await.status, 200);
    worker.claim(&claim_of("failed")).await;
    let free = granted(&worker.claim(&claim_of("free")).await);
    assert_eq!(worker.settle("release", &free["lease"], &none).await.status, 200);
    let lost = granted(&worker.claim(&claim_of("lost")).await);
    assert_eq!(worker.settle("unknown", &lost["lease"], &none).await.status, 200);
    refused(&worker.claim(&claim_of("lost")).await);
    assert_eq!(worker.settle("fail", &done["lease"], &result).await.status, 409, "stale");
    let mut other = claim_of("done");
    other["payload"] = json!({ "amount": 1 });
    assert_eq!(
        refused(&worker.claim(&other).await).1,
        "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"
    );

    let (id, fence) = (lost["operation_id"].as_str().unwrap(), fence(&admin, &lost).await);
    let operator = format!("Bearer {OPERATOR}");
    let headers = [("authorization", operator.as_str()), ("content-type", "application/json")];
    let decision = json!({ "fence": fence, "reason": "voided" }).to_string();
    let path = format!("/v1/operations/{id}");
    let record =
        admin.get(&path, &headers).await.json()["record"]["record"].as_str().unwrap().to_owned();
    let decided = admin.post(&format!("/v1/records/{record}/release"), &headers, &decision).await;
    assert_eq!(decided.status, 200, "{decided:?}");

    has(
        &metrics(&admin).await,
        &[
            r#"idempotency_claim_total{operation="charge",status="granted"} 4"#,
            r#"idempotency_claim_total{operation="charge",status="replayed"} 2"#,
            r#"idempotency_claim_total{operation="charge",status="in_progress"} 1"#,
            r#"idempotency_claim_total{operation="charge",status="unknown"} 1"#,
            r#"idempotency_claim_total{operation="charge",status="mismatch"} 1"#,
            r#"idempotency_existing_total{operation="charge",state="completed"} 1"#,
            r#"idempotency_existing_total{operation="charge",state="failed"} 1"#,
            r#"idempotency_replay_total{operation="charge"} 2"#,
            r#"idempotency_conflict_total{operation="charge"} 1"#,
            r#"idempotency_in_progress_total{operation="charge"} 1"#,
            r#"idempotency_unknown_total{operation="charge"} 1"#,
            r#"idempotency_finalize_total{operation="charge",status="kept"} 2"#,
            r#"idempotency_finalize_total{operation="charge",status="released"} 1"#,
            r#"idempotency_finalize_total{operation="charge",status="unknown"} 1"#,
            r#"idempotency_finalize_total{operation="charge",status="stale"} 1"#,
            r#"idempotency_recovery_total{operation="charge",status="did_not_happen"} 1"#,
            r#"onceward_store_calls_total{store="embedded",call="settle",result="stale"} 1"#,
            r#"idempotency_records_active{state="running"} 0"#,
            // The operator's decision is a record too.
            r#"idempotency_records_active{state="completed"} 2"#,
            r#"idempotency_records_active{state="failed"} 1"#,
            r#"idempotency_records_active{state="released"} 2"#,
            r#"idempotency_records_active{state="unknown"} 0"#,
            "onceward_record_count_age_seconds 0",
        ],
    );
}

async fn fence(admin: &App, claim: &serde_json::Value) -> u64 {
    let operator = format!("Bearer {OPERATOR}");
    let path = format!("/v1/operations/{}", claim["operation_id"].as_str().unwrap());
    let shown = admin.get(&path, &[("authorization", &operator)]).await;
    shown.json()["record"]["fence"].as_u64().unwrap_or_else(|| panic!("{shown:?}"))
}

/// The gateway counts the claims of its own claims API in the same metrics.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateways_claims_are_counted_too() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("onceward.toml");
    let admin = "[admin]\naddress = \"127.0.0.1:0\"\n";
    std::fs::write(&config, configuration(admin)).unwrap();
    let store = records_in(directory.path());
    let arguments = [
        "gateway",
        "--config",
        config.to_str().unwrap(),
        "--upstream",
        "http://127.0.0.1:9",
        "--store",
        &store,
        "--listen",
        "127.0.0.1:0",
        "--single-tenant",
    ];
    let binary = env!("CARGO_BIN_EXE_onceward");
    let program = example_walk::Program::start_with(binary, &arguments, &variables());
    let _front = program.address();
    let line = program.line().unwrap();
    let admin = line.split("metrics at http://").nth(1).expect("an admin address");
    let admin = App::at(admin.split('/').next().unwrap());
    let worker = crate::server::Client::new(&claims_address(&program), WORKER);
    granted(&worker.claim(&claim_of("k")).await);
    has(
        &metrics(&admin).await,
        &[
            r#"idempotency_claim_total{operation="charge",status="granted"} 1"#,
            r#"idempotency_claim_total{operation="POST *",status="granted"} 0"#,
        ],
    );
}
