//! Answers of the gateway when the service does not answer.

use std::time::{Duration, Instant};

use crate::counting_service::{CountingService, Response, post};
use crate::process::{Program, free_port};

fn gateway(service: &CountingService) -> (Program, tempfile::TempDir) {
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("onceward.toml");
    std::fs::write(&config, "[upstream]\nresponse_timeout = \"1s\"\nbody_timeout = \"1s\"\n")
        .unwrap();
    let records = data.path().join("records");
    let more = ["--config", config.to_str().unwrap()];
    (Program::gateway(service.address, &records, "127.0.0.1:0", &more), data)
}

fn is_unknown(answer: &Response) -> bool {
    (answer.status, answer.code()) == (409, Some("IDEMPOTENCY_OUTCOME_UNKNOWN"))
}

#[test]
fn a_service_that_refuses_connections_leaves_the_key_free() {
    let service = CountingService::open();
    let data = tempfile::tempdir().unwrap();
    let closed_port = std::net::SocketAddr::from(([127, 0, 0, 1], free_port()));
    let gateway = Program::gateway(closed_port, data.path(), "127.0.0.1:0", &[]);
    let refused = post(gateway.address(), "0", "k").unwrap();
    assert_eq!((refused.status, refused.code()), (502, Some("UPSTREAM_UNREACHABLE")));
    drop(gateway);
    let gateway = Program::gateway(service.address, data.path(), "127.0.0.1:0", &[]);
    assert_eq!(post(gateway.address(), "0", "k").unwrap().status, 201);
    assert!(post(gateway.address(), "0", "k").unwrap().is_replay());
    assert_eq!(service.effects("k"), 1);
}

#[test]
fn a_connection_that_breaks_before_or_within_the_response_is_unknown_and_not_repeated() {
    let service = CountingService::open();
    let (gateway, _data) = gateway(&service);
    for behaviour in ["close-before", "close-within"] {
        let first = post(gateway.address(), behaviour, behaviour).unwrap();
        assert!(first.status >= 400, "{first:?}");
        for _ in 0..3 {
            let retry = post(gateway.address(), behaviour, behaviour).unwrap();
            assert!(is_unknown(&retry), "{retry:?}");
        }
        assert_eq!(service.effects(behaviour), 1);
    }
}

#[test]
fn a_service_that_never_answers_is_unknown_in_time() {
    let service = CountingService::open();
    let (gateway, _data) = gateway(&service);
    let begun = Instant::now();
    let first = post(gateway.address(), "silent", "k").unwrap();
    assert_eq!((first.status, first.code()), (504, Some("UPSTREAM_UNANSWERED")));
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(is_unknown(&post(gateway.address(), "silent", "k").unwrap()));
    assert_eq!(service.effects("k"), 1);
}
