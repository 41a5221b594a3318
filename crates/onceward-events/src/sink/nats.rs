//! A sink that publishes events to NATS JetStream.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, HeaderMap, HeaderValue};
use async_trait::async_trait;
use tokio::sync::OnceCell;

use super::{DeliverOne, Delivery, Sink, SinkError, SubjectTemplate, one_by_one};
use crate::event::StoredEvent;

/// Publishes each event to a subject of a stream, and waits for the stream's acknowledgement.
///
/// A message has the event's id as `Nats-Msg-Id`, by which a stream recognises an event that is
/// delivered again within its duplicate window; its type, content type and headers are headers.
pub struct NatsSink {
    settings: NatsSinkSettings,
    context: OnceCell<Context>,
    name: String,
}

/// Settings of a [`NatsSink`].
#[derive(Debug, Clone)]
pub struct NatsSinkSettings {
    /// The servers, such as `nats://host:4222`; several are separated by commas.
    pub url: String,
    /// The subject of an event. A stream must have it.
    pub subject: SubjectTemplate,
    /// File with credentials, if the servers ask for them.
    pub credentials: Option<std::path::PathBuf>,
    /// Longest wait for an acknowledgement.
    pub timeout: Duration,
    /// Most events that wait for an acknowledgement, each of another aggregate.
    pub in_flight_max: usize,
}

impl NatsSinkSettings {
    /// The default settings for servers: the subject is `TYPE.ID` of the aggregate.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            subject: SubjectTemplate::default(),
            credentials: None,
            timeout: Duration::from_secs(5),
            in_flight_max: 256,
        }
    }
}

impl NatsSink {
    /// A sink. It connects when it delivers first.
    pub fn new(settings: NatsSinkSettings) -> Self {
        // Without what is before the @: it may be a password.
        let host = settings.url.rsplit('@').next().unwrap_or_default();
        let name = format!("nats {}", host.trim_start_matches("nats://"));
        Self { settings, context: OnceCell::new(), name }
    }

    /// The connection, which comes back by itself when it breaks.
    async fn context(&self) -> Result<&Context, SinkError> {
        let connect = async {
            let mut options = ConnectOptions::new()
                .name("onceward relay")
                .connection_timeout(self.settings.timeout)
                .request_timeout(Some(self.settings.timeout));
            if let Some(file) = &self.settings.credentials {
                options = options.credentials_file(file).await.map_err(|error| {
                    SinkError(format!("the credentials in {}: {error}", file.display()))
                })?;
            }
            let servers: Vec<_> = self.settings.url.split(',').map(str::trim).collect();
            let client: Client =
                options.connect(servers).await.map_err(|error| SinkError::of(&error))?;
            let mut context = jetstream::new(client);
            context.set_timeout(self.settings.timeout);
            Ok(context)
        };
        self.context.get_or_try_init(|| connect).await
    }
}

impl fmt::Debug for NatsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSink").field("name", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl DeliverOne for NatsSink {
    async fn deliver_one(&self, event: &StoredEvent) -> Delivery {
        let context = match self.context().await {
            Ok(context) => context,
            Err(error) => return Delivery::Unavailable(error),
        };
        let subject = self.settings.subject.subject(&event.aggregate);
        let message = PublishMessage::build()
            .payload(event.payload.0.clone())
            .headers(headers(event))
            .message_id(event.id.to_string());
        let published = async { context.send_publish(subject.clone(), message).await?.await };
        match published.await {
            Ok(_acknowledged) => Delivery::Delivered,
            Err(error) => by_error(&error, &subject),
        }
    }
}

#[async_trait]
impl Sink for NatsSink {
    async fn deliver(&self, events: &[Arc<StoredEvent>]) -> Vec<Delivery> {
        if let Err(error) = self.context().await {
            return vec![Delivery::Unavailable(error); events.len()];
        }
        one_by_one(self, events, self.settings.in_flight_max).await
    }

    fn name(&self) -> &str {
        &self.name
    }
}

fn headers(event: &StoredEvent) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let parts = [("type", &*event.event_type), ("content-type", &event.content_type)];
    let own = event.headers.iter().map(|(name, value)| (&**name, &**value));
    for (name, value) in own.chain(parts) {
        headers.insert(name, HeaderValue::from(value));
    }
    headers
}

fn by_error(error: &PublishError, subject: &str) -> Delivery {
    let reason = SinkError::of(error);
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => Delivery::Rejected(reason),
        PublishErrorKind::StreamNotFound => Delivery::Failed(SinkError(format!(
            "no stream has the subject {subject}: add it to a stream, or change the sink's subject"
        ))),
        PublishErrorKind::TimedOut
        | PublishErrorKind::BrokenPipe
        | PublishErrorKind::MaxAckPending => Delivery::Unavailable(reason),
        // The stream answered with an error, for example that it is full.
        PublishErrorKind::Other
        | PublishErrorKind::WrongLastMessageId
        | PublishErrorKind::WrongLastSequence => Delivery::Failed(reason),
    }
}
