//! Secrets that are sent through the program and must not appear anywhere.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::process::Program;
use crate::recording_server::RecordingServer;

const KEY: &str = "canary-key-7f3a91";
const BODY: &str = "canary-body-55d0e2";
const RESULT: &str = "canary-result-3c77b0";
const CALLER: &str = "canary-caller-9b21f4";
const COOKIE: &str = "canary-cookie-1e8c6d";
const OPERATOR: &str = "canary-operator-token-04aa";
const WORKER: &str = "canary-worker-token-771b";
const RESOLVER: &str = "canary-resolver-token-e0c2";
const WRONG: &str = "canary-wrong-token-55e1";

const CANARIES: [&str; 9] = [KEY, BODY, RESULT, CALLER, COOKIE, OPERATOR, WORKER, RESOLVER, WRONG];

const VARIABLES: [(&str, &str); 3] =
    [("CANARY_OPERATOR", OPERATOR), ("CANARY_WORKER", WORKER), ("CANARY_RESOLVER", RESOLVER)];

/// One run of the program through all its APIs, with everything that it outputs and stores.
struct Run {
    directory: tempfile::TempDir,
    /// Outputs to search: a name and the bytes.
    output: Vec<(String, Vec<u8>)>,
}

impl Run {
    fn new(sealed: bool) -> Self {
        Self::before(&RecordingServer::open(), sealed, requests)
    }

    /// Runs in front of a service, with requests of clients.
    fn before(
        service: &RecordingServer,
        sealed: bool,
        requests: impl FnOnce(SocketAddr, &mut Vec<(String, Vec<u8>)>),
    ) -> Self {
        let collector = RecordingServer::open();
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("onceward.toml");
        std::fs::write(&config, settings(service, &collector, directory.path(), sealed)).unwrap();
        let logs = directory.path().join("logs");
        let arguments = ["gateway", "--config", config.to_str().unwrap()];
        let program = Program::start_with(
            &arguments,
            "claims at",
            Stdio::from(File::create(&logs).unwrap()),
            &VARIABLES,
        );
        let mut output = Vec::new();
        let (admin, claims) =
            (at(&program, "metrics at http://"), at(&program, "claims at http://"));
        requests(program.address(), &mut output);
        claiming(claims, &mut output);
        operating(admin, &mut output);
        let exported = Command::new(env!("CARGO_BIN_EXE_onceward"))
            .args([
                "records",
                "export",
                "--outcomes",
                "--to",
                "-",
                "--admin",
                &format!("http://{admin}"),
            ])
            .env("ONCEWARD_TOKEN", OPERATOR)
            .output()
            .unwrap();
        assert!(exported.status.success(), "{exported:?}");
        output.push(("export".into(), [exported.stdout, exported.stderr].concat()));
        let printed = program.printed.clone();
        program.signal("-TERM");
        output.push(("standard output".into(), (printed + &program.wait().1).into_bytes()));
        output.push(("logs".into(), std::fs::read(&logs).unwrap()));
        output.push(("traces".into(), collector.all()));
        Self { directory, output }
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut files = Vec::new();
        read_all(&self.directory.path().join("records"), &mut files);
        assert!(files.iter().any(|(_, bytes)| bytes.len() > 100), "a store has files");
        files
    }
}

fn settings(
    service: &RecordingServer,
    collector: &RecordingServer,
    directory: &Path,
    sealed: bool,
) -> String {
    let keys = directory.join("keys");
    std::fs::write(&keys, "2026-11:q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=").unwrap();
    let seal = format!("sealing_keys_file = {:?}", keys.to_str().unwrap());
    let records = format!("file:{}", directory.join("records").display());
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [upstream]\nurl = \"http://{}\"\n\
         [store]\nurl = \"{records}\"\n{}\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[claims]\naddress = \"127.0.0.1:0\"\n\
         [[tokens]]\nname = \"ops\"\nrole = \"operator\"\nsecret_env = \"CANARY_OPERATOR\"\n\
         [[tokens]]\nname = \"billing\"\nrole = \"worker\"\nsecret_env = \"CANARY_WORKER\"\n\
         [resolver.http]\nurl = \"/known/{{operation}}\"\ntoken_env = \"CANARY_RESOLVER\"\n\
         [reconciler]\nevery = \"50ms\"\nbackoff = \"50ms\"\n\
         [telemetry]\ntraces = \"http://{}\"\nlog = \"trace\"\nformat = \"json\"\n",
        service.address,
        if sealed { &*seal } else { "" },
        collector.address,
    )
}

