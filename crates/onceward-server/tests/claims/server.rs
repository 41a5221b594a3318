//! `onceward claims` as a process, and its clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use example_walk::{App, Program, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

/// The tokens: name, role, variable, token, tenants.
pub(crate) const TOKENS: [(&str, &str, &str, &str, &str); 5] = [
    ("reader", "reader", "CLAIMS_READER", READER, ""),
    ("worker", "worker", "CLAIMS_WORKER", WORKER, ""),
    ("operator", "operator", "CLAIMS_OPERATOR", OPERATOR, ""),
    ("acme", "worker", "CLAIMS_ACME", ACME, "\"acme\""),
    ("others", "worker", "CLAIMS_OTHERS", OTHERS, "\"other\", \"another\""),
];
pub(crate) const READER: &str = "canary-token-reader";
pub(crate) const WORKER: &str = "canary-token-worker";
pub(crate) const OPERATOR: &str = "canary-token-operator";
pub(crate) const ACME: &str = "canary-token-acme";
pub(crate) const OTHERS: &str = "canary-token-others";

/// Environment variables with the tokens.
pub(crate) fn variables() -> Vec<(&'static str, &'static str)> {
    TOKENS.iter().map(|(_, _, variable, token, _)| (*variable, *token)).collect()
}

/// A configuration with all tokens.
pub(crate) fn configuration(claims: &str) -> String {
    let mut text = format!("[claims]\naddress = \"127.0.0.1:0\"\n{claims}\n");
    for (name, role, variable, _, tenants) in TOKENS {
        text += &format!(
            "[[tokens]]\nname = \"{name}\"\nrole = \"{role}\"\nsecret_env = \"{variable}\"\n\
             tenants = [{tenants}]\n"
        );
    }
    text
}

/// `onceward claims`, running.
pub(crate) struct Server {
    pub(crate) program: Program,
    pub(crate) address: String,
}

impl Server {
    /// Starts on a store, with a configuration in a directory.
    pub(crate) fn start(store: &str, directory: &Path, settings: &str) -> Self {
        let config = directory.join("onceward.toml");
        std::fs::write(&config, configuration(settings)).unwrap();
        let arguments = ["claims", "--config", config.to_str().unwrap(), "--store", store];
        let binary = env!("CARGO_BIN_EXE_onceward");
        let program = Program::start_with(binary, &arguments, &variables());
        let address = claims_address(&program);
        Self { program, address }
    }

    /// Starts on an embedded store in a temporary directory.
    pub(crate) fn embedded() -> (Self, TempDir) {
        let directory = tempfile::tempdir().unwrap();
        (Self::start(&records_in(directory.path()), directory.path(), ""), directory)
    }

    pub(crate) fn client(&self, token: &str) -> Client {
        Client::new(&self.address, token)
    }
}

pub(crate) fn records_in(directory: &Path) -> String {
    format!("file:{}", directory.join("records").display())
}

/// Address of the claims API, from the program's output.
pub(crate) fn claims_address(program: &Program) -> String {
    loop {
        let line = program.line().expect("the program ended before it listened");
        if let Some((_, rest)) = line.split_once("claims at http://") {
            return rest.split('/').next().unwrap().to_owned();
        }
    }
}

/// A client with a token.
#[derive(Clone)]
pub(crate) struct Client {
    app: App,
    authorization: String,
}

impl Client {
    pub(crate) fn new(address: &str, token: &str) -> Self {
        Self { app: App::at(address), authorization: format!("Bearer {token}") }
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.post_text(path, &body.to_string()).await
    }

    pub(crate) async fn post_text(&self, path: &str, body: &str) -> Response {
        self.app.post(path, &[("authorization", &self.authorization)], body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.app.get(path, &[("authorization", &self.authorization)]).await
    }

    pub(crate) async fn claim(&self, body: &Value) -> Response {
        self.post("/v1/claims", body).await
    }

    /// Sends a request about a lease: complete, fail, unknown, release or renew.
    pub(crate) async fn settle(&self, word: &str, lease: &Value, more: &Value) -> Response {
        let mut body = more.clone();
        body["lease"] = lease.clone();
        self.post(&format!("/v1/claims/{word}"), &body).await
    }

    /// Claims until no other worker is running.
    pub(crate) async fn claim_until_settled(&self, body: &Value) -> Response {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let answer = self.claim(body).await;
            if code(&answer) != "IDEMPOTENCY_REQUEST_IN_PROGRESS" {
                return answer;
            }
            assert!(Instant::now() < end, "still running: {answer:?}");
            let delay = answer.json()["retry_after_ms"].as_u64().expect("retry_after_ms");
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
    }
}

/// A claim of a key for acme, under a fresh owner.
pub(crate) fn claim_of(key: &str) -> Value {
    let owner = Uuid::new_v4().to_string();
    json!({ "tenant": "acme", "operation": "charge", "key": key, "owner": owner })
}

/// The grant in an answer.
pub(crate) fn granted(answer: &Response) -> Value {
    let body = answer.json();
    assert_eq!((answer.status, body["status"].as_str()), (200, Some("granted")), "{answer:?}");
    body
}

/// A problem's code; empty for other answers.
pub(crate) fn code(answer: &Response) -> String {
    if answer.header("content-type") != Some("application/problem+json") {
        return String::new();
    }
    let body = answer.json();
    assert_eq!(body["status"], answer.status, "{answer:?}");
    body["code"].as_str().unwrap_or_default().to_owned()
}

/// Status and code of a problem.
pub(crate) fn refused(answer: &Response) -> (u16, String) {
    (answer.status, code(answer))
}

/// Sends a handwritten request and reads the answer.
pub(crate) fn wire(address: &str, head: &str, body: &str) -> Response {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let text = format!(
        "{head}\r\nhost: x\r\nauthorization: Bearer {WORKER}\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let _closed_early_where_it_is_too_large = stream.write_all(text.as_bytes());
    let mut answer = Vec::new();
    let _reset_after_the_answer = stream.read_to_end(&mut answer);
    Response::from_curl(&String::from_utf8_lossy(&answer)).unwrap()
}
