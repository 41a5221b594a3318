//! The sink to NATS JetStream, on a real server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use onceward_events::{Delivery, NatsSink, NatsSinkSettings, Sink, SubjectTemplate};
use onceward_services::{Nats, Server, or_skip};
use onceward_testkit::events::sink_conformance::{Received, SinkFixture, exercise};

struct Fixture {
    server: Server,
    sink: Arc<NatsSink>,
}

impl Fixture {
    async fn start() -> Option<Self> {
        let server = or_skip(Nats::default().setting("max_payload", "64KB").start())?;
        let stream = jetstream::stream::Config {
            name: "EVENTS".to_owned(),
            subjects: vec!["shop.>".to_owned()],
            ..jetstream::stream::Config::default()
        };
        context(&server).await.create_stream(stream).await.unwrap();
        let subject = SubjectTemplate::parse("shop.{aggregate_type}.{aggregate_id}").unwrap();
        let settings = NatsSinkSettings {
            subject,
            timeout: Duration::from_secs(2),
            ..NatsSinkSettings::new(server.url())
        };
        Some(Self { sink: Arc::new(NatsSink::new(settings)), server })
    }
}

async fn context(server: &Server) -> jetstream::Context {
    jetstream::new(async_nats::connect(server.url()).await.unwrap())
}

#[async_trait]
impl SinkFixture for Fixture {
    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn received(&self, count: usize) -> Vec<Received> {
        let stream = context(&self.server).await.get_stream("EVENTS").await.unwrap();
        let config = pull::Config { ack_policy: AckPolicy::None, ..pull::Config::default() };
        let consumer = stream.create_consumer(config).await.unwrap();
        let stored = consumer.cached_info().num_pending;
        assert!(stored >= count as u64, "{stored} of {count}");
        let mut messages = consumer.messages().await.unwrap();
        let mut received = Vec::new();
        while (received.len() as u64) < stored {
            received.push(read(&messages.next().await.unwrap().unwrap()));
        }
        received
    }

    async fn set_reachable(&self, reachable: bool) -> bool {
        match reachable {
            true => self.server.restart().unwrap(),
            false => self.server.stop().unwrap(),
        }
        true
    }

    fn refused_payload(&self) -> Option<Bytes> {
        Some(Bytes::from(vec![b'x'; 70_000]))
    }
}

fn read(message: &jetstream::Message) -> Received {
    let headers = message.headers.as_ref().unwrap();
    let text = |name: &str| headers.get(name).unwrap().as_str().to_owned();
    let id = message.subject.rsplit('.').next().unwrap();
    Received {
        id: text("Nats-Msg-Id"),
        event_type: text("type"),
        aggregate_id: id.replace("%20", " ").replace("%C3%84", "Ä"),
        payload: message.payload.clone(),
        content_type: text("content-type"),
        headers: BTreeMap::from([("tenant".to_owned(), text("tenant"))]),
    }
}

#[tokio::test]
async fn it_passes_the_suite() {
    let Some(fixture) = Fixture::start().await else { return };
    exercise(&fixture).await;
}

#[tokio::test]
async fn a_subject_without_a_stream_is_named() {
    let Some(server) = onceward_services::nats() else { return };
    let sink = NatsSink::new(NatsSinkSettings::new(server.url()));
    let result = sink.deliver(&[super::stored_event("a", 1)]).await.swap_remove(0);
    let named = matches!(&result, Delivery::Failed(error) if error.0.contains("order.a"));
    assert!(named, "{result:?}");
}
