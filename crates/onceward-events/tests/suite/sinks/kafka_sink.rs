//! The sink to Kafka, on a real broker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use onceward_events::{
    Delivery, InvalidKafkaSink, KafkaSink, KafkaSinkSettings, Sink, TopicTemplate,
};
use onceward_services::{Kafka, Server, Topic, or_skip};
use onceward_testkit::events::sink_conformance::{Received, SinkFixture, exercise};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

struct Fixture {
    server: Server,
    sink: Arc<KafkaSink>,
}

const TOPICS: [&str; 2] = ["order.events", "customer.events"];
const PARTITIONS: i32 = 3;

impl Fixture {
    fn start() -> Option<Self> {
        let kafka = Kafka::default().property("message.max.bytes", "20000");
        let server = or_skip(kafka.start())?;
        for topic in TOPICS {
            Topic::create(&server.address(), topic, PARTITIONS, &[]).unwrap();
        }
        let timeout = Duration::from_secs(5);
        let settings = KafkaSinkSettings { timeout, ..KafkaSinkSettings::new(server.address()) };
        Some(Self { sink: Arc::new(KafkaSink::new(settings).unwrap()), server })
    }
}

/// All messages of the topics, each partition in its order.
fn read_all(server: &Server) -> Vec<Received> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", server.address())
        .set("group.id", "test")
        .set("enable.partition.eof", "true")
        .create()
        .unwrap();
    let mut partitions = TopicPartitionList::new();
    for topic in TOPICS {
        for partition in 0..PARTITIONS {
            partitions.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
    }
    consumer.assign(&partitions).unwrap();
    let (mut received, mut open) = (Vec::new(), partitions.count());
    while open > 0 {
        match consumer.poll(Duration::from_secs(30)).expect("a message or the end") {
            Ok(message) => received.push(read(&message)),
            Err(KafkaError::PartitionEOF(_)) => open -= 1,
            Err(error) => panic!("{error}"),
        }
    }
    received
}

fn read(message: &BorrowedMessage<'_>) -> Received {
    let headers: BTreeMap<_, _> = message
        .headers()
        .unwrap()
        .iter()
        .map(|it| (it.key.to_owned(), String::from_utf8(it.value.unwrap().to_vec()).unwrap()))
        .collect();
    assert_eq!(headers["id"], headers["ce_id"]);
    Received {
        id: headers["id"].clone(),
        event_type: headers["type"].clone(),
        aggregate_id: String::from_utf8(message.key().unwrap().to_vec()).unwrap(),
        payload: Bytes::copy_from_slice(message.payload().unwrap()),
        content_type: headers["content-type"].clone(),
        headers: BTreeMap::from([("tenant".to_owned(), headers["tenant"].clone())]),
    }
}

#[async_trait]
impl SinkFixture for Fixture {
    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn received(&self, count: usize) -> Vec<Received> {
        let received = tokio::task::block_in_place(|| read_all(&self.server));
        assert!(received.len() >= count, "{} of {count}", received.len());
        received
    }

    async fn set_reachable(&self, reachable: bool) -> bool {
        tokio::task::block_in_place(|| match reachable {
            true => self.server.restart().unwrap(),
            false => self.server.stop().unwrap(),
        });
        true
    }

    /// Too large for the broker, and not for the client: the broker refuses a whole batch.
    fn refused_payload(&self) -> Option<Bytes> {
        Some(Bytes::from(vec![b'x'; 40_000]))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_suite() {
    let Some(fixture) = Fixture::start() else { return };
    exercise(&fixture).await;
}

/// Debezium and the Java client partition by murmur2, librdkafka by CRC32 unless it is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_in_the_partition_where_the_java_client_puts_it() {
    let Some(fixture) = Fixture::start() else { return };
    let events: Vec<_> = (0..20).map(|it| super::stored_event(&format!("k{it}"), it)).collect();
    assert!(fixture.sink.deliver(&events).await.iter().all(|it| *it == Delivery::Delivered));
    let records = Topic::named(&fixture.server.address(), TOPICS[0]).records().unwrap();
    assert_eq!(records.len(), events.len());
    for record in records {
        let partition = (murmur2(record.key.as_bytes()) & 0x7fff_ffff) % 3;
        assert_eq!(record.partition, partition as i32, "{}", record.key);
    }
}

/// `org.apache.kafka.common.utils.Utils.murmur2`.
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ data.len() as u32;
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_missing_is_named_and_holds_up_no_other() {
    let Some(fixture) = Fixture::start() else { return };
    let events = [super::event_of("invoice", "1", 1), super::stored_event("a", 2)];
    let results = fixture.sink.deliver(&events).await;
    let named =
        matches!(&results[0], Delivery::Failed(error) if error.0.contains("invoice.events"));
    assert!(named, "{:?}", results[0]);
    assert_eq!(results[1], Delivery::Delivered);
}

#[test]
fn settings_that_delivery_depends_on_are_the_sinks_own() {
    for property in ["acks", "enable.idempotence", "partitioner", "transactional.id"] {
        let mut settings = KafkaSinkSettings::new("127.0.0.1:1");
        settings.properties.insert(property.to_owned(), "0".to_owned());
        let refused = KafkaSink::new(settings);
        assert!(matches!(refused, Err(InvalidKafkaSink::OwnProperty(name)) if name == property));
    }
    let mut settings = KafkaSinkSettings::new("127.0.0.1:1");
    settings.properties.insert("no.such.setting".to_owned(), "1".to_owned());
    let refused = KafkaSink::new(settings).unwrap_err().to_string();
    assert!(refused.contains("no.such.setting"), "{refused}");
    assert!(TopicTemplate::parse("{aggregate_id}").is_err());
}
