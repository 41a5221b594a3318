//! Kafka Connect with Debezium's connector for PostgreSQL.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::properties::Properties;
use crate::error::ServiceError;
use crate::home::Home;
use crate::program::{Found, Program};
use crate::server::{Probe, Ready, Recipe, Server, Stop};

/// Enough for tests: a worker takes 180 MB with it.
const HEAP: &str = "-Xmx192m";
/// A paused worker never answers; one that stops a connector waits 5 s for its tasks.
const PATIENCE: Duration = Duration::from_secs(15);
const STANDALONE: &str = "org.apache.kafka.connect.cli.ConnectStandalone";

/// Keys and values are texts, as an outbox has them, and what was done is noted soon.
const PROPERTIES: [(&str, &str); 4] = [
    ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
    ("value.converter", "org.apache.kafka.connect.storage.StringConverter"),
    ("offset.flush.interval.ms", "1000"),
    ("plugin.discovery", "service_load"),
];

/// Topics are created here, because brokers do not create them by themselves. Without a snapshot
/// everything comes from the replication slot: with one, a connector that is killed before it has
/// noted its first offset takes another snapshot and skips what was inserted and deleted before it.
const DEBEZIUM: [(&str, &str); 12] = [
    ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
    ("plugin.name", "pgoutput"),
    ("publication.autocreate.mode", "filtered"),
    ("snapshot.mode", "no_data"),
    ("database.hostname", "127.0.0.1"),
    ("database.user", "postgres"),
    ("database.password", ""),
    ("database.dbname", "postgres"),
    ("tombstones.on.delete", "false"),
    ("poll.interval.ms", "50"),
    ("topic.creation.default.partitions", "1"),
    ("topic.creation.default.replication.factor", "-1"),
];

/// Settings of a Kafka Connect worker: a standalone one, which is ready in half the time of a
/// distributed one. It keeps its offsets in a file.
///
/// ```no_run
/// # use onceward_services::{Connect, Server, ServiceError};
/// # fn start(kafka: &Server, postgres: &Server) -> Result<(), ServiceError> {
/// let outbox = [
///     ("table.include.list", "public.outbox"),
///     ("transforms", "outbox"),
///     ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
/// ];
/// let connect = Connect::to(&kafka.address()).debezium("outbox", postgres, outbox).start()?;
/// println!("curl {}/connectors/outbox/status", connect.url());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Connect {
    properties: Properties,
    connectors: BTreeMap<String, Properties>,
}

impl Connect {
    /// One for the Kafka with these `host:port`, separated by commas, which has to outlive it to be
    /// of use.
    pub fn to(bootstrap: &str) -> Self {
        let mut properties = Properties::from_iter(PROPERTIES);
        properties.set("bootstrap.servers", bootstrap);
        Self { properties, connectors: BTreeMap::new() }
    }

    /// One property of the worker; the last one of a name counts.
    #[must_use]
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.set(name, value);
        self
    }

    /// A connector with its configuration.
    #[must_use]
    pub fn connector<N: Into<String>, V: Into<String>>(
        mut self,
        name: &str,
        configuration: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let mut connector = Properties::from_iter(configuration);
        connector.set("name", name);
        self.connectors.insert(name.to_owned(), connector);
        self
    }

    /// A Debezium connector for the database `postgres`, and what its configuration has more or
    /// otherwise. It publishes what changes after its first start. Its name is also the one of its
    /// replication slot and publication, and the prefix of its topics.
    #[must_use]
    pub fn debezium<N: Into<String>, V: Into<String>>(
        self,
        name: &str,
        postgres: &Server,
        configuration: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let mut all = Properties::from_iter(DEBEZIUM);
        all.set("database.port", &postgres.port().to_string());
        for named in ["slot.name", "publication.name", "topic.prefix"] {
            all.set(named, name);
        }
        all.extend(&Properties::from_iter(configuration));
        self.connector(name, all)
    }

    /// Starts it, and returns when all its connectors and their tasks run. The same holds for
    /// every further start of the server.
    ///
    /// # Errors
    ///
    /// If Kafka is missing, the worker does not start, or a connector fails.
    pub fn start(&self) -> Result<Server, ServiceError> {
        let found = Program::Kafka.find()?;
        Home::for_starting(|home| Server::new(home, self.recipe(home, &found)?))
    }

    fn recipe(&self, home: &Home, found: &Found) -> Result<Recipe, ServiceError> {
        let port = home.port(0);
        let url = format!("http://127.0.0.1:{port}");
        let mut worker = self.properties.clone();
        worker.set("listeners", &url);
        worker.set("plugin.path", &home.room("plugins")?.display().to_string());
        let offsets = home.room("connect-data")?.join("offsets");
        worker.set("offset.storage.file.filename", &offsets.display().to_string());
        let worker = home.write("connect.properties", &worker.to_string())?;
        let mut arguments =
            [HEAP, STANDALONE, &worker.display().to_string()].map(str::to_owned).to_vec();
        for (name, connector) in &self.connectors {
            let file =
                home.write(&format!("{name}.connector.properties"), &connector.to_string())?;
            arguments.push(file.display().to_string());
        }
        let connectors = self.connectors.keys().cloned().collect();
        Ok(Recipe {
            name: "connect".to_owned(),
            found: found.clone(),
            executable: "java",
            arguments,
            port,
            url,
            ready: Ready::Answers(Box::new(AllRun { port, connectors })),
            // At a signal, two threads stop its REST server; one time in 60 that never ends, and
            // the connectors are not stopped.
            stop: Stop::Request(stop_connectors),
        })
    }
}

