//! Kafka Connect with Debezium's connector for PostgreSQL.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::properties::Properties;
use crate::error::ServiceError;
use crate::found::Found;
use crate::home::Home;
use crate::program::Program;
use crate::server::{Probe, Ready, Recipe, Server, Stop};

/// Enough for tests. A worker takes 180 MB of memory with it.
const HEAP: &str = "-Xmx192m";
/// Limit for an answer. A worker that stops a connector waits 5 s for its tasks.
const PATIENCE: Duration = Duration::from_secs(15);
const STANDALONE: &str = "org.apache.kafka.connect.cli.ConnectStandalone";

/// Defaults: keys and values are text, and offsets are saved every second.
const PROPERTIES: [(&str, &str); 4] = [
    ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
    ("value.converter", "org.apache.kafka.connect.storage.StringConverter"),
    ("offset.flush.interval.ms", "1000"),
    ("plugin.discovery", "service_load"),
];

/// Defaults of Debezium. The connector creates topics, because the brokers here do not. It takes no
/// snapshot: a connector that is killed before it has saved its first offset would take another
/// snapshot and skip the rows that were inserted and deleted before that.
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

/// Settings of a Kafka Connect worker. It is standalone and keeps its offsets in a file: it needs no
/// topics of its own, and after a kill it does not wait for its old session in a group.
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
    /// Returns the settings of a worker for the brokers at `bootstrap`: `host:port`, separated by
    /// commas. They have to run as long as the worker.
    pub fn to(bootstrap: &str) -> Self {
        let mut properties = Properties::from_iter(PROPERTIES);
        properties.set("bootstrap.servers", bootstrap);
        Self { properties, connectors: BTreeMap::new() }
    }

    /// Sets a property of the worker. The last value of a name counts.
    #[must_use]
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.set(name, value);
        self
    }

    /// Adds a connector with its configuration.
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

    /// Adds a Debezium connector for the database `postgres`. `configuration` overrides the defaults.
    /// The connector publishes the changes after its first start. Its replication slot, its
    /// publication and the prefix of its topics have its name.
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

    /// Starts the worker and waits until all connectors and their tasks run, as every later start
    /// of the server does.
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
            // After SIGTERM, Kafka's and Jetty's shutdown hooks both stop the REST server. One time
            // in 60 they block each other, and the connectors are never stopped.
            stop: Stop::Request(stop_connectors),
        })
    }
}

/// Ready if all connectors run, each with at least one task.
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
    /// Parses the JSON of a status: the connector's state, followed by those of its tasks.
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

/// Stops all connectors. Each one saves its offsets before that.
fn stop_connectors(port: u16) -> io::Result<()> {
    let stop = |name: &String| ask(port, "PUT", &format!("/connectors/{name}/stop"));
    connectors(port)?.iter().try_for_each(|name| stop(name).map(drop))
}

/// Returns the names of the connectors.
fn connectors(port: u16) -> io::Result<Vec<String>> {
    let names = ask(port, "GET", "/connectors")?;
    Ok(names.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Sends a request without a body and returns the body of a successful answer.
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