/// Sends a first request, a retry, a mismatch, one without credentials, and a malformed one.
fn requests(gateway: SocketAddr, output: &mut Vec<(String, Vec<u8>)>) {
    let head = format!(
        "idempotency-key: {KEY}\r\nauthorization: Bearer {CALLER}\r\ncookie: session={COOKIE}\r\n"
    );
    let body = json!({ "card": BODY });
    for (name, body) in [("first", &body), ("retry", &body), ("mismatch", &json!({ "c": BODY }))] {
        output.push((name.into(), send(gateway, "POST /pay", &head, Some(body))));
    }
    let anonymous = format!("idempotency-key: {KEY}\r\n");
    output.push(("anonymous".into(), send(gateway, "POST /pay", &anonymous, Some(&body))));
    let broken = format!("idempotency-key: \"{KEY}\r\nauthorization: Bearer {CALLER}\r\n");
    output.push(("broken key".into(), send(gateway, "POST /pay", &broken, Some(&body))));
    let statuses: Vec<_> = output.iter().map(|(_, answer)| answer[9..12].to_vec()).collect();
    assert_eq!(statuses, ["200", "200", "422", "401", "400"].map(|it| it.as_bytes().to_vec()));
}

/// Sends claims: completed, left unknown, refused, malformed.
fn claiming(claims: SocketAddr, output: &mut Vec<(String, Vec<u8>)>) {
    let worker = format!("authorization: Bearer {WORKER}\r\n");
    let claim = |key: &str| {
        let claim = json!({ "operation": "pay", "key": key, "payload": { "card": BODY } });
        let answer = send(claims, "POST /v1/claims", &worker, Some(&claim));
        (answer.clone(), read(&answer)["lease"].clone())
    };
    let (first, lease) = claim(KEY);
    let done = json!({ "lease": lease, "result": { "receipt": RESULT } });
    output.push(("claim".into(), first));
    output
        .push(("complete".into(), send(claims, "POST /v1/claims/complete", &worker, Some(&done))));
    let (_, lease) = claim(&format!("{KEY}-2"));
    let lost = json!({ "lease": lease });
    output.push(("unknown".into(), send(claims, "POST /v1/claims/unknown", &worker, Some(&lost))));
    let wrong = format!("authorization: Bearer {WRONG}\r\n");
    output.push(("wrong token".into(), send(claims, "POST /v1/claims", &wrong, Some(&lost))));
    let odd = json!({ "operation": "pay", "key": KEY, "payload": BODY, "lease": BODY });
    output.push(("malformed".into(), send(claims, "POST /v1/claims", &worker, Some(&odd))));
}

/// Reads everything through the admin API.
fn operating(admin: SocketAddr, output: &mut Vec<(String, Vec<u8>)>) {
    let operator = format!("authorization: Bearer {OPERATOR}\r\n");
    let records = send(admin, "GET /v1/records?limit=100", &operator, None);
    for record in read(&records)["records"].as_array().unwrap() {
        let id = record["operation_id"].as_str().unwrap();
        for path in [format!("GET /v1/records/{id}"), format!("GET /v1/records/{id}?outcome=true")]
        {
            output.push(("record".into(), send(admin, &path, &operator, None)));
        }
    }
    output.push(("records".into(), records));
    for path in ["GET /v1/decisions", "GET /v1/stats", "GET /metrics", "GET /ready"] {
        output.push((path.into(), send(admin, path, &operator, None)));
    }
    let wrong = format!("authorization: Bearer {WRONG}\r\n");
    output.push(("wrong operator".into(), send(admin, "GET /v1/records", &wrong, None)));
}