/// Ready when all connectors run, each with at least one task.
#[derive(Debug)]
struct AllRun {
    port: u16,
    connectors: Vec<String>,
}

impl Probe for AllRun {
    fn is_ready(&self) -> Result<bool, String> {
        if connectors(self.port).is_err() {
            return Ok(false);
        }
        for name in &self.connectors {
            let path = format!("/connectors/{name}/status");
            let status = ask(self.port, "GET", &path).unwrap_or_default();
            match State::of(&status) {
                State::Running => {}
                State::Starting => return Ok(false),
                State::Failed => return Err(format!("its connector {name} failed")),
            }
        }
        Ok(true)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Starting,
    Running,
    Failed,
}

impl State {
    /// From the JSON of a status: the connector's state, then those of its tasks.
    fn of(status: &str) -> Self {
        let mut states = status.split(r#""state":""#).skip(1);
        let (all, tasks) = (states.clone(), states.by_ref().skip(1).count());
        let mut all = all.map(|rest| rest.split('"').next().unwrap_or_default());
        match (all.clone().any(|state| state == "FAILED"), all.all(|state| state == "RUNNING")) {
            (true, _) => Self::Failed,
            (false, true) if tasks > 0 => Self::Running,
            (false, _) => Self::Starting,
        }
    }
}

/// Stops all connectors, each of which notes its offsets at last.
fn stop_connectors(port: u16) -> io::Result<()> {
    let stop = |name: &String| ask(port, "PUT", &format!("/connectors/{name}/stop"));
    connectors(port)?.iter().try_for_each(|name| stop(name).map(drop))
}

/// Names of the connectors, from a JSON array.
fn connectors(port: u16) -> io::Result<Vec<String>> {
    let names = ask(port, "GET", "/connectors")?;
    Ok(names.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// The body of a successful answer.
fn ask(port: u16, method: &str, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = "Host: 127.0.0.1\r\nContent-Length: 0";
    write!(stream, "{method} {path} HTTP/1.0\r\n{head}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let is_success = head.split(' ').nth(1).is_some_and(|status| status.starts_with('2'));
    if is_success { Ok(body.to_owned()) } else { Err(io::Error::other(answer)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connector_runs_when_its_tasks_do() {
        let status = |connector: &str, tasks: &str| {
            let connector = format!(r#"{{"state":"{connector}","worker_id":"w"}}"#);
            State::of(&format!(r#"{{"name":"a","connector":{connector},"tasks":[{tasks}]}}"#))
        };
        let (running, failed) = (r#"{"id":0,"state":"RUNNING"}"#, r#"{"id":1,"state":"FAILED"}"#);
        assert_eq!(State::of(""), State::Starting);
        assert_eq!(status("RUNNING", ""), State::Starting);
        assert_eq!(status("RUNNING", running), State::Running);
        assert_eq!(status("UNASSIGNED", running), State::Starting);
        assert_eq!(status("RUNNING", &format!("{running},{failed}")), State::Failed);
    }
}
