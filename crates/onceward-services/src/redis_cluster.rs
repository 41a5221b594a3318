//! A Redis Cluster of three primaries and three replicas.

use std::time::Duration;

use crate::error::ServiceError;
use crate::home::Home;
use crate::program::Program;
use crate::redis::{Redis, is_linked};
use crate::resp::{Reply, ask};
use crate::server::Server;
use crate::wait;

const PRIMARIES: u16 = 3;
const NODES: u16 = 6;
const SLOTS: u16 = 16_384;
/// How long nodes may take to know each other, to agree and to copy.
const FORMING: Duration = Duration::from_secs(30);
/// When nodes call a silent one dead: short, because tests wait for it.
const NODE_TIMEOUT_MS: &str = "2000";

/// A Redis Cluster. At its start the first three nodes are primaries, and node `i + 3` follows
/// node `i`.
#[derive(Debug)]
pub struct RedisCluster {
    /// Each a server of its own, to be killed, paused and started alone.
    pub nodes: Vec<Server>,
}

impl RedisCluster {
    /// Starts six nodes with these settings and makes them a cluster.
    ///
    /// # Errors
    ///
    /// If Redis is missing, does not start, or the nodes do not agree.
    pub fn start(settings: &Redis) -> Result<Self, ServiceError> {
        let found = Program::Redis.find()?;
        let settings = settings.clone();
        let settings = settings.setting("cluster-enabled", "yes");
        let settings = settings.setting("cluster-node-timeout", NODE_TIMEOUT_MS);
        Home::for_starting(|home| {
            let start = |index| settings.start_in(home, &found, &format!("node-{index}"), index);
            let nodes = (0..NODES).map(start).collect::<Result<_, _>>()?;
            let cluster = Self { nodes };
            cluster.form()?;
            Ok(cluster)
        })
    }

    /// Where clients connect to, all nodes.
    pub fn urls(&self) -> Vec<&str> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// Waits until every node finds every slot served, and every replica follows.
    ///
    /// # Errors
    ///
    /// If they do not in 30 s, with the log of a node that does not.
    pub fn wait_until_ok(&self) -> Result<(), ServiceError> {
        let is_ok = |node: &Server| {
            let info = text(node, &["CLUSTER", "INFO"]).unwrap_or_default();
            let role = text(node, &["INFO", "replication"]).unwrap_or_default();
            info.contains("cluster_state:ok") && (role.contains("role:master") || is_linked(node))
        };
        self.wait_for_each("does not find its cluster in order", is_ok)
    }

    fn form(&self) -> Result<(), ServiceError> {
        for (index, node) in (0..).zip(&self.nodes) {
            // Different from the start: nodes with equal ones would have to agree first.
            tell(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])?;
            if index < PRIMARIES {
                serve_share(node, index)?;
            }
            if index > 0 {
                let first = self.nodes[0].port().to_string();
                tell(node, &["CLUSTER", "MEET", "127.0.0.1", &first])?;
            }
        }
        self.wait_until_acquainted()?;
        let (primaries, replicas) = self.nodes.split_at(usize::from(PRIMARIES));
        for (primary, replica) in primaries.iter().zip(replicas) {
            let id = text(primary, &["CLUSTER", "MYID"])?;
            tell(replica, &["CLUSTER", "REPLICATE", &id])?;
        }
        self.wait_until_followed()?;
        self.wait_until_ok()
    }

    fn wait_until_acquainted(&self) -> Result<(), ServiceError> {
        self.wait_for_each("does not know the other nodes", |node| {
            let nodes = text(node, &["CLUSTER", "NODES"]).unwrap_or_default();
            nodes.lines().count() == usize::from(NODES) && !nodes.contains("handshake")
        })
    }

    /// Clients ask any node who follows whom.
    fn wait_until_followed(&self) -> Result<(), ServiceError> {
        self.wait_for_each("does not know who follows whom", |node| {
            let nodes = text(node, &["CLUSTER", "NODES"]).unwrap_or_default();
            nodes.matches("slave").count() == usize::from(NODES - PRIMARIES)
        })
    }

    fn wait_for_each(
        &self,
        otherwise: &str,
        holds: impl Fn(&Server) -> bool,
    ) -> Result<(), ServiceError> {
        let late = |node: &&Server| wait::until(FORMING, || holds(node).then_some(())).is_none();
        self.nodes.iter().find(late).map_or(Ok(()), |node| Err(node.failed(otherwise)))
    }
}

/// Gives a primary its share of the slots.
fn serve_share(node: &Server, index: u16) -> Result<(), ServiceError> {
    let begin = |index: u16| u32::from(SLOTS) * u32::from(index) / u32::from(PRIMARIES);
    let slots: Vec<_> = (begin(index)..begin(index + 1)).map(|slot| slot.to_string()).collect();
    let mut words = vec!["CLUSTER", "ADDSLOTS"];
    words.extend(slots.iter().map(String::as_str));
    tell(node, &words)
}

fn tell(node: &Server, words: &[&str]) -> Result<(), ServiceError> {
    text(node, words).map(drop)
}

fn text(node: &Server, words: &[&str]) -> Result<String, ServiceError> {
    match ask(node, words) {
        Ok(Reply::Text(text)) => Ok(text),
        Ok(other) => Err(node.failed(format!("{} {}: {other:?}", words[0], words[1]))),
        Err(error) => Err(ServiceError::io(format!("asking {}", node.url()))(error)),
    }
}
