//! The lines that explain a night to the person on call.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

use serde_json::Value;

use crate::counting_service::CountingService;
use crate::process::Program;

/// Sends one request with a field that may differ, and returns the status.
fn post(to: SocketAddr, path: &str, key: &str, amount: u32) -> u16 {
    let body = format!("{{\"amount\":{amount}}}");
    let mut stream = TcpStream::connect(to).unwrap();
    let request = format!(
        "POST /{path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nidempotency-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer[9..12].parse().unwrap()
}

/// A gateway that logs into a file, and has answered 300 requests: 100 first ones, 150 replays,
/// 48 mismatches, an unknown outcome and its retry.
fn night(settings: &str) -> (String, String) {
    let (service, data) = (CountingService::open(), tempfile::tempdir().unwrap());
    let (config, logs) = (data.path().join("onceward.toml"), data.path().join("logs"));
    std::fs::write(&config, settings).unwrap();
    let (upstream, store) = (
        format!("http://{}", service.address),
        format!("file:{}", data.path().join("records").display()),
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
        "--admin",
        "127.0.0.1:0",
        "--single-tenant",
    ];
    let logged = Stdio::from(File::create(&logs).unwrap());
    let gateway = Program::start_logging(&arguments, "metrics at", logged);
    let to = gateway.address();
    for number in 0..100 {
        assert_eq!(post(to, "0", &format!("secret-{number}"), 1), 201);
    }
    for number in 0..150 {
        assert_eq!(post(to, "0", &format!("secret-{}", number % 100), 1), 201);
    }
    for number in 0..48 {
        assert_eq!(post(to, "0", &format!("secret-{number}"), 2), 422);
    }
    assert_eq!(post(to, "close-before", "secret-lost", 1), 502);
    assert_eq!(post(to, "close-before", "secret-lost", 1), 409);
    let printed = gateway.printed.clone();
    gateway.signal("-TERM");
    let (ended, rest) = gateway.wait();
    assert!(ended);
    (printed + &rest, std::fs::read_to_string(&logs).unwrap())
}

/// The fields of the lines with this message.
fn lines(logs: &str, message: &str) -> Vec<Value> {
    let parsed = logs.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let about = |line: &Value| line["fields"]["message"] == message;
    parsed.filter(about).map(|line| line["fields"].clone()).collect()
}

#[test]
fn each_decision_that_a_person_may_have_to_explain_has_a_line() {
    let (_, logs) = night("[telemetry]\nformat = \"json\"\nlog = \"info\"\n");
    let unknown = lines(&logs, "the outcome is unknown");
    assert_eq!(unknown.len(), 1, "{logs}");
    let unknown = &unknown[0];
    assert_eq!(unknown["operation"], "POST *");
    assert_eq!(
        (unknown["state"].as_str(), unknown["reason"].as_str()),
        (Some("unknown"), Some("cut"))
    );
    assert_eq!((unknown["status"].as_u64(), unknown["tenant"].as_str()), (Some(502), Some("-")));
    assert_eq!(unknown["key_hash"].as_str().map(str::len), Some(8));
    assert_eq!(unknown["operation_id"].as_str().map(str::len), Some(36));
    assert!(unknown["fingerprint"].as_str().is_some_and(|it| it.starts_with('v')), "{unknown}");

    // A flood of them does not fill the disk.
    let mismatches = lines(&logs, "the key was used for another request");
    assert!((10..=20).contains(&mismatches.len()), "{mismatches:?}");
    for mismatch in &mismatches {
        assert_eq!(mismatch["reason"], "mismatch");
        assert_eq!(mismatch["differs"], "body:/amount");
        assert_eq!(mismatch["key_hash"].as_str().map(str::len), Some(8));
    }
    assert_eq!(lines(&logs, "replayed").len(), 0, "only at debug");
    assert!(!logs.contains("secret-"), "{logs}");
}

/// An operator's decision, a quota, and a shutdown that cuts a request off.
#[test]
fn decisions_quotas_and_a_shutdown_have_their_lines() {
    let (service, data) = (CountingService::open(), tempfile::tempdir().unwrap());
    let (config, logs) = (data.path().join("onceward.toml"), data.path().join("logs"));
    let settings = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[upstream]\nurl = \"http://{}\"\n\
         [store]\nurl = \"file:{}\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
         [scope]\nsingle_tenant = true\n[limits]\ndrain = \"200ms\"\n\
         [quotas.total]\nlive_keys = 2\n\
         [[tokens]]\nname = \"olga\"\nrole = \"operator\"\nsecret_env = \"NIGHT_TOKEN\"\n\
         [telemetry]\nformat = \"json\"\n",
        service.address,
        data.path().join("records").display()
    );
    std::fs::write(&config, settings).unwrap();
    let arguments = ["gateway", "--config", config.to_str().unwrap()];
    let logged = Stdio::from(File::create(&logs).unwrap());
    let token = ("NIGHT_TOKEN", "night-token-0123456789");
    let gateway = Program::start_with(&arguments, "metrics at", logged, &[token]);
    let to = gateway.address();
    assert_eq!(post(to, "close-before", "secret-lost", 1), 502);
    let hanging = std::thread::spawn(move || post(to, "silent", "secret-slow", 1));
    service.wait_for("secret-slow");
    assert_eq!(post(to, "0", "secret-third", 1), 429);

    let unknown = lines(&std::fs::read_to_string(&logs).unwrap(), "the outcome is unknown");
    let operation = unknown[0]["operation_id"].as_str().unwrap().to_owned();
    let admin = gateway.printed.split("metrics at http://").nth(1).unwrap();
    let admin = format!("http://{}", admin.split('/').next().unwrap());
    let release = ["records", "release", &operation, "--reason", "voided, ticket 4711", "--yes"];
    let released = std::process::Command::new(env!("CARGO_BIN_EXE_onceward"))
        .args(release)
        .args(["--admin", &admin])
        .env("ONCEWARD_TOKEN", token.1)
        .output()
        .unwrap();
    assert!(released.status.success(), "{released:?}");
    gateway.signal("-TERM");
    assert!(gateway.wait().0);
    assert_eq!(hanging.join().unwrap(), 503);

    let logs = std::fs::read_to_string(&logs).unwrap();
    let decided = &lines(&logs, "an operator decided")[0];
    assert_eq!(decided["operation_id"], operation);
    assert_eq!(
        (decided["by"].as_str(), decided["verdict"].as_str()),
        (Some("olga"), Some("did_not_happen"))
    );
    assert_eq!(
        (decided["state"].as_str(), decided["reason"].as_str()),
        (Some("released"), Some("voided, ticket 4711"))
    );
    let quota = &lines(&logs, "over a quota: new keys get 429")[0];
    assert_eq!(
        (quota["limit"].as_str(), quota["occurrences"].as_u64()),
        (Some("quotas.total.live_keys"), Some(1))
    );
    let unknown = lines(&logs, "the outcome is unknown");
    assert_eq!((unknown.len(), unknown[1]["reason"].as_str()), (2, Some("shutdown")), "{logs}");
    assert!(unknown[1]["operation_id"].is_string() && !logs.contains("secret-"), "{logs}");
}

