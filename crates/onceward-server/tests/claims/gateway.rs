//! The claims API of a gateway, on the same store.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use example_walk::{App, Program};

use crate::server::{Client, WORKER, claim_of, claims_address, configuration, granted, variables};

/// Starts a service that answers every request with success.
fn service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                line.clear();
            }
            let answer =
                "HTTP/1.1 201 Created\r\nconnection: close\r\ncontent-length: 4\r\n\r\ndone";
            let _gone_perhaps = stream.write_all(answer.as_bytes());
        }
    });
    address
}

#[tokio::test]
async fn workers_see_the_gateways_operations_and_have_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("onceward.toml");
    std::fs::write(&config, configuration("")).unwrap();
    let (upstream, store) = (
        format!("http://{}", service()),
        format!("file:{}", directory.path().join("records").display()),
    );
    let arguments = [
        "gateway",
        "--config",
        config.to_str().unwrap(),
        "--upstream",
        &upstream,
        "--store",
        &store,
        "--listen",
        "127.0.0.1:0",
        "--single-tenant",
    ];
    let binary = env!("CARGO_BIN_EXE_onceward");
    let program = Program::start_with(binary, &arguments, &variables());
    let (front, claims) = (program.address(), claims_address(&program));

    let order = App::at(&front).post("/orders", &[("idempotency-key", "k")], "").await;
    assert_eq!(order.status, 201, "{order:?}");
    let worker = Client::new(&claims, WORKER);
    let page = worker.get("/v1/claims?operation=POST%20*&key=k").await;
    assert_eq!((page.status, page.json()["state"].as_str()), (200, Some("completed")), "{page:?}");
    assert_eq!(page.json()["bytes"]["codec"], "http/v1");
    granted(&worker.claim(&claim_of("k")).await);

    let (_, ended) = program.terminate();
    assert!(ended.success());
}
