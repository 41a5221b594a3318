//! A sink that produces events to Kafka.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::RwLock;
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::future_producer::DeliveryFuture;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};

use super::{Delivery, Sink, SinkError, TopicTemplate};
use crate::event::StoredEvent;

/// Produces each event to a topic, with the aggregate's id as its key.
///
/// The producer is idempotent, waits for all in-sync replicas, and partitions by `murmur2` as the Java
/// client and Debezium do, so that an aggregate stays in its partition when either replaces the other.
/// A message has the headers `id`, `type`, `content-type`, those of CloudEvents (`ce_id`, …), and the
/// event's own.
pub struct KafkaSink {
    config: ClientConfig,
    producer: RwLock<Arc<FutureProducer>>,
    settings: KafkaSinkSettings,
    name: String,
}

/// Settings of a [`KafkaSink`].
#[derive(Debug, Clone)]
pub struct KafkaSinkSettings {
    /// The first brokers to ask: `host:port`, separated by commas.
    pub bootstrap_servers: String,
    /// The topic of an event. It must exist.
    pub topic: TopicTemplate,
    /// The `ce_source` of events: a URI that names the publisher.
    pub source: String,
    /// How long an event may wait for its acknowledgement, retries included.
    pub timeout: Duration,
    /// Further settings of librdkafka, such as `security.protocol`. Those that delivery depends on
    /// are refused.
    pub properties: BTreeMap<String, String>,
}

/// Settings that the sink makes itself: its order and its durability depend on them.
const OWN_PROPERTIES: [(&str, &str); 5] = [
    ("enable.idempotence", "true"),
    ("acks", "all"),
    ("partitioner", "murmur2_random"),
    // A message that fails for good stops those behind it, so that none overtakes it.
    ("enable.gapless.guarantee", "true"),
    ("allow.auto.create.topics", "false"),
];

/// Other names and settings that would undo them.
const REFUSED_PROPERTIES: [&str; 5] = [
    "request.required.acks",
    "transactional.id",
    "message.timeout.ms",
    "delivery.timeout.ms",
    "bootstrap.servers",
];

/// Why a [`KafkaSink`] cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKafkaSink {
    /// A property is the sink's own.
    #[error("the Kafka property {0:?} is set by the sink itself: remove it")]
    OwnProperty(String),
    /// librdkafka refuses a property.
    #[error("Kafka's client refuses the settings: {0}")]
    Client(#[source] KafkaError),
}

impl KafkaSinkSettings {
    /// The default settings for brokers: the topic is `TYPE.events` of the aggregate.
    pub fn new(bootstrap_servers: impl Into<String>) -> Self {
        Self {
            bootstrap_servers: bootstrap_servers.into(),
            topic: TopicTemplate::default(),
            source: "/onceward".to_owned(),
            timeout: Duration::from_secs(30),
            properties: BTreeMap::new(),
        }
    }

    fn client_config(&self) -> Result<ClientConfig, InvalidKafkaSink> {
        let mut config = ClientConfig::new();
        config.set("linger.ms", "5").set("client.id", "onceward-relay");
        for (name, value) in &self.properties {
            let own = OWN_PROPERTIES.iter().any(|(own, _)| own == name);
            if own || REFUSED_PROPERTIES.contains(&name.as_str()) {
                return Err(InvalidKafkaSink::OwnProperty(name.clone()));
            }
            config.set(name, value);
        }
        for (name, value) in OWN_PROPERTIES {
            config.set(name, value);
        }
        config.set("bootstrap.servers", &self.bootstrap_servers);
        let timeout = self.timeout.as_millis();
        config.set("message.timeout.ms", timeout.to_string());
        // A topic that is missing is named before its events time out.
        config.set("topic.metadata.propagation.max.ms", (timeout / 2).to_string());
        Ok(config)
    }
}

impl KafkaSink {
    /// A sink. It connects in the background.
    pub fn new(settings: KafkaSinkSettings) -> Result<Self, InvalidKafkaSink> {
        let config = settings.client_config()?;
        let producer: FutureProducer = config.create().map_err(InvalidKafkaSink::Client)?;
        let name = format!("kafka {}", settings.bootstrap_servers);
        Ok(Self { config, producer: RwLock::new(Arc::new(producer)), settings, name })
    }

    fn producer(&self) -> Arc<FutureProducer> {
        Arc::clone(&self.producer.read())
    }

    /// Replaces a producer that has failed for good. What it had in flight is delivered again.
    fn replace_failed(&self, failed: &Arc<FutureProducer>) {
        let mut current = self.producer.write();
        if !Arc::ptr_eq(&current, failed) {
            return;
        }
        match self.config.create() {
            Ok(producer) => *current = Arc::new(producer),
            Err(error) => tracing::error!(%error, "a new Kafka producer could not be made"),
        }
    }

