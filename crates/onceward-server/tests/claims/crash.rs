//! Killed workers and servers, and lost answers.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{Server, WORKER, claim_of, granted, records_in, refused};

/// A claim with a short lease.
fn short(key: &str) -> Value {
    let mut claim = claim_of(key);
    claim["lease"] = "1s".into();
    claim
}

fn takeover(key: &str) -> Value {
    let mut claim = claim_of(key);
    claim["on_lapse"] = "takeover".into();
    claim
}

#[tokio::test]
async fn what_a_dead_worker_did_is_unknown_until_it_says_so_itself() {
    let (server, _directory) = Server::embedded();
    let worker = server.client(WORKER);
    let dead = granted(&worker.claim(&short("k")).await);
    let next = worker.claim_until_settled(&claim_of("k")).await;
    assert_eq!(refused(&next), (409, "IDEMPOTENCY_OUTCOME_UNKNOWN".into()));
    let page = format!("/v1/claims/{}", dead["operation_id"].as_str().unwrap());
    assert_eq!(worker.get(&page).await.json()["state"], "unknown");
    // Too late to renew, but not to report the result.
    let renew = worker.settle("renew", &dead["lease"], &json!({})).await;
    assert_eq!(refused(&renew), (409, "LEASE_LOST".into()));
    assert_eq!(
        worker.settle("complete", &dead["lease"], &json!({ "result": 1 })).await.status,
        200
    );
    assert_eq!(worker.claim(&claim_of("k")).await.json()["result"], 1);
}

#[tokio::test]
async fn after_a_takeover_the_late_worker_is_refused() {
    let (server, _directory) = Server::embedded();
    let worker = server.client(WORKER);
    let late = granted(&worker.claim(&short("k")).await);
    let next = granted(&worker.claim_until_settled(&takeover("k")).await);
    assert_eq!(next["attempt"], 2);
    assert_eq!(next["downstream_key"], late["downstream_key"]);
    assert_eq!(next["operation_id"], late["operation_id"]);
    assert!(next["lease"]["fence"].as_u64() > late["lease"]["fence"].as_u64());
    for word in ["complete", "fail", "unknown", "release", "renew"] {
        let refusal = worker.settle(word, &late["lease"], &json!({})).await;
        assert_eq!(refused(&refusal), (409, "LEASE_LOST".into()), "{word}");
    }
    assert_eq!(
        worker.settle("complete", &next["lease"], &json!({ "result": 2 })).await.status,
        200
    );
    assert_eq!(worker.claim(&claim_of("k")).await.json()["result"], 2);
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_granted_once() {
    let (server, _directory) = Server::embedded();
    let (worker, claim) = (server.client(WORKER), claim_of("k"));
    send_and_hang_up(&server.address, "/v1/claims", &claim);
    until_running(&server, "k").await;
    let grant = granted(&worker.claim(&claim).await);
    assert_eq!(grant["attempt"], 1);
    let body = json!({ "lease": grant["lease"], "result": "paid" });
    send_and_hang_up(&server.address, "/v1/claims/complete", &body);
    assert_eq!(worker.post("/v1/claims/complete", &body).await.status, 200);
    assert_eq!(worker.claim(&claim_of("k")).await.json()["result"], "paid");
}

/// Sends a request and closes the connection without reading the answer.
fn send_and_hang_up(address: &str, path: &str, body: &Value) {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {WORKER}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    TcpStream::connect(address).unwrap().write_all(request.as_bytes()).unwrap();
}

/// Waits until the store has a claim. The server may not have read a request whose client left early.
async fn until_running(server: &Server, key: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    let page = format!("/v1/claims?tenant=acme&operation=charge&key={key}");
    while server.client(WORKER).get(&page).await.status != 200 {
        assert!(Instant::now() < end, "the claim did not arrive");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_server_that_is_killed_forgets_no_claim() {
    let (mut server, directory) = Server::embedded();
    let grant = granted(&server.client(WORKER).claim(&claim_of("k")).await);
    server.program.kill();
    let server = Server::start(&records_in(directory.path()), directory.path(), "");
    let worker = server.client(WORKER);
    let other = worker.claim_until_settled(&claim_of("k")).await;
    assert_eq!(refused(&other), (409, "IDEMPOTENCY_OUTCOME_UNKNOWN".into()));
    // The worker outlived the server, and can still complete its claim.
    assert_eq!(
        worker.settle("complete", &grant["lease"], &json!({ "result": 3 })).await.status,
        200
    );
    assert_eq!(worker.claim(&claim_of("k")).await.json()["result"], 3);
}
