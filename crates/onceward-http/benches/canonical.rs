//! The canonical form of a JSON body, beside what a service does with the same text anyway:
//! reading it with serde_json, and SHA-256 over its bytes.
//!
//! Only ratios within one run count.

use std::fmt::Write;

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use onceward_http::testing::{Selection, canonicalize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Bodies of commands: a payment, an order, a batch of orders.
const SIZES: [usize; 3] = [200, 2 * 1024, 64 * 1024];

fn main() {
    divan::main();
}

#[divan::bench(args = SIZES, sample_size = 50)]
fn canonical(bencher: Bencher, size: usize) {
    let selection = Selection::everything();
    run(bencher, size, |text, out| canonicalize(text, &selection, out, None).unwrap());
}

#[divan::bench(args = SIZES, sample_size = 50)]
fn canonical_without_two_fields(bencher: Bencher, size: usize) {
    let exclude = ["/orders/0/customer/email", "/orders/0/sent_at"];
    let selection = Selection::new(&[] as &[&str], &exclude).unwrap();
    run(bencher, size, |text, out| canonicalize(text, &selection, out, None).unwrap());
}

#[divan::bench(args = SIZES, sample_size = 50)]
fn canonical_with_parts(bencher: Bencher, size: usize) {
    let selection = Selection::everything();
    let mut parts = Vec::new();
    run(bencher, size, |text, out| {
        parts.clear();
        canonicalize(text, &selection, out, Some(&mut parts)).unwrap();
    });
}

#[divan::bench(args = SIZES, sample_size = 50)]
fn canonical_and_sha256(bencher: Bencher, size: usize) {
    let selection = Selection::everything();
    run(bencher, size, |text, out| {
        canonicalize(text, &selection, out, None).unwrap();
        black_box(Sha256::digest(&*out));
    });
}

#[divan::bench(args = SIZES, sample_size = 50)]
fn serde_json_value(bencher: Bencher, size: usize) {
    let text = body(size);
    bencher
        .counter(BytesCount::new(text.len()))
        .bench_local(|| serde_json::from_slice::<Value>(black_box(&text)).unwrap());
}

#[divan::bench(args = SIZES, sample_size = 50)]
fn sha256(bencher: Bencher, size: usize) {
    run(bencher, size, |text, _| {
        black_box(Sha256::digest(text));
    });
}

/// With a buffer that is used again, as a service has it.
fn run(bencher: Bencher, size: usize, mut job: impl FnMut(&[u8], &mut Vec<u8>)) {
    let text = body(size);
    let mut out = Vec::new();
    bencher.counter(BytesCount::new(text.len())).bench_local(|| {
        out.clear();
        job(black_box(&text), &mut out);
        black_box(&out);
    });
}

/// As many orders as come near the size, filled up with a note to have it exactly.
fn body(size: usize) -> Vec<u8> {
    let mut text = String::from("{\"orders\":[");
    let mut number = 0;
    loop {
        let order = order(number);
        let end = "],\"note\":\"\"}".len();
        if text.len() + order.len() + end > size && number > 0 {
            break;
        }
        text.push_str(if number > 0 { "," } else { "" });
        text.push_str(&order);
        number += 1;
    }
    text.push_str("],\"note\":\"");
    let missing = size.saturating_sub(text.len() + 2);
    write!(text, "{}\"}}", "n".repeat(missing)).unwrap();
    text.into_bytes()
}

fn order(number: usize) -> String {
    format!(
        r#"{{"sku":"A-{number}","amount":{}.50,"currency":"EUR","express":true,"coupon":null,"customer":{{"id":"c-{}","email":"k{number}@example.org"}},"quantity":{},"sent_at":"2026-11-16"}}"#,
        1000 + number,
        number * 7919,
        1 + number % 5,
    )
}