#[test]
fn no_secret_is_found_in_anything_that_is_told_or_kept() {
    let run = Run::new(true);
    for (place, bytes) in run.output.iter().chain(&run.files()) {
        for canary in CANARIES {
            assert!(!found(canary, bytes), "{canary} is in {place}: {}", shown(bytes));
        }
    }
    let size = |wanted: &str| {
        let found = run.output.iter().find(|(place, _)| place == wanted);
        found.map_or(0, |(_, bytes)| bytes.len())
    };
    assert!(size("logs") > 2_000 && size("traces") > 500, "{}, {}", size("logs"), size("traces"));
}

/// A response that is stored without its body, in a store that is not sealed.
#[test]
fn a_body_of_which_only_the_head_is_kept_is_found_nowhere() {
    const SECRET: &str = "canary-card-number-8812";
    let service = |word: &str| {
        let head =
            format!("HTTP/1.1 201 Created\r\nlocation: /cards/7\r\n{word}content-length: 23");
        RecordingServer::answering(format!("{head}\r\n\r\n{SECRET}"))
    };
    let run = |word: &str| {
        Run::before(&service(word), false, |gateway, output| {
            let ask = || send(gateway, "POST /cards", "idempotency-key: k\r\n", Some(&json!({})));
            assert!(found(SECRET, &ask()), "the first caller gets it");
            output.push(("retry".into(), ask()));
        })
    };
    let kept = run("onceward-outcome: keep-head\r\n");
    let retry = String::from_utf8_lossy(&kept.output[0].1).into_owned();
    assert!(retry.starts_with("HTTP/1.1 409") && retry.contains("location: /cards/7"), "{retry}");
    for (place, bytes) in kept.output.iter().chain(&kept.files()) {
        assert!(!found_in_any_form(SECRET, bytes), "it is in {place}: {}", shown(bytes));
    }
    // Otherwise the search would prove nothing.
    let stored = run("");
    assert!(stored.files().iter().any(|(_, bytes)| found(SECRET, bytes)));
    for shown in ["record", "export"] {
        let mut places = stored.output.iter().filter(|(place, _)| place == shown);
        assert!(places.any(|(_, bytes)| found_in_any_form(SECRET, bytes)), "{shown}");
    }
}

/// Otherwise the search would prove nothing.
#[test]
fn without_a_seal_the_search_finds_what_is_stored() {
    let run = Run::new(false);
    let found_in = |canary| run.files().iter().any(|(_, bytes)| found(canary, bytes));
    assert!(found_in(RESULT), "the result of a claim is stored as it came");
    assert!(!found_in(KEY) && !found_in(WORKER), "keys and tokens are not stored at all");
}

fn found(canary: &str, bytes: &[u8]) -> bool {
    bytes.windows(canary.len()).any(|window| window == canary.as_bytes())
}

/// Finds a text of at least 20 bytes, also within something that is shown in base64.
fn found_in_any_form(text: &str, bytes: &[u8]) -> bool {
    let encoded = (0..3).map(|start| STANDARD.encode(&text[start..start + 18]));
    found(text, bytes) || encoded.into_iter().any(|it| found(&it, bytes))
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(4_000)]).into_owned()
}

fn at(program: &Program, words: &str) -> SocketAddr {
    let after = program.printed.split(words).nth(1).expect("an address");
    after.split(['/', ',', '\n']).next().unwrap().parse().unwrap()
}

fn send(to: SocketAddr, line: &str, headers: &str, body: Option<&Value>) -> Vec<u8> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut stream = TcpStream::connect(to).unwrap();
    let request = format!(
        "{line} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{headers}\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

/// The JSON of an answer.
fn read(answer: &[u8]) -> Value {
    let text = String::from_utf8_lossy(answer);
    let body = text.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn read_all(directory: &Path, files: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, files);
        } else {
            files.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}
