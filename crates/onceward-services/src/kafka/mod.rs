//! Apache Kafka: one broker, a cluster of three, and Kafka Connect.

mod cluster;
mod connect;
mod properties;
mod protocol;
mod topic;

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::Arc;

use rustix::process::Signal;

pub use self::cluster::KafkaCluster;
pub use self::connect::Connect;
use self::properties::Properties;
use self::protocol::metadata;
pub use self::topic::{Access, KafkaRecord, Topic};
use crate::error::ServiceError;
use crate::found::Found;
use crate::home::Home;
use crate::program::Program;
use crate::server::{Probe, Ready, Recipe, Server, Stop};

/// Enough for tests. A broker takes 170 MB of memory with it.
const HEAP: &str = "-Xmx128m";

/// Nodes of a cluster: one may be lost.
const NODES: u16 = 3;

/// Defaults for little memory and a fast start. A wrong topic name is an error.
const PROPERTIES: [(&str, &str); 9] = [
    ("process.roles", "broker,controller"),
    ("controller.listener.names", "CONTROLLER"),
    ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"),
    ("inter.broker.listener.name", "PLAINTEXT"),
    ("offsets.topic.num.partitions", "4"),
    ("transaction.state.log.num.partitions", "4"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("auto.create.topics.enable", "false"),
    // The default of 128 MB does not fit into the heap.
    ("log.cleaner.dedupe.buffer.size", "2097152"),
];

/// A killed broker cannot register again before its session has expired, so the session is short.
const SESSION_MS: u16 = 1_000;
/// In a cluster, a node that is slow for a second must not lose its partitions.
const SESSION_OF_CLUSTER_MS: u16 = 3_000;
const HEARTBEATS_PER_SESSION: u16 = 6;

/// Properties that have the number of replicas, which is the number of nodes.
const REPLICAS: [&str; 4] = [
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
];

/// Properties that have the number of replicas that a write waits for.
const IN_SYNC: [&str; 3] = [
    "min.insync.replicas",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.min.isr",
];

/// Settings of Kafka nodes, each a broker and a controller. All users of the machine can connect,
/// without a password.
///
/// ```no_run
/// # use onceward_services::{Kafka, ServiceError};
/// # fn start() -> Result<(), ServiceError> {
/// let kafka = Kafka::default().property("message.max.bytes", "10000").start()?;
/// println!("bootstrap.servers={}", kafka.address());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Kafka {
    properties: Properties,
}

impl Kafka {
    /// Value of `authorizer.class.name` for [`Topic::deny`].
    pub const AUTHORIZER: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

    /// Sets a property of `server.properties`. It overrides the default; the last value of a name
    /// counts.
    #[must_use]
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.set(name, value);
        self
    }

    /// Starts an empty broker.
    ///
    /// # Errors
    ///
    /// If Kafka is missing or does not start.
    pub fn start(&self) -> Result<Server, ServiceError> {
        let found = Program::Kafka.find()?;
        Home::for_starting(|home| {
            let broker = Node::all_of(home, 1)[0].server(home, &found, &self.properties)?;
            broker.start()?;
            Ok(broker)
        })
    }

    /// Starts an empty cluster of three nodes. Topics have three replicas, two of which
    /// acknowledge a write.
    ///
    /// # Errors
    ///
    /// If Kafka is missing, does not start, or the nodes do not find each other.
    pub fn start_cluster(&self) -> Result<KafkaCluster, ServiceError> {
        let found = Program::Kafka.find()?;
        Home::for_starting(|home| {
            let server = |node: Node| node.server(home, &found, &self.properties);
            let nodes = Node::all_of(home, NODES).into_iter().map(server);
            let cluster = KafkaCluster { nodes: nodes.collect::<Result<_, _>>()? };
            cluster.start()?;
            Ok(cluster)
        })
    }
}

/// A node before its first start.
#[derive(Debug)]
struct Node {
    /// From 1.
    id: u16,
    /// Number of nodes.
    of: u16,
    port: u16,
    /// Addresses of all controllers, as `id@host:port`.
    voters: Vec<String>,
    cluster: String,
}

