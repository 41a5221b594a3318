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

/// How long nodes may take to know each other, and replicas to follow.
const FORMING: Duration = Duration::from_secs(60);

/// Kafka cluster of three nodes, each a broker and a controller.
#[derive(Debug)]
pub struct KafkaCluster {
    /// Each a server of its own, to be killed, paused and started alone. A node is ready only
    /// beside another one: two elect a controller.
    pub nodes: Vec<Server>,
}

impl KafkaCluster {
    /// Starts the nodes that do not run, at the same time, and waits until all is in order.
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

    /// Waits until every node knows all the others, and all replicas of all topics are in sync.
    ///
    /// # Errors
    ///
    /// If they do not in 60 s, with the log of a node that does not.
    pub fn wait_until_ok(&self) -> Result<(), ServiceError> {
        let is_ok = |node: &Server| {
            let metadata = metadata_of_all(&node.address());
            metadata.is_ok_and(|metadata| self.is_complete(&metadata)).then_some(())
        };
        let late = |node: &&Server| wait::until(FORMING, || is_ok(node)).is_none();
        match self.nodes.iter().find(late) {
            None => Ok(()),
            Some(node) => Err(node.failed("does not find its cluster in order")),
        }
    }

    /// `host:port` of all nodes, separated by commas, as clients want it.
    pub fn bootstrap(&self) -> String {
        self.nodes.iter().map(Server::address).collect::<Vec<_>>().join(",")
    }

    /// Where clients connect to, all nodes.
    pub fn url(&self) -> String {
        format!("kafka://{}", self.bootstrap())
    }

    /// The node that leads a partition, as soon as there is one.
    ///
    /// # Errors
    ///
    /// If there is none in 20 s.
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
