//! Ambiguous requests. However the gateway reads them, the service sees exactly the requests that
//! are answered on the same connection.

use std::io::Write;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use super::strict_service::StrictService;
use super::{Target, connect, post, read_all, status};

/// A request hidden behind a body whose end is ambiguous.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nhost: shop\r\nx-a: ";

/// Lines of a head, and the bytes after it.
struct Case {
    head: &'static str,
    body: String,
    /// The request must not reach the service.
    refused: bool,
}

fn refused(head: &'static str, body: impl Into<String>) -> Case {
    Case { head, body: body.into(), refused: true }
}

/// A request that the gateway may accept, if the service reads it in the same way.
fn same_reading(head: &'static str, body: impl Into<String>) -> Case {
    Case { head, body: body.into(), refused: false }
}

fn cases() -> Vec<Case> {
    let hidden = |before: &str| format!("{before}{HIDDEN}");
    let ends = "0\r\n\r\n";
    vec![
        same_reading("content-length: 5\r\ntransfer-encoding: chunked\r\n", hidden(ends)),
        same_reading("transfer-encoding: chunked\r\ncontent-length: 5\r\n", hidden(ends)),
        same_reading("content-length: 46\r\ntransfer-encoding: chunked\r\n", hidden(ends)),
        same_reading("transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", hidden(ends)),
        same_reading("transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n", hidden(ends)),
        same_reading("content-length: 5\r\ncontent-length: 5\r\n", hidden("abcde")),
        same_reading("Transfer-Encoding: Chunked\r\n", hidden(ends)),
        same_reading("transfer-encoding: chunked\r\n", hidden("3;a=\"b\"\r\nabc\r\n0\r\n\r\n")),
        same_reading("transfer-encoding: chunked\r\n", hidden("0\r\nhost: evil\r\n\r\n")),
        same_reading("content-length: 5\nx-a: 1\n", hidden("abcde")),
        same_reading("upgrade: h2c\r\nconnection: upgrade\r\ncontent-length: 0\r\n", HIDDEN),
        same_reading("connection: content-length\r\ncontent-length: 5\r\n", hidden("abcde")),
        same_reading(
            "connection: transfer-encoding\r\ntransfer-encoding: chunked\r\n",
            hidden(ends),
        ),
        same_reading("transfer-encoding: chunked, chunked\r\n", hidden(ends)),
        same_reading("transfer-encoding: identity, chunked\r\n", hidden(ends)),
        refused("content-length: 5\r\ncontent-length: 6\r\n", hidden("abcde")),
        refused("content-length: 5, 6\r\n", hidden("abcde")),
        refused("content-length: +5\r\n", hidden("abcde")),
        refused("content-length: -5\r\n", hidden("abcde")),
        refused("content-length: 0x5\r\n", hidden("abcde")),
        refused("content-length: 5 5\r\n", hidden("abcde")),
        refused("content-length: \r\n", hidden("abcde")),
        refused("content-length: 18446744073709551621\r\n", hidden("abcde")),
        refused("content-length : 5\r\n", hidden("abcde")),
        refused("transfer-encoding : chunked\r\n", hidden(ends)),
        refused("transfer-encoding: xchunked\r\n", hidden(ends)),
        refused("transfer-encoding: chunked, identity\r\n", hidden(ends)),
        refused("transfer-encoding: \u{b}chunked\r\n", hidden(ends)),
        refused("transfer-encoding: \"chunked\"\r\n", hidden(ends)),
        refused("x-a: 1\r\n transfer-encoding: chunked\r\n", hidden(ends)),
        refused("transfer-encoding:\r\n chunked\r\n", hidden(ends)),
        refused("x-a: a\0b\r\ncontent-length: 5\r\n", hidden("abcde")),
        refused("x\0a: 1\r\ncontent-length: 5\r\n", hidden("abcde")),
        refused("x-a: a\rcontent-length: 5\r\n", hidden("abcde")),
        refused("\rx-a: a\r\ncontent-length: 5\r\n", hidden("abcde")),
        refused(": a\r\ncontent-length: 5\r\n", hidden("abcde")),
        refused("no colon\r\ncontent-length: 5\r\n", hidden("abcde")),
        refused("transfer-encoding: chunked\r\n", hidden("fffffffffffffffff\r\nabc\r\n")),
        refused("transfer-encoding: chunked\r\n", hidden("-3\r\nabc\r\n0\r\n\r\n")),
        refused("transfer-encoding: chunked\r\n", hidden("0x3\r\nabc\r\n0\r\n\r\n")),
        refused("transfer-encoding: chunked\r\n", hidden("3\r\nabcde0\r\n\r\n")),
        refused("transfer-encoding: chunked\r\n", hidden("3;\n5\r\nabc\r\n0\r\n\r\n")),
        refused("transfer-encoding: chunked\r\n", hidden("\r\n\r\n0\r\n\r\n")),
    ]
}

