//! A sink that posts events to an HTTP endpoint.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | `HttpSink`: one endpoint, its requests and their results |
//! | `signature` | signatures by Standard Webhooks |
//! | `breaker` | the circuit breaker of an endpoint |
//! | `resolver` | addresses that the sink may connect to |

mod breaker;
mod resolver;
mod signature;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use onceward_core::Timestamp;
use rustls::ClientConfig;
use tokio::time::timeout;
use tower_service::Service as _;

use super::{DeliverOne, Delivery, Sink, SinkError, one_by_one};
use crate::event::StoredEvent;
use breaker::Breaker;
use resolver::CheckedResolver;

pub use signature::{InvalidSecret, WebhookSecret};

/// Bytes of a response that are read, so that its connection can be used again.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// Posts each event to one endpoint, signed by Standard Webhooks.
///
/// A request has the event's id as `webhook-id` and `Idempotency-Key`, its parts as the headers of
/// CloudEvents (`ce-id`, `ce-type`, `ce-source`, `ce-subject`, `ce-time`), and its payload as it was
/// published. Redirects are not followed.
///
/// - 2xx: delivered.
/// - 429 and 503, and no connection: the endpoint is down; no attempt counts.
/// - 413: the event is refused for good. Every other status, and no answer in time: a failed attempt.
///
/// An endpoint that fails for several aggregates in a row counts as down until one event succeeds.
pub struct HttpSink {
    client: Client<HttpsConnector<HttpConnector<CheckedResolver>>, Full<Bytes>>,
    connector: HttpConnector<CheckedResolver>,
    settings: HttpSinkSettings,
    name: String,
    breaker: Breaker,
}

/// Settings of an [`HttpSink`].
#[derive(Clone)]
pub struct HttpSinkSettings {
    /// The endpoint: `https://…`, or `http://…`.
    pub url: Uri,
    /// Secrets of the signature. Each of them signs, so that an endpoint may know the old or the new
    /// one during a rotation. None: requests are not signed.
    pub secrets: Vec<WebhookSecret>,
    /// Further headers of every request, for example `Authorization`.
    pub headers: HeaderMap,
    /// The `ce-source` of events: a URI that names the publisher.
    pub source: String,
    /// Longest time for one request, the response included.
    pub timeout: Duration,
    /// Longest time for connecting.
    pub connect_timeout: Duration,
    /// Most requests at the same time, each of another aggregate.
    pub requests_max: usize,
    /// Failures in a row, of at least two aggregates, after which the endpoint counts as down.
    pub failures_max: u32,
    /// Whether names may lead to private, loopback or link-local addresses. An address in the URL
    /// itself, and `localhost`, always may.
    pub private_addresses: bool,
    /// Certificates to trust. `None`: those of the system.
    pub tls: Option<Arc<ClientConfig>>,
}

/// Why an [`HttpSink`] cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidHttpSink {
    /// The URL is not one of an endpoint.
    #[error("the sink's URL {url:?} must be http://HOST… or https://HOST…")]
    Url {
        /// The URL, without its query.
        url: String,
    },
    /// The source is empty or not a header's value.
    #[error("the source {source_uri:?} must be a URI of visible ASCII characters")]
    Source {
        /// The source.
        source_uri: String,
    },
    /// TLS cannot be used.
    #[error("TLS cannot be used")]
    Tls(#[source] rustls::Error),
}

impl fmt::Debug for HttpSinkSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers and the URL's query may be secret.
        f.debug_struct("HttpSinkSettings").field("host", &self.url.host()).finish_non_exhaustive()
    }
}

impl HttpSinkSettings {
    /// The default settings for an endpoint.
    pub fn new(url: Uri) -> Self {
        Self {
            url,
            secrets: Vec::new(),
            headers: HeaderMap::new(),
            source: "/onceward".to_owned(),
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(3),
            requests_max: 16,
            failures_max: 5,
            private_addresses: false,
            tls: None,
        }
    }
}

impl HttpSink {
    /// A sink for one endpoint.
    pub fn new(settings: HttpSinkSettings) -> Result<Self, InvalidHttpSink> {
        let url = &settings.url;
        let shown = || url.to_string().split('?').next().unwrap_or_default().to_owned();
        let host = url.host().filter(|host| !host.is_empty());
        let (Some("http" | "https"), Some(host)) = (url.scheme_str(), host) else {
            return Err(InvalidHttpSink::Url { url: shown() });
        };
        if settings.source.is_empty() || HeaderValue::from_str(&settings.source).is_err() {
            return Err(InvalidHttpSink::Source { source_uri: settings.source });
        }
        let resolver = CheckedResolver::new(host, settings.private_addresses);
        let mut http = HttpConnector::new_with_resolver(resolver);
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(settings.connect_timeout));
        let tls = match &settings.tls {
            Some(tls) => ClientConfig::clone(tls),
            None => system_tls().map_err(InvalidHttpSink::Tls)?,
        };
        let connector = http.clone();
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(https.enable_http1().wrap_connector(http));
        let (name, breaker) = (format!("http {}", shown()), Breaker::new(settings.failures_max));
        Ok(Self { client, connector, settings, name, breaker })
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Delivery {
        match self.client.request(request).await {
            Ok(response) => {
                let status = response.status();
                drain(response.into_body()).await;
                by_status(status)
            }
            Err(error) if error.is_connect() => Delivery::Unavailable(SinkError::of(&error)),
            // The connection broke. An event may do that to its endpoint, and so may its end.
            Err(error) if self.is_up().await => Delivery::Failed(SinkError::of(&error)),
            Err(error) => Delivery::Unavailable(SinkError::of(&error)),
        }
    }

