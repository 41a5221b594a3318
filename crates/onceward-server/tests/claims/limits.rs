//! Refused requests, and secrets that are never shown.

use std::process::Command;

use serde_json::json;

use crate::server::{
    Server, TOKENS, WORKER, claim_of, configuration, granted, records_in, refused, variables, wire,
};

#[tokio::test]
async fn what_is_not_there_or_not_so_is_a_problem() {
    let (server, _directory) = Server::embedded();
    let ask = |head: &str, body: &str| wire(&server.address, head, body);
    let json = "\r\ncontent-type: application/json";
    let nowhere = ask("GET /v1/nothing HTTP/1.1", "");
    assert_eq!(refused(&nowhere), (404, "NOT_FOUND".into()));
    for (method, path, allowed) in [
        ("DELETE", "/v1/claims", "GET"),
        ("GET", "/v1/claims/renew", "POST"),
        ("POST", "/openapi.json", "GET"),
    ] {
        let answer = ask(&format!("{method} {path} HTTP/1.1"), "");
        assert_eq!(refused(&answer), (405, "METHOD_NOT_ALLOWED".into()));
        assert!(answer.header("allow").unwrap().contains(allowed), "{answer:?}");
    }
    let post = "POST /v1/claims HTTP/1.1";
    let form = ask(&format!("{post}\r\ncontent-type: text/plain"), "{}");
    assert_eq!(refused(&form), (415, "UNSUPPORTED_MEDIA_TYPE".into()));
    assert_eq!(refused(&ask(post, "{}")), (415, "UNSUPPORTED_MEDIA_TYPE".into()));
    for body in ["", "{", "[]", "{}", r#"{"operation":"o"}"#, r#"{"operation":"o","key":7}"#] {
        let answer = ask(&format!("{post}{json}"), body);
        assert_eq!(refused(&answer), (400, "INVALID_REQUEST".into()), "{body}");
    }
}

#[tokio::test]
async fn values_that_cannot_be_are_told_by_name() {
    let (server, _directory) = Server::embedded();
    let worker = server.client(WORKER);
    let long = "x".repeat(256);
    for (member, value, code) in [
        ("key", json!(""), "INVALID_IDEMPOTENCY_KEY"),
        ("key", json!("   "), "INVALID_IDEMPOTENCY_KEY"),
        ("key", json!(long), "INVALID_IDEMPOTENCY_KEY"),
        ("key", json!("a\nb"), "INVALID_IDEMPOTENCY_KEY"),
        ("tenant", json!(long), "INVALID_TENANT"),
        ("tenant", json!(""), "INVALID_TENANT"),
        ("caller", json!(""), "INVALID_CALLER"),
        ("operation", json!(""), "INVALID_REQUEST"),
        ("operation", json!("a\u{1f}b"), "INVALID_REQUEST"),
        ("fingerprint", json!(""), "INVALID_REQUEST"),
        ("lease", json!("999ms"), "INVALID_REQUEST"),
        ("lease", json!("2h"), "INVALID_REQUEST"),
        ("lease", json!(30), "INVALID_REQUEST"),
        ("on_lapse", json!("canary"), "INVALID_REQUEST"),
        ("owner", json!("canary"), "INVALID_REQUEST"),
        ("canary", json!(1), "INVALID_REQUEST"),
    ] {
        let mut claim = claim_of("canary-key");
        claim[member] = value.clone();
        let answer = worker.claim(&claim).await;
        assert_eq!(refused(&answer), (400, code.into()), "{member}: {value}");
        assert!(!answer.body.contains("canary"), "{}", answer.body);
    }
    let grant = granted(&worker.claim(&claim_of("k")).await);
    let mut lease = grant["lease"].clone();
    lease["record"] = "00".into();
    assert_eq!(refused(&worker.settle("release", &lease, &json!({})).await).0, 400);
    lease["record"] = "0".repeat(64).into();
    assert_eq!(refused(&worker.settle("release", &lease, &json!({})).await).0, 404);
    let both = json!({ "result": 1, "bytes": { "base64": "" } });
    assert_eq!(refused(&worker.settle("complete", &grant["lease"], &both).await).0, 400);
}

