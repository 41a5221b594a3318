//! Large and decompressing bodies.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Bystander, Target, long, post, read_all, status};

const GIB: usize = 1 << 30;

/// Compressed zeros, about a thousandth of `size`.
fn bomb(size: usize) -> Vec<u8> {
    let zeros = vec![b'0'; 1 << 20];
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for _ in 0..size >> 20 {
        encoder.write_all(&zeros).unwrap();
    }
    encoder.finish().unwrap()
}

#[test]
fn a_body_that_unpacks_to_more_than_a_gibibyte_is_refused_at_once() {
    let target = Target::start();
    let bomb = bomb(GIB + (100 << 20));
    for number in 0..5 {
        let head = post("/bomb", &format!("k{number}"), "content-encoding: gzip\r\n", "");
        let length = format!("connection: close\r\ncontent-length: {}", bomb.len());
        let mut request = head.replace("content-length: 0", &length).into_bytes();
        request.extend(&bomb);
        let begun = Instant::now();
        let output = target.send(&request);
        assert_eq!(status(&output), 413, "{output}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        if number == 0 {
            println!("THREAT gzip bomb: {} bytes, 413 after {:?}", bomb.len(), begun.elapsed());
        }
    }
    target.grown("gzip bomb", 128);
    assert!(target.service.saw("/bomb").is_empty());
}

#[test]
fn a_protected_body_of_a_gibibyte_is_refused_by_its_length_or_at_the_limit() {
    let target = Target::start();
    let declared = post("/huge", "k", "", "").replace("length: 0", &format!("length: {GIB}"));
    let begun = Instant::now();
    assert_eq!(status(&target.send(declared.as_bytes())), 413);
    assert!(begun.elapsed() < Duration::from_secs(2));

    let mut stream = target.connect();
    let head = "POST /huge HTTP/1.1\r\nhost: shop\r\nidempotency-key: k\r\n\
                transfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    let sent = (0..GIB >> 20).take_while(|_| stream.write_all(chunk.as_bytes()).is_ok()).count();
    let output = read_all(&mut stream);
    println!(
        "THREAT chunked body: {sent} MiB of 1024 were taken, then {:?}",
        output.lines().next()
    );
    assert!(sent < 64, "{sent} MiB were taken");
    assert!(output.is_empty() || status(&output) == 413, "{output}");
    target.grown("1 GiB on a protected route", 64);
    assert!(target.service.saw("/huge").is_empty());
}

/// A client that reads the response learns why it is refused.
#[test]
fn a_body_just_over_the_limit_gets_its_413() {
    let target = Target::start();
    let mut stream = target.connect();
    let head = "POST /huge HTTP/1.1\r\nhost: shop\r\nidempotency-key: k\r\n\
                transfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    for _ in 0..10 {
        stream.write_all(chunk.as_bytes()).unwrap();
    }
    stream.write_all(b"1\r\nx").unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 413");
}

#[test]
fn what_is_not_protected_streams_in_bounded_memory() {
    let target = Target::start();
    let bystander = Bystander::start(target.address());
    let mib = if long() { 1024 } else { 200 };
    let mut stream = target.connect();
    let length = mib << 20;
    let head = format!(
        "PUT /streamed HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let (chunk, begun) = (vec![b'x'; 1 << 20], Instant::now());
    for _ in 0..mib {
        stream.write_all(&chunk).unwrap();
    }
    let output = read_all(&mut stream);
    assert!(output.ends_with(&format!("\r\n\r\n{length}")), "{output}");
    println!("THREAT streaming: {mib} MiB in {:?}", begun.elapsed());
    target.grown("streaming", 64);
    bystander.end("streaming");
}

#[test]
fn json_of_a_hundred_thousand_levels_is_a_request_like_any_other() {
    let target = Target::start();
    let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let (objects, unclosed) = ("{\"a\":".repeat(100_000), "[".repeat(5 << 20));
    for (number, body) in [deep(100_000), objects, unclosed].iter().enumerate() {
        let request = post("/deep", &format!("k{number}"), "connection: close\r\n", body);
        let begun = Instant::now();
        for replay in [false, true] {
            let output = target.send(request.as_bytes());
            assert_eq!((status(&output), output.contains("idempotent-replayed")), (200, replay));
        }
        println!("THREAT nested JSON: {} bytes twice in {:?}", body.len(), begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
    target.grown("nested JSON", 96);
    assert_eq!(target.service.saw("/deep").len(), 3);
}