#[test]
fn replays_have_a_line_at_debug() {
    let (_, logs) = night("[telemetry]\nformat = \"json\"\nlog = \"info,onceward=debug\"\n");
    let replays = lines(&logs, "replayed");
    assert_eq!(replays.len(), 150, "{logs}");
    for replay in &replays {
        assert_eq!(
            (replay["state"].as_str(), replay["replayed"].as_bool()),
            (Some("completed"), Some(true))
        );
        assert_eq!(replay["operation_id"].as_str().map(str::len), Some(36));
        assert_eq!(replay["key_hash"].as_str().map(str::len), Some(8));
    }
    assert!(!logs.contains("secret-"), "{logs}");
}

#[test]
fn with_json_every_line_of_the_program_is_json() {
    let (printed, logs) = night("[telemetry]\nformat = \"json\"\n");
    for line in printed.lines().chain(logs.lines()).filter(|line| !line.is_empty()) {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|it| panic!("{it}: {line}"));
        for member in ["timestamp", "level", "fields", "target"] {
            assert!(!line[member].is_null(), "{line} has no {member}");
        }
    }
    assert!(printed.contains("metrics at http://") && printed.contains("stopping"), "{printed}");
}

#[test]
fn off_a_terminal_lines_have_no_colours() {
    let (printed, logs) = night("");
    assert!(logs.contains("the outcome is unknown operation=\"POST *\""), "{logs}");
    assert!(!logs.contains('\u{1b}') && !printed.contains('\u{1b}'), "{logs}");
    assert!(printed.starts_with("onceward: http://"), "{printed}");
}