    /// Hands an event to the producer; waits while its queue is full.
    async fn send(
        &self,
        producer: &FutureProducer,
        event: &StoredEvent,
    ) -> Result<DeliveryFuture, Delivery> {
        let topic = self.settings.topic.topic(&event.aggregate);
        let mut record = FutureRecord::to(&topic)
            .key(event.aggregate.id())
            .payload(&event.payload.0[..])
            .headers(self.headers(event));
        loop {
            match producer.send_result(record) {
                Ok(sent) => return Ok(sent),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), again)) => {
                    record = again;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err((error, _)) => return Err(by_error(&error, &topic)),
            }
        }
    }

    /// Hands all events over in their order, then waits for all of them.
    async fn send_all(
        &self,
        producer: &FutureProducer,
        events: &[Arc<StoredEvent>],
    ) -> Vec<Delivery> {
        let mut sent = Vec::with_capacity(events.len());
        for events in events.chunk_by(|one, next| one.aggregate == next.aggregate) {
            let mut held = false;
            for event in events {
                let result = match held {
                    true => Err(Delivery::Held),
                    false => self.send(producer, event).await,
                };
                held |= result.is_err();
                sent.push(result);
            }
        }
        let mut results = Vec::with_capacity(events.len());
        for (event, sent) in events.iter().zip(sent) {
            results.push(match sent {
                Ok(sent) => self.acknowledged(sent, event).await,
                Err(result) => result,
            });
        }
        hold_behind_failures(events, &mut results);
        results
    }

    async fn acknowledged(&self, sent: DeliveryFuture, event: &StoredEvent) -> Delivery {
        match sent.await {
            Ok(Ok(_)) => Delivery::Delivered,
            Ok(Err((error, _))) => by_error(&error, &self.settings.topic.topic(&event.aggregate)),
            Err(_) => Delivery::Unavailable(SinkError("the producer has ended".to_owned())),
        }
    }

    /// Sends the events of an aggregate one by one, from the first that was not delivered. A broker
    /// refuses a whole batch of messages for one of them; this shows which.
    async fn send_one_by_one(&self, events: &[Arc<StoredEvent>], results: &mut [Delivery]) {
        let from =
            results.iter().position(|it| *it != Delivery::Delivered).unwrap_or(results.len());
        results[from..].fill(Delivery::Held);
        for (event, result) in events.iter().zip(results).skip(from) {
            let producer = self.producer();
            *result = match self.send(&producer, event).await {
                Ok(sent) => self.acknowledged(sent, event).await,
                Err(result) => result,
            };
            if *result != Delivery::Delivered {
                if producer.client().fatal_error().is_some() {
                    self.replace_failed(&producer);
                }
                return;
            }
        }
    }

    fn headers(&self, event: &StoredEvent) -> OwnedHeaders {
        let id = event.id.to_string();
        let parts = [
            ("id", &*id),
            ("type", &event.event_type),
            ("content-type", &event.content_type),
            ("ce_specversion", "1.0"),
            ("ce_id", &id),
            ("ce_type", &event.event_type),
            ("ce_source", &self.settings.source),
            ("ce_subject", event.aggregate.id()),
        ];
        let own = event.headers.iter().map(|(name, value)| (&**name, &**value));
        let mut headers = OwnedHeaders::new_with_capacity(parts.len() + event.headers.len());
        for (key, value) in own.chain(parts) {
            headers = headers.insert(Header { key, value: Some(value) });
        }
        headers
    }
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink").field("name", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl Sink for KafkaSink {
    async fn deliver(&self, events: &[Arc<StoredEvent>]) -> Vec<Delivery> {
        let producer = self.producer();
        let mut results = self.send_all(&producer, events).await;
        let fatal = producer.client().fatal_error().is_some();
        if fatal {
            self.replace_failed(&producer);
        }
        let mut from = 0;
        for part in events.chunk_by(|one, next| one.aggregate == next.aggregate) {
            let of_part = &mut results[from..from + part.len()];
            from += part.len();
            let refused =
                of_part.iter().any(|it| matches!(it, Delivery::Rejected(_) | Delivery::Failed(_)));
            let undelivered = of_part.iter().any(|it| *it != Delivery::Delivered);
            if refused || (fatal && undelivered) {
                self.send_one_by_one(part, of_part).await;
            }
        }
        results
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Behind the first event of an aggregate that was not delivered, none counts as delivered.
fn hold_behind_failures(events: &[Arc<StoredEvent>], results: &mut [Delivery]) {
    let mut from = 0;
    for part in events.chunk_by(|one, next| one.aggregate == next.aggregate) {
        let results = &mut results[from..from + part.len()];
        from += part.len();
        if let Some(first) = results.iter().position(|it| *it != Delivery::Delivered) {
            results[first + 1..].fill(Delivery::Held);
        }
    }
}

fn by_error(error: &KafkaError, topic: &str) -> Delivery {
    use RDKafkaErrorCode as Code;
    let reason = SinkError::of(error);
    match error.rdkafka_error_code() {
        Some(Code::MessageSizeTooLarge | Code::InvalidMessageSize) => {
            Delivery::Rejected(SinkError(format!(
                "{reason}: raise max.message.bytes of the topic {topic} and message.max.bytes here, or \
             publish smaller events"
            )))
        }
        Some(Code::InvalidRecord) => Delivery::Rejected(reason),
        Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition) => {
            Delivery::Failed(SinkError(format!(
                "the topic {topic} does not exist: create it, or change the sink's topic"
            )))
        }
        Some(Code::TopicAuthorizationFailed) => Delivery::Failed(SinkError(format!(
            "{reason}: allow this client to write to the topic {topic}"
        ))),
        Some(Code::InvalidTopic) => Delivery::Failed(SinkError(format!(
            "{topic:?} is no valid topic: change the sink's topic"
        ))),
        // No broker, no leader, too few replicas, no answer in time, or a failed producer.
        _ => Delivery::Unavailable(reason),
    }
}