impl Node {
    fn all_of(home: &Home, of: u16) -> Vec<Self> {
        let voter = |id| format!("{id}@127.0.0.1:{}", home.port(of + id - 1));
        let voters: Vec<_> = (1..=of).map(voter).collect();
        let cluster = new_id();
        let node = |id| Self {
            id,
            of,
            port: home.port(id - 1),
            voters: voters.clone(),
            cluster: cluster.clone(),
        };
        (1..=of).map(node).collect()
    }

    fn server(
        &self,
        home: &Arc<Home>,
        found: &Found,
        more: &Properties,
    ) -> Result<Server, ServiceError> {
        let name = if self.of == 1 { "kafka".to_owned() } else { format!("kafka-{}", self.id) };
        let data = home.room(&format!("{name}-data"))?;
        self.format(home, found, &data)?;
        let mut properties = self.properties(&data);
        properties.extend(more);
        let file = home.write(&format!("{name}.properties"), &properties.to_string())?;
        let recipe = Recipe {
            name,
            found: found.clone(),
            executable: "java",
            arguments: [HEAP, "kafka.Kafka", &file.display().to_string()].map(str::to_owned).into(),
            port: self.port,
            url: format!("kafka://127.0.0.1:{}", self.port),
            ready: Ready::Answers(Box::new(Registered::of(self))),
            stop: Stop::Signal(Signal::TERM),
        };
        Ok(Server::stopped(home, recipe))
    }

    fn properties(&self, data: &Path) -> Properties {
        let controller =
            self.voters[usize::from(self.id) - 1].split_once('@').unwrap_or_default().1;
        let client = format!("PLAINTEXT://127.0.0.1:{}", self.port);
        let mut properties = Properties::from_iter(PROPERTIES);
        properties.set("node.id", &self.id.to_string());
        properties.set("controller.quorum.voters", &self.voters.join(","));
        properties.set("listeners", &format!("{client},CONTROLLER://{controller}"));
        properties.set("advertised.listeners", &client);
        properties.set("log.dirs", &data.display().to_string());
        let session = if self.of == 1 { SESSION_MS } else { SESSION_OF_CLUSTER_MS };
        let heartbeat = session / HEARTBEATS_PER_SESSION;
        properties.set("broker.session.timeout.ms", &session.to_string());
        properties.set("broker.heartbeat.interval.ms", &heartbeat.to_string());
        for name in REPLICAS {
            properties.set(name, &self.of.to_string());
        }
        for name in IN_SYNC {
            properties.set(name, &self.of.div_ceil(2).to_string());
        }
        properties
    }

    /// Writes the files of Kafka's format tool without starting it. The installation contains the
    /// file that is the same for all nodes.
    fn format(&self, home: &Home, found: &Found, data: &Path) -> Result<(), ServiceError> {
        let Found::Jars { directory, .. } = found else { return Ok(()) };
        let (name, node) = ("bootstrap.checkpoint", self.id);
        let to = data.join(name);
        let copied = fs::copy(directory.join(name), &to);
        copied.map_err(ServiceError::io(format!("writing {}", to.display())))?;
        home.give_away(&to)?;
        let (cluster, directory) = (&self.cluster, new_id());
        let meta =
            format!("version=1\ncluster.id={cluster}\nnode.id={node}\ndirectory.id={directory}\n");
        home.write(&data.join("meta.properties").display().to_string(), &meta).map(drop)
    }
}

/// Ready if its answer names its cluster and lists the node as a broker. A broker does not answer
/// before it serves clients.
#[derive(Debug)]
struct Registered {
    cluster: String,
    node: i32,
    address: String,
}

impl Registered {
    fn of(node: &Node) -> Self {
        let address = format!("127.0.0.1:{}", node.port);
        Self { cluster: node.cluster.clone(), node: node.id.into(), address }
    }
}

impl Probe for Registered {
    fn is_ready(&self) -> Result<bool, String> {
        Ok(metadata(&self.address, &[]).is_ok_and(|metadata| {
            metadata.cluster == self.cluster && metadata.brokers.contains_key(&self.node)
        }))
    }
}

/// Returns a random identifier: 128 bits in URL-safe base64, whose digits include the hexadecimal
/// digits.
fn new_id() -> String {
    format!("{:016x}AAAAAA", RandomState::new().hash_one(std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_has_128_bits_and_is_another_every_time() {
        let (one, two) = (new_id(), new_id());
        assert_eq!(one.len(), 22);
        assert_ne!(one, two);
    }
}