#[tokio::test]
async fn a_body_is_as_large_as_the_configuration_says() {
    let directory = tempfile::tempdir().unwrap();
    let limit = "request_max_bytes = \"1KiB\"";
    let server = Server::start(&records_in(directory.path()), directory.path(), limit);
    let mut claim = claim_of("large");
    claim["payload"] = "x".repeat(2000).into();
    let answer = server.client(WORKER).claim(&claim).await;
    assert_eq!(refused(&answer), (413, "REQUEST_TOO_LARGE".into()));
    granted(&server.client(WORKER).claim(&claim_of("large")).await);
}

/// Keys, payloads, results, owners and tokens appear only in answers.
#[tokio::test]
async fn secrets_are_neither_logged_nor_stored_in_the_clear() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("onceward.toml");
    let text = configuration("") + "[telemetry]\nlog = \"trace\"\n";
    std::fs::write(&config, text).unwrap();
    let logs = directory.path().join("logs");
    let mut program = Command::new(env!("CARGO_BIN_EXE_onceward"))
        .args(["claims", "--config", config.to_str().unwrap()])
        .args(["--store", &records_in(directory.path()), "--listen", "127.0.0.1:0"])
        .envs(variables())
        .stderr(std::fs::File::create(&logs).unwrap())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(program.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap();

    let worker = crate::server::Client::new(address, WORKER);
    let mut claim = claim_of("canary-key");
    claim["payload"] = json!({ "card": "canary-payload" });
    let grant = granted(&worker.claim(&claim).await);
    worker.claim(&claim_of("canary-key")).await;
    worker.post_text("/v1/claims", r#"{"key":"canary-key","operation":"#).await;
    worker.get("/v1/claims?tenant=acme&operation=charge&key=canary-key").await;
    let result = json!({ "result": "canary-result" });
    assert_eq!(worker.settle("complete", &grant["lease"], &result).await.status, 200);
    program.kill().unwrap();
    program.wait().unwrap();

    let logs = std::fs::read_to_string(logs).unwrap();
    assert!(!logs.contains("canary"), "{logs}");
    assert!(!logs.contains(claim["owner"].as_str().unwrap()), "{logs}");
    let secrets = ["canary-key", "canary-payload"];
    let secrets = secrets.into_iter().chain(TOKENS.iter().map(|(_, _, _, token, _)| *token));
    let files = std::fs::read_dir(directory.path().join("records")).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().path()).filter(|it| it.is_file()).collect();
    assert!(!files.is_empty());
    for secret in secrets {
        for file in &files {
            let bytes = std::fs::read(file).unwrap();
            let found = bytes.windows(secret.len()).any(|it| it == secret.as_bytes());
            assert!(!found, "{secret} is in {}", file.display());
        }
    }
}

#[test]
fn without_tokens_it_does_not_start_and_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("onceward.toml");
    let run = |arguments: &[&str], text: &str| {
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
        let output = command.args(arguments).current_dir(directory.path()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let output = run(&["claims"], "");
    assert!(output.contains("no tokens") && output.contains("--config"), "{output}");
    let output = run(&["claims", "--config", "onceward.toml"], "");
    assert!(output.contains("claims: ") && output.contains("[[tokens]]"), "{output}");
    let gateway = ["gateway", "--config", "onceward.toml"];
    assert!(run(&gateway, "[claims]\n").contains("[[tokens]]"));
    let token =
        "[[tokens]]\nname = \"billing\"\nrole = \"worker\"\nsecret_env = \"NOT_SET_AT_ALL\"\n";
    let output = run(&["claims", "--config", "onceward.toml"], token);
    assert!(output.contains("billing") && output.contains("NOT_SET_AT_ALL"), "{output}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let token = token.replace("NOT_SET_AT_ALL", "PATH");
    let output = run(&["claims", "--config", "onceward.toml", "--listen", &address], &token);
    assert!(output.contains(&format!("cannot listen on {address}")), "{output}");
}
