//! NATS with JetStream, asked by lines of its protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use onceward_services::{Nats, Server, nats, or_skip};

use crate::support::processes_in;

/// Sends a message and returns the answer to it.
fn ask(nats: &Server, subject: &str, headers: &str, payload: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(nats.address())?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let head = format!("NATS/1.0\r\n{headers}\r\n");
    let sizes = (head.len(), head.len() + payload.len());
    let message = format!("HPUB {subject} answers {} {}\r\n{head}{payload}\r\n", sizes.0, sizes.1);
    let options = r#"{"verbose":false,"headers":true}"#;
    write!(stream, "CONNECT {options}\r\nSUB answers 1\r\n{message}")?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if line.starts_with("-ERR") {
            return Ok(line);
        }
        if line.starts_with("MSG ") {
            let size = line.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
            let mut answer = vec![0; size];
            lines.read_exact(&mut answer)?;
            return Ok(String::from_utf8(answer).unwrap());
        }
    }
}

#[test]
fn nats_keeps_messages_and_their_ids_when_it_is_killed() {
    let Some(nats) = nats() else { return };
    let stream = r#"{"name":"orders","subjects":["orders.*"],"storage":"file"}"#;
    let created = ask(&nats, "$JS.API.STREAM.CREATE.orders", "", stream).unwrap();
    assert!(created.contains("did_create"), "{created}");
    let publish = || ask(&nats, "orders.new", "Nats-Msg-Id: one\r\n", "payload");
    assert!(publish().unwrap().contains(r#""seq":1"#));
    nats.kill().unwrap();
    assert_eq!(processes_in(nats.directory()), 0);
    publish().unwrap_err();
    nats.start().unwrap();
    assert!(publish().unwrap().contains(r#""duplicate": true"#));
    nats.restart().unwrap();
    nats.pause();
    thread::scope(|scope| {
        let publisher = scope.spawn(publish);
        thread::sleep(Duration::from_millis(300));
        assert!(!publisher.is_finished());
        nats.resume();
        let answer = publisher.join().unwrap().unwrap();
        assert!(answer.contains(r#""duplicate": true"#), "{answer}");
    });
}

#[test]
fn a_nats_has_its_settings() {
    let settings =
        Nats::default().setting("max_payload", "1000").jetstream("max_file_store", "9MB");
    let Some(nats) = or_skip(settings.start()) else { return };
    let refused = ask(&nats, "any", "", &"x".repeat(1500)).unwrap();
    assert!(refused.contains("Maximum Payload Violation"), "{refused}");
    let stream = r#"{"name":"large","subjects":["large"],"storage":"file","max_bytes":10000000}"#;
    let refused = ask(&nats, "$JS.API.STREAM.CREATE.large", "", stream).unwrap();
    assert!(refused.contains("insufficient storage"), "{refused}");
}
