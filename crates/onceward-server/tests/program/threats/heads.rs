//! Heads that are too large, and malformed keys.

use super::{Bystander, Target, status};

#[test]
fn heads_with_too_many_or_too_large_headers_are_refused() {
    let target = Target::start();
    let bystander = Bystander::start(target.address());
    let many: String = (0..5000).map(|number| format!("x-{number}: 1\r\n")).collect();
    let floods = [
        many,
        format!("x-large: {}\r\n", "x".repeat(100 << 10)),
        format!("cookie: {}\r\n", "a=b; ".repeat(200 << 10)),
        "x-a: 1\r\n".repeat(101),
    ];
    for flood in &floods {
        for _ in 0..200 {
            let output =
                target.send(format!("GET /flood HTTP/1.1\r\nhost: shop\r\n{flood}\r\n").as_bytes());
            // The gateway may close while the rest is still being sent.
            assert!(matches!(status(&output), 431 | 0), "{output}");
        }
    }
    let long = format!("GET /{} HTTP/1.1\r\nhost: shop\r\n\r\n", "x".repeat(100 << 10));
    assert!(matches!(status(&target.send(long.as_bytes())), 414 | 431 | 0));
    target.grown("header floods", 64);
    bystander.end("header floods");
    assert!(target.service.saw("/flood").is_empty());
}

#[test]
fn keys_that_are_none_are_refused_and_not_repeated() {
    let target = Target::start();
    let long = "canary".repeat(50);
    let keys = [
        "canary\r\nidempotency-key: canary",
        "canary\r\nidempotency-key: other",
        "canary\r\nIDEMPOTENCY-KEY: other",
        "canary, other",
        "canary\u{e9}",
        "canary\tcanary",
        "canary\u{7f}",
        "canary\rcanary",
        "canary\0",
        "\"canary",
        "\"canary\\r\\n\"",
        "\"\"",
        "",
        "   ",
        &long,
    ];
    for key in keys {
        let request = format!(
            "POST /key HTTP/1.1\r\nhost: shop\r\nconnection: close\r\nidempotency-key: {key}\r\n\
             content-length: 2\r\n\r\n{{}}"
        );
        let output = target.send(request.as_bytes());
        assert_eq!(status(&output), 400, "{key:?} → {output}");
        assert!(!output.contains("canary"), "{key:?} → {output}");
    }
    assert!(target.service.saw("/key").is_empty());
    // A text that becomes a line break only when decoded is a valid key.
    let harmless = "POST /key HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\
                    idempotency-key: a%0d%0ab\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(status(&target.send(harmless.as_bytes())), 200);
}