    /// True if the endpoint accepts connections.
    async fn is_up(&self) -> bool {
        let mut connector = self.connector.clone();
        let ready = std::future::poll_fn(|context| connector.poll_ready(context)).await;
        ready.is_ok() && connector.call(self.settings.url.clone()).await.is_ok()
    }

    fn request(&self, event: &StoredEvent) -> Result<Request<Full<Bytes>>, SinkError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (id, timestamp) = (event.id.to_string(), now.as_secs().to_string());
        let mut request = Request::new(Full::new(event.payload.0.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.settings.url.clone();
        let headers = request.headers_mut();
        for (name, value) in &event.headers {
            headers.insert(custom_header(name)?, header_value(name, value)?);
        }
        let time = rfc3339(event.created_at);
        let parts = [
            ("ce-specversion", "1.0"),
            ("ce-id", &id),
            ("ce-type", &event.event_type),
            ("ce-source", &self.settings.source),
            ("ce-subject", event.aggregate.id()),
            ("ce-aggregatetype", event.aggregate.kind()),
            ("ce-time", &time),
            ("webhook-id", &id),
            ("webhook-timestamp", &timestamp),
            ("idempotency-key", &id),
        ];
        for (name, value) in parts {
            headers.insert(HeaderName::from_static(name), ce_value(value));
        }
        headers.insert(CONTENT_TYPE, header_value("content type", &event.content_type)?);
        if let Some(operation) = &event.operation {
            let operation = ce_value(&operation.to_string());
            headers.insert(HeaderName::from_static("onceward-operation"), operation);
        }
        if !self.settings.secrets.is_empty() {
            let secrets = &self.settings.secrets;
            let signature = signature::sign(secrets, &id, &timestamp, &event.payload);
            headers.insert(HeaderName::from_static("webhook-signature"), ce_value(&signature));
        }
        for (name, value) in &self.settings.headers {
            headers.insert(name.clone(), value.clone());
        }
        Ok(request)
    }
}

impl fmt::Debug for HttpSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSink").field("name", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl DeliverOne for HttpSink {
    async fn deliver_one(&self, event: &StoredEvent) -> Delivery {
        if let Some(error) = self.breaker.refusal() {
            return Delivery::Unavailable(error);
        }
        let request = match self.request(event) {
            Ok(request) => request,
            Err(error) => return Delivery::Rejected(error),
        };
        let result = match timeout(self.settings.timeout, self.send(request)).await {
            Ok(result) => result,
            Err(_) => failed(format!("no answer within {:?}", self.settings.timeout)),
        };
        self.breaker.note(&event.aggregate, &result);
        result
    }
}

#[async_trait]
impl Sink for HttpSink {
    async fn deliver(&self, events: &[Arc<StoredEvent>]) -> Vec<Delivery> {
        self.breaker.begin_call();
        one_by_one(self, events, self.settings.requests_max).await
    }

    fn name(&self) -> &str {
        &self.name
    }
}

fn by_status(status: StatusCode) -> Delivery {
    let answered = || format!("the endpoint answered {status}");
    match status.as_u16() {
        200..=299 => Delivery::Delivered,
        413 => Delivery::Rejected(SinkError(answered())),
        429 | 503 => Delivery::Unavailable(SinkError(answered())),
        300..=399 => failed(format!("{}; redirects are not followed", answered())),
        _ => failed(answered()),
    }
}

fn failed(reason: String) -> Delivery {
    Delivery::Failed(SinkError(reason))
}

/// Reads a response to its end, within reason.
async fn drain(body: Incoming) {
    let _too_long_closes_the_connection = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
}

/// The name of an event's own header. Headers of the request itself are not for events.
fn custom_header(name: &str) -> Result<HeaderName, SinkError> {
    const RESERVED: [&str; 12] = [
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "idempotency-key",
        "proxy-authorization",
        "te",
        "transfer-encoding",
        "upgrade",
    ];
    let refused = || SinkError(format!("the event's header {name:?} cannot be sent over HTTP"));
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
    let text = header.as_str();
    let reserved =
        RESERVED.contains(&text) || text.starts_with("webhook-") || text.starts_with("ce-");
    if reserved { Err(refused()) } else { Ok(header) }
}

fn header_value(name: &str, value: &str) -> Result<HeaderValue, SinkError> {
    HeaderValue::from_str(value)
        .map_err(|_| SinkError(format!("the value of {name:?} cannot be sent over HTTP")))
}

/// A value as the HTTP binding of CloudEvents has it: blanks, quotes, percent signs and everything
/// that is not visible ASCII are percent-encoded.
fn ce_value(value: &str) -> HeaderValue {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'"' && byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    HeaderValue::from_str(&encoded).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn rfc3339(at: Timestamp) -> String {
    let since = Duration::from_millis(at.as_millis());
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + since).to_string()
}

fn system_tls() -> Result<ClientConfig, rustls::Error> {
    let mut roots = rustls::RootCertStore::empty();
    // Some of the system's certificates may be broken; the others are used.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(config?.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_cloudevents_are_percent_encoded() {
        assert_eq!(ce_value("Ä 1%"), "%C3%84%201%25");
        assert_eq!(ce_value("order/42"), "order/42");
    }

    #[test]
    fn an_event_cannot_set_headers_of_the_request() {
        for name in ["Host", "authorization", "webhook-id", "ce-id", "a b", "Idempotency-Key"] {
            assert!(custom_header(name).is_err(), "{name}");
        }
        assert!(custom_header("tenant").is_ok());
    }

    #[test]
    fn a_url_must_be_one_of_an_endpoint() {
        for url in ["/events", "ftp://host/", "file:///etc/passwd"] {
            let Ok(url) = url.parse() else { continue };
            let sink = HttpSink::new(HttpSinkSettings::new(url));
            assert!(matches!(sink, Err(InvalidHttpSink::Url { .. })));
        }
    }
}
