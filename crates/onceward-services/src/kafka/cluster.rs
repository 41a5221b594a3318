//! A cluster of three nodes.

use std::io;
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use super::protocol::{Metadata, metadata_of_all};
use super::topic::Topic;
use crate::error::ServiceError;
use crate::server::Server;
use crate::wait;

/// Limit for the nodes to find each other, and for replicas to be in sync.
const FORMING: Duration = Duration::from_secs(60);

/// Kafka cluster of three nodes, each a broker and a controller.
#[derive(Debug)]
pub struct KafkaCluster {
    /// The nodes, which can be killed, paused and started alone. A node becomes ready only if
    /// another one runs, because two are needed to elect a controller.
    pub nodes: Vec<Server>,
}

impl KafkaCluster {
    /// Starts the nodes that do not run, all at once, and waits as
    /// [`wait_until_ok`](Self::wait_until_ok).
    ///
    /// # Errors
    ///
    /// If one does not start, or the nodes do not find each other.
    pub fn start(&self) -> Result<(), ServiceError> {
        thread::scope(|scope| {
            let start = |node| scope.spawn(move || Server::start(node));
            let starting: Vec<_> = self.nodes.iter().map(start).collect();
            let mut joined = starting.into_iter().map(ScopedJoinHandle::join);
            joined.try_for_each(|one| one.unwrap_or_else(|panic| resume_unwind(panic)))
        })?;
        self.wait_until_ok()
    }

    /// Waits until every node knows all others, and all replicas of all topics are in sync.
    ///
    /// # Errors
    ///
    /// If that takes more than 60 s, with the log of the node that is late.
    pub fn wait_until_ok(&self) -> Result<(), ServiceError> {
        let is_ok = |node: &Server| {
            let metadata = metadata_of_all(&node.address());
            metadata.is_ok_and(|metadata| self.is_complete(&metadata)).then_some(())
        };
        let late = |node: &&Server| wait::until(FORMING, || is_ok(node)).is_none();
        match self.nodes.iter().find(late) {
            None => Ok(()),
            Some(node) => Err(node.failed("does not see all nodes and replicas in sync")),
        }
    }

    /// `host:port` of all nodes, separated by commas: the format of `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        self.nodes.iter().map(Server::address).collect::<Vec<_>>().join(",")
    }

    /// URL with all nodes.
    pub fn url(&self) -> String {
        format!("kafka://{}", self.bootstrap())
    }

    /// Waits until a partition has a leader, and returns its node.
    ///
    /// # Errors
    ///
    /// If it has none after 20 s.
    pub fn leader(&self, topic: &str, partition: i32) -> io::Result<&Server> {
        let address = Topic::named(&self.bootstrap(), topic).leader(partition)?;
        let node = self.nodes.iter().find(|node| node.address() == address);
        node.ok_or_else(|| io::Error::other(format!("{address} is none of the nodes")))
    }

    fn is_complete(&self, metadata: &Metadata) -> bool {
        let in_sync = metadata.topics.values().flatten().all(|partition| {
            partition.leader >= 0 && partition.in_sync.len() == partition.replicas.len()
        });
        metadata.brokers.len() == self.nodes.len() && in_sync
    }
}
