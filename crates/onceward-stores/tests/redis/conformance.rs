//! The conformance suite on a server and on a cluster: on the server's clock, with time that the
//! test lets pass, and sealed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::FullStore;
use onceward_services::{RedisCluster, Server, age};
use onceward_stores::redis::{RedisStore, Settings};
use onceward_testkit::conformance::{Harness, Traits};
use onceward_testkit::model;
use proptest::prelude::Strategy;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::common::{long, settings, shared, shared_cluster, tell};
use crate::sealed::common::SealedOver;

/// The kind of server to open stores on.
#[derive(Clone, Copy)]
enum ServerKind {
    Server(&'static Server),
    Cluster(&'static RedisCluster),
}

impl ServerKind {
    async fn open(self, settings: Settings) -> RedisStore {
        match self {
            Self::Server(server) => RedisStore::open(server.url(), settings).await.unwrap(),
            Self::Cluster(it) => RedisStore::open_cluster(it.urls(), settings).await.unwrap(),
        }
    }

    fn servers(self) -> Vec<&'static Server> {
        match self {
            Self::Server(server) => vec![server],
            Self::Cluster(cluster) => cluster.nodes.iter().collect(),
        }
    }
}

/// Time passes by making records older.
pub(crate) struct Aged {
    place: ServerKind,
    settings: Settings,
}

impl Aged {
    pub(crate) fn server() -> Option<Self> {
        Some(Self { place: ServerKind::Server(shared()?), settings: settings() })
    }

    fn cluster() -> Option<Self> {
        Some(Self { place: ServerKind::Cluster(shared_cluster()?), settings: settings() })
    }

    async fn store(&self) -> RedisStore {
        self.place.open(self.settings.clone()).await
    }
}

#[async_trait]
impl Harness for Aged {
    fn traits(&self) -> Traits {
        Traits { lease: Duration::from_secs(60), fences_outlive_records: true }
    }

    async fn open(&self) -> Arc<dyn FullStore> {
        Arc::new(self.store().await)
    }

    async fn pass(&self, duration: Duration) {
        age(&self.place.servers(), &self.settings.prefix, duration).unwrap();
    }
}

struct RealTime(ServerKind);

#[async_trait]
impl Harness for RealTime {
    fn traits(&self) -> Traits {
        Traits { lease: Duration::from_millis(500), fences_outlive_records: true }
    }

    async fn open(&self) -> Arc<dyn FullStore> {
        Arc::new(self.0.open(settings()).await)
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

mod on_a_server {
    use super::*;

    onceward_testkit::store_conformance!(or_skip Aged::server());
}

mod on_a_servers_own_clock {
    use super::*;

    onceward_testkit::store_conformance!(or_skip shared().map(|it| RealTime(ServerKind::Server(it))));
}

mod on_a_cluster {
    use super::*;

    onceward_testkit::store_conformance!(or_skip Aged::cluster());
}

mod sealed {
    use super::*;

    onceward_testkit::store_conformance!(or_skip Aged::server().map(SealedOver));
}

/// Runs random sequences one after the other on a server of their own, which is flushed in between:
/// making records older visits all of them.
async fn compare(place: ServerKind, cases: usize) {
    let mut runner = TestRunner::default();
    let sequences = model::sequences(60);
    for _ in 0..cases {
        let steps = sequences.new_tree(&mut runner).unwrap().current();
        for server in place.servers() {
            // A replica refuses this.
            let _replica = onceward_services::ask(server, &["FLUSHALL"]);
            let _replica = onceward_services::ask(server, &["FUNCTION", "FLUSH"]);
        }
        let harness = Aged { place, settings: settings() };
        if let Err(difference) = model::compare(&harness, &steps).await {
            panic!("{difference}\n{steps:#?}");
        }
    }
}

#[tokio::test]
async fn a_server_answers_as_the_truth_table_does() {
    let Some(server) = onceward_services::redis() else { return };
    tell(&server, &["CONFIG", "SET", "appendonly", "yes"]);
    let server: &'static Server = Box::leak(Box::new(server));
    compare(ServerKind::Server(server), if long() { 2_000 } else { 60 }).await;
}

#[tokio::test]
async fn a_cluster_answers_as_the_truth_table_does() {
    let Some(cluster) = onceward_services::redis_cluster() else { return };
    let cluster: &'static RedisCluster = Box::leak(Box::new(cluster));
    compare(ServerKind::Cluster(cluster), if long() { 500 } else { 15 }).await;
}
