//! Requests that two readers could take for different ones. Whatever the gateway makes of
//! them, the service behind it sees exactly the requests that are answered on that very
//! connection.

use std::io::Write;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use super::witness::Witness;
use super::{Target, connect, post, read_all, status};

/// Hidden behind what one reader takes for the end, and the other for the middle.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nhost: shop\r\nx-a: ";

/// Lines of a head, and what follows it.
struct Case {
    head: &'static str,
    body: String,
    /// Nothing of it may reach the service.
    refused: bool,
}

fn refused(head: &'static str, body: impl Into<String>) -> Case {
    Case { head, body: body.into(), refused: true }
}

/// Whatever it is taken for, both sides take it for the same.
fn in_step(head: &'static str, body: impl Into<String>) -> Case {
    Case { head, body: body.into(), refused: false }
}

fn cases() -> Vec<Case> {
    let hidden = |before: &str| format!("{before}{HIDDEN}");
    let ends = "0\r\n\r\n";
    vec![
        in_step("content-length: 5\r\ntransfer-encoding: chunked\r\n", hidden(ends)),
        in_step("transfer-encoding: chunked\r\ncontent-length: 5\r\n", hidden(ends)),
        in_step("content-length: 46\r\ntransfer-encoding: chunked\r\n", hidden(ends)),
        in_step("transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", hidden(ends)),
        in_step("transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n", hidden(ends)),
        in_step("content-length: 5\r\ncontent-length: 5\r\n", hidden("abcde")),
        in_step("Transfer-Encoding: Chunked\r\n", hidden(ends)),
        in_step("transfer-encoding: chunked\r\n", hidden("3;a=\"b\"\r\nabc\r\n0\r\n\r\n")),
        in_step("transfer-encoding: chunked\r\n", hidden("0\r\nhost: evil\r\n\r\n")),
        in_step("content-length: 5\nx-a: 1\n", hidden("abcde")),
        in_step("upgrade: h2c\r\nconnection: upgrade\r\ncontent-length: 0\r\n", HIDDEN),
        in_step("connection: content-length\r\ncontent-length: 5\r\n", hidden("abcde")),
        in_step("connection: transfer-encoding\r\ntransfer-encoding: chunked\r\n", hidden(ends)),
        in_step("transfer-encoding: chunked, chunked\r\n", hidden(ends)),
        in_step("transfer-encoding: identity, chunked\r\n", hidden(ends)),
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

/// The paths that a connection was answered for by the service itself.
fn answered(told: &str) -> Vec<String> {
    let paths = told.lines().filter_map(|line| line.strip_prefix("x-witness: "));
    paths.map(str::to_owned).collect()
}

#[test]
fn the_service_sees_only_what_is_answered_on_the_same_connection() {
    let target = Target::start();
    let cases = cases();
    thread::scope(|scope| {
        for (number, case) in cases.iter().enumerate() {
            for key in ["", "idempotency-key: k\r\n"] {
                let (to, witness) = (target.address(), &target.witness);
                scope.spawn(move || attack(to, witness, number, case, key));
            }
        }
    });
    // Whoever comes next on the same connections to the service is in step.
    let next = post("/next", "next", "connection: close\r\n", "{}");
    assert_eq!(answered(&target.send(next.as_bytes())), ["/next"]);
    target.grown("request smuggling", 64);
    println!("THREAT request smuggling: {} requests tried", 2 * cases.len());
}

fn attack(to: SocketAddr, witness: &Witness, number: usize, case: &Case, key: &str) {
    let path = format!("/case-{number}-{}-", key.len());
    let body = case.body.replace("/hidden", &format!("{path}hidden"));
    let head = format!("POST {path} HTTP/1.1\r\nhost: shop\r\n{key}{}\r\n", case.head);
    let mut stream = connect(to);
    stream.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    let _refused_early = stream.write_all(format!("{head}{body}").as_bytes());
    let told = read_all(&mut stream);
    let _closed = stream.write_all(b"1\r\n\r\n");
    let told = told + &read_all(&mut stream);
    let seen = witness.saw(&path);
    assert_eq!(answered(&told), seen, "{head:?}{body:?} → {told}");
    if case.refused {
        assert!(seen.is_empty(), "{head:?}{body:?} was seen as {seen:?}");
        assert!(!told.contains(" 200 "), "{head:?}{body:?} → {told}");
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

    let told = target.send(format!("{first}{first}{}", after("/behind-replay")).as_bytes());
    assert_eq!(told.matches("idempotent-replayed: true").count(), 2, "{told}");
    // A replay has the witness's header of the first answer.
    assert_eq!(answered(&told), ["/first", "/first", "/behind-replay"], "{told}");
    assert_eq!(target.witness.saw("/first").len(), 1, "{told}");

    let refusals = [
        (400, post("/refused", "not a key", "", hidden)),
        (400, post("/refused", "a\r\nidempotency-key: b", "", hidden)),
        (422, post("/first", "k", "", &format!("{{\"other\":\"{}\"}}", "x".repeat(99)))),
        (413, post("/refused", "k2", "", &format!("{hidden}{}", "x".repeat(11 << 20)))),
    ];
    for (number, (expected, refused)) in refusals.iter().enumerate() {
        let path = format!("/behind-refusal-{number}");
        let told = target.send((refused.clone() + &after(&path)).as_bytes());
        assert_eq!(status(&told), *expected, "{number}: {told}");
        assert_eq!(answered(&told), target.witness.saw(&path), "{number}: {told}");
    }
    let saw = |path| target.witness.saw(path).len();
    assert_eq!((saw("/hidden"), saw("/refused"), saw("/first")), (0, 0, 1));
}
