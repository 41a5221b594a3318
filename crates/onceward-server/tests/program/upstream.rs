//! What a client gets when the service behind the gateway does not answer.

use std::time::{Duration, Instant};

use crate::book::{Answer, Book, post};
use crate::process::{Program, free_port};

fn gateway(book: &Book) -> (Program, tempfile::TempDir) {
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("onceward.toml");
    std::fs::write(&config, "[upstream]\nresponse_timeout = \"1s\"\nbody_timeout = \"1s\"\n")
        .unwrap();
    let records = data.path().join("records");
    let more = ["--config", config.to_str().unwrap()];
    (Program::gateway(book.address, &records, "127.0.0.1:0", &more), data)
}

fn is_unknown(answer: &Answer) -> bool {
    (answer.status, answer.code()) == (409, Some("IDEMPOTENCY_OUTCOME_UNKNOWN"))
}

#[test]
fn a_service_that_refuses_connections_leaves_the_key_free() {
    let book = Book::open();
    let data = tempfile::tempdir().unwrap();
    let nobody = std::net::SocketAddr::from(([127, 0, 0, 1], free_port()));
    let gateway = Program::gateway(nobody, data.path(), "127.0.0.1:0", &[]);
    let refused = post(gateway.address(), "0", "k").unwrap();
    assert_eq!((refused.status, refused.code()), (502, Some("UPSTREAM_UNREACHABLE")));
    drop(gateway);
    let gateway = Program::gateway(book.address, data.path(), "127.0.0.1:0", &[]);
    assert_eq!(post(gateway.address(), "0", "k").unwrap().status, 201);
    assert!(post(gateway.address(), "0", "k").unwrap().is_replay());
    assert_eq!(book.effects("k"), 1);
}

#[test]
fn a_connection_that_breaks_before_or_within_the_response_is_unknown_and_not_repeated() {
    let book = Book::open();
    let (gateway, _data) = gateway(&book);
    for manner in ["close-before", "close-within"] {
        let first = post(gateway.address(), manner, manner).unwrap();
        assert!(first.status >= 400, "{first:?}");
        for _ in 0..3 {
            let retry = post(gateway.address(), manner, manner).unwrap();
            assert!(is_unknown(&retry), "{retry:?}");
        }
        assert_eq!(book.effects(manner), 1);
    }
}

#[test]
fn a_service_that_never_answers_is_unknown_in_time() {
    let book = Book::open();
    let (gateway, _data) = gateway(&book);
    let begun = Instant::now();
    let first = post(gateway.address(), "silent", "k").unwrap();
    assert_eq!((first.status, first.code()), (504, Some("UPSTREAM_UNANSWERED")));
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(is_unknown(&post(gateway.address(), "silent", "k").unwrap()));
    assert_eq!(book.effects("k"), 1);
}
