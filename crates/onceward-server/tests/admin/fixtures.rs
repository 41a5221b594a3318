//! Records, targets of commands, and a gateway with tokens.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use onceward_core::{Clock as _, FullStore};
use onceward_core::{
    Fence, Fingerprint, Identity, Key, OperationId, Outcome, OwnerToken, Record, Retained, Scope,
    State, SystemAmbient, Tag, Timestamp, UnknownCause,
};
use serde_json::Value;

pub(crate) const OLGA: &str = "olga-0123456789abcdef";
pub(crate) const RITA: &str = "rita-0123456789abcdef";
pub(crate) const WILL: &str = "will-0123456789abcdef";
/// Token of an operator with only the tenant acme.
pub(crate) const TINA: &str = "tina-0123456789abcdef";

const TOKENS: [(&str, &str, &str, &str); 4] = [
    ("olga", "operator", OLGA, ""),
    ("rita", "reader", RITA, ""),
    ("will", "worker", WILL, ""),
    ("tina", "operator", TINA, "tenants = [\"acme\"]"),
];

/// A key that no answer may contain.
pub(crate) const CANARY: &str = "canary-key-77f0";

/// A record that was created ten minutes ago.
pub(crate) fn record(tenant: &str, key: &str, state: impl FnOnce(Timestamp) -> State) -> Record {
    let (ambient, scope) = (SystemAmbient::new(), Scope::new(tenant, "shop", "pay").unwrap());
    let id = Identity::unkeyed().record_id(&scope, &Key::new(key.to_owned()).unwrap());
    let now = ambient.now();
    let began = Timestamp::from_millis(now.as_millis() - 600_000);
    Record {
        id,
        operation: OperationId::draw(&ambient, &id),
        scope,
        key: Some(Key::new(CANARY).unwrap()),
        fingerprint: Fingerprint::of_parts(&[key.as_bytes()]),
        sketch: Default::default(),
        path: None,
        state: state(now),
        owner: OwnerToken::draw(&ambient),
        fence: Fence(began.as_millis()),
        attempts: 1,
        taken_over: false,
        created_at: began,
        updated_at: began,
    }
}

pub(crate) fn unknown() -> State {
    State::Unknown { cause: UnknownCause::Status(502) }
}

pub(crate) fn completed(text: &'static str) -> impl FnOnce(Timestamp) -> State {
    move |now| {
        let until = now + Duration::from_secs(3600);
        let outcome = Outcome::whole(Tag::from_static("text/v1"), text);
        State::Completed { outcome, retained: Retained { until, tombstone_until: until } }
    }
}

/// A state that expired a minute ago.
pub(crate) fn expired(now: Timestamp) -> State {
    let until = Timestamp::from_millis(now.as_millis() - 60_000);
    State::Released { retained: Retained { until, tombstone_until: until } }
}

pub(crate) async fn put(store: &dyn FullStore, records: &[Record]) {
    for record in records {
        let _written = store.import(record).await.unwrap();
    }
}

/// Puts records into the store at a URL, which no process has open.
pub(crate) fn fill(url: &str, records: &[Record]) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async { put(&*onceward_stores::connect(url).await.unwrap(), records).await });
    runtime.shutdown_timeout(Duration::from_secs(5));
}

/// A gateway with an admin address. It is killed at the end of its test.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Gateway {
    pub(crate) fn start(store: &str, upstream: SocketAddr, directory: &Path) -> Self {
        Self::start_with(&format!("url = \"{store}\""), "", upstream, directory)
    }

    /// A gateway with these lines in the section of the store, and more sections.
    pub(crate) fn start_with(
        store: &str,
        sections: &str,
        upstream: SocketAddr,
        directory: &Path,
    ) -> Self {
        let config = directory.join("gateway.toml");
        std::fs::write(&config, configuration(store, upstream) + sections).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
        command.args(["gateway", "--config", config.to_str().unwrap()]).stdout(Stdio::piped());
        for (name, _, token, _) in TOKENS {
            command.env(format!("TOKEN_{name}"), token);
        }
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = || {
            let line = lines.next().expect("a line").unwrap();
            let after = line.split("http://").nth(1).unwrap().to_owned();
            after.split([' ', '/']).next().unwrap().parse().unwrap()
        };
        Self { address: address(), admin: address(), child }
    }
}

fn configuration(store: &str, upstream: SocketAddr) -> String {
    let mut text = format!(
        "[upstream]\nurl = \"http://{upstream}\"\n[store]\n{store}\n\
         [scope]\nsingle_tenant = true\n[telemetry]\nlog = \"error\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n"
    );
    for (name, role, _, tenants) in TOKENS {
        text += &format!(
            "[[tokens]]\nname = \"{name}\"\nrole = \"{role}\"\nsecret_env = \"TOKEN_{name}\"\n{tenants}\n"
        );
    }
    text
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _may_have_ended = self.child.kill();
        let _exit_status = self.child.wait();
    }
}

/// The target of a command: a store or a gateway.
pub(crate) enum Target {
    Store(String),
    Admin(SocketAddr),
}

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Finished {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

impl Target {
    /// The arguments that select it.
    fn arguments(&self) -> [String; 2] {
        match self {
            Self::Store(url) => ["--store".into(), url.clone()],
            Self::Admin(address) => ["--admin".into(), format!("http://{address}")],
        }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = onceward(arguments);
        command.args(self.arguments()).env("ONCEWARD_TOKEN", OLGA);
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Finished {
        finish(&mut self.command(arguments))
    }

    /// Runs a command that must succeed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> Finished {
        let done = self.run(arguments);
        assert_eq!(done.code, Some(0), "{arguments:?}: {done:?}");
        done
    }

    /// Runs a command that must fail, and returns its error.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        assert_eq!(done.code, Some(1), "{arguments:?}: {done:?}");
        done.err
    }
}

pub(crate) fn onceward(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command.args(arguments).env("USER", "otto").stdin(Stdio::null());
    command
}

pub(crate) fn finish(command: &mut Command) -> Finished {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Finished { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Sends a request to the admin API and returns status and body.
pub(crate) fn ask(
    admin: SocketAddr,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> (u16, String) {
    let mut stream = TcpStream::connect(admin).unwrap();
    let bearer = token.map(|it| format!("authorization: Bearer {it}\r\n")).unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{bearer}\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
}