/// Paths that the service answered on a connection.
fn answered(output: &str) -> Vec<String> {
    let paths = output.lines().filter_map(|line| line.strip_prefix("x-service: "));
    paths.map(str::to_owned).collect()
}

#[test]
fn the_service_sees_only_what_is_answered_on_the_same_connection() {
    let target = Target::start();
    let cases = cases();
    thread::scope(|scope| {
        for (number, case) in cases.iter().enumerate() {
            for key in ["", "idempotency-key: k\r\n"] {
                let (to, service) = (target.address(), &target.service);
                scope.spawn(move || attack(to, service, number, case, key));
            }
        }
    });
    // The next request on the upstream connections is not affected.
    let next = post("/next", "next", "connection: close\r\n", "{}");
    assert_eq!(answered(&target.send(next.as_bytes())), ["/next"]);
    target.grown("request smuggling", 64);
    println!("THREAT request smuggling: {} requests tried", 2 * cases.len());
}

fn attack(to: SocketAddr, service: &StrictService, number: usize, case: &Case, key: &str) {
    let path = format!("/case-{number}-{}-", key.len());
    let body = case.body.replace("/hidden", &format!("{path}hidden"));
    let head = format!("POST {path} HTTP/1.1\r\nhost: shop\r\n{key}{}\r\n", case.head);
    let mut stream = connect(to);
    stream.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    let _refused_early = stream.write_all(format!("{head}{body}").as_bytes());
    let output = read_all(&mut stream);
    let _closed = stream.write_all(b"1\r\n\r\n");
    let output = output + &read_all(&mut stream);
    let seen = service.saw(&path);
    assert_eq!(answered(&output), seen, "{head:?}{body:?} → {output}");
    if case.refused {
        assert!(seen.is_empty(), "{head:?}{body:?} was seen as {seen:?}");
        assert!(!output.contains(" 200 "), "{head:?}{body:?} → {output}");
    }
}

#[test]
fn what_is_pipelined_behind_a_replay_or_a_refusal_is_a_request_of_its_own_or_nothing() {
    let target = Target::start();
    let first = post("/first", "k", "", "{}");
    let hidden = "GET /hidden HTTP/1.1\r\nhost: shop\r\n\r\n";
    let after =
        |path: &str| format!("GET {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n");
    assert_eq!(status(&target.send((first.clone() + &after("/x")).as_bytes())), 200);

    let output = target.send(format!("{first}{first}{}", after("/behind-replay")).as_bytes());
    assert_eq!(output.matches("idempotent-replayed: true").count(), 2, "{output}");
    // A replay has the service's header of the first response.
    assert_eq!(answered(&output), ["/first", "/first", "/behind-replay"], "{output}");
    assert_eq!(target.service.saw("/first").len(), 1, "{output}");

    let refusals = [
        (400, post("/refused", "not a key", "", hidden)),
        (400, post("/refused", "a\r\nidempotency-key: b", "", hidden)),
        (422, post("/first", "k", "", &format!("{{\"other\":\"{}\"}}", "x".repeat(99)))),
        (413, post("/refused", "k2", "", &format!("{hidden}{}", "x".repeat(11 << 20)))),
    ];
    for (number, (expected, refused)) in refusals.iter().enumerate() {
        let path = format!("/behind-refusal-{number}");
        let output = target.send((refused.clone() + &after(&path)).as_bytes());
        assert_eq!(status(&output), *expected, "{number}: {output}");
        assert_eq!(answered(&output), target.service.saw(&path), "{number}: {output}");
    }
    let saw = |path| target.service.saw(path).len();
    assert_eq!((saw("/hidden"), saw("/refused"), saw("/first")), (0, 0, 1));
}
