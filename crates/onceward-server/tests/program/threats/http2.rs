//! Floods of HTTP/2 frames.

use std::io::Write;
use std::net::TcpStream;

use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS, frame, get,
    header, hello, until_closed,
};
use super::{Bystander, Target};

/// Writes until everything is sent or the other side closes, and returns how much was sent. Another
/// thread reads, so that neither direction blocks the other.
fn flood(stream: &mut TcpStream, frames: impl Iterator<Item = Vec<u8>>) -> (usize, Vec<u8>) {
    let mut reading = stream.try_clone().unwrap();
    let reader = std::thread::spawn(move || until_closed(&mut reading));
    let taken = frames.take_while(|frame| stream.write_all(frame).is_ok()).map(|it| it.len()).sum();
    let _closed_already = stream.shutdown(std::net::Shutdown::Write);
    (taken, reader.join().unwrap())
}

#[test]
fn headers_that_go_on_for_ever_end_the_connection() {
    let target = Target::start();
    let bystander = Bystander::start(target.address());
    let filler: Vec<u8> =
        (0..100).flat_map(|number| header(&format!("x-{number}"), &"y".repeat(100))).collect();
    for _ in 0..200 {
        let first = frame(HEADERS, END_STREAM, 1, &get("/endless"));
        let more = std::iter::repeat_with(|| frame(CONTINUATION, 0, 1, &filler)).take(10_000);
        let (taken, _) = flood(&mut hello(&target), std::iter::once(first).chain(more));
        assert!(taken < 8 << 20, "{taken} bytes were taken");
    }
    target.grown("CONTINUATION flood", 64);
    bystander.end("CONTINUATION flood");
    assert!(target.service.saw("/endless").is_empty());
}

#[test]
fn too_large_a_head_over_http_2_does_not_reach_the_service() {
    let target = Target::start();
    let mut block = get("/large");
    block.extend((0..600).flat_map(|number| header(&format!("x-{number}"), &"y".repeat(100))));
    let mut stream = hello(&target);
    let frames = block.chunks(16_000).enumerate().map(|(number, part)| {
        let kind = if number == 0 { HEADERS } else { CONTINUATION };
        let last = (number + 1) * 16_000 >= block.len();
        let flags = if number == 0 { END_STREAM } else { 0 } | if last { END_HEADERS } else { 0 };
        frame(kind, flags, 1, part)
    });
    flood(&mut stream, frames.collect::<Vec<_>>().into_iter());
    assert!(target.service.saw("/large").is_empty());
}

#[test]
fn requests_that_are_taken_back_at_once_do_not_pile_up() {
    let target = Target::start();
    let bystander = Bystander::start(target.address());
    for round in 0..50 {
        let begin_and_end = (0..20_000).flat_map(|number| {
            let (stream, flags) = (2 * number + 1, END_HEADERS | END_STREAM);
            [
                frame(HEADERS, flags, stream, &get("/reset")),
                frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()),
            ]
        });
        let (taken, output) = flood(&mut hello(&target), begin_and_end);
        if round == 0 {
            println!("THREAT rapid reset: {} requests were taken", taken / 37);
        }
        assert!(output.contains(&7), "it says GOAWAY: {output:?}");
    }
    let reached = target.service.saw("/reset").len();
    println!("THREAT rapid reset: {reached} of 1000000 reached the service");
    assert!(reached < 50_000, "{reached}");
    target.grown("rapid reset", 64);
    bystander.end("rapid reset");
}

#[test]
fn frames_that_mean_nothing_cost_nobody_else_anything() {
    let target = Target::start();
    let bystander = Bystander::start(target.address());
    let open = frame(HEADERS, END_HEADERS, 1, &get("/nothing"));
    let pings = || frame(PING, 0, 0, &[0; 8]);
    let settings = || frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]);
    let empty = || frame(DATA, 0, 1, &[]);
    flood(&mut hello(&target), std::iter::repeat_with(pings).take(100_000));
    flood(&mut hello(&target), std::iter::repeat_with(settings).take(100_000));
    let data = std::iter::repeat_with(empty).take(100_000);
    flood(&mut hello(&target), std::iter::once(open).chain(data));
    target.grown("empty frames", 64);
    bystander.end("empty frames");
}
