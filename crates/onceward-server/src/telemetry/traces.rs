//! Traces: continued from callers, handed on to upstreams, sent to a collector by OTLP.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use onceward_http::TRACE_TARGET;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HeaderExtractor, HeaderInjector, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::{Metadata, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use crate::config::{Telemetry, UpstreamUrl};
use crate::net::{TlsError, connector};

/// How long a collector may take for one batch.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Traces on their way to a collector. What is not sent yet is sent when it ends.
pub(crate) struct Traces(SdkTracerProvider);

impl Traces {
    /// Begins to send. It needs the runtime that it is called in as long as it lives.
    pub(crate) fn start(to: &UpstreamUrl, settings: &Telemetry) -> Result<Self, Refused> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector::new()?)
            .with_endpoint(format!("{}/v1/traces", to.to_string().trim_end_matches('/')))
            .with_timeout(TIMEOUT)
            .build()?;
        let ratio = Sampler::TraceIdRatioBased(settings.traces_sampled.ratio());
        let resource = Resource::builder().with_service_name(settings.service_name.clone());
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::ParentBased(Box::new(ratio)))
            .with_resource(resource.build());
        Ok(Self(provider.build()))
    }

    /// Turns the gateway's spans, and no others, into traces.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let ours = filter_fn(|span: &Metadata<'_>| span.is_span() && span.target() == TRACE_TARGET);
        let tracer = self.0.tracer("onceward");
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        layer
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(ours)
    }

    /// Sends what is left.
    pub(crate) async fn end(self) {
        let ended = tokio::task::spawn_blocking(move || self.0.shutdown()).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

const TRACE_STATE: &str = "tracestate";

type Refused = Box<dyn std::error::Error>;

/// The span of one request, in the trace that its caller began; free where nobody collects.
pub(crate) fn of_request<B>(request: &Request<B>) -> Span {
    let span = tracing::info_span!(
        target: TRACE_TARGET,
        "gateway",
        otel.kind = "server",
        http.request.method = request.method().as_str(),
        http.response.status_code = tracing::field::Empty,
    );
    if !span.is_disabled() {
        let caller = TraceContextPropagator::new().extract(&HeaderExtractor(request.headers()));
        let _it_has_not_begun_yet = span.set_parent(caller);
    }
    span
}

/// Hands the trace on to whoever gets these headers.
pub(crate) fn hand_on(headers: &mut HeaderMap) {
    let span = Span::current();
    if !span.is_none() && span.metadata().is_some_and(|it| it.target() == TRACE_TARGET) {
        TraceContextPropagator::new().inject_context(&span.context(), &mut HeaderInjector(headers));
        if headers.get(TRACE_STATE).is_some_and(HeaderValue::is_empty) {
            headers.remove(TRACE_STATE);
        }
    }
}

/// Posts batches to a collector.
struct Collector {
    client: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// The exporter has a thread of its own, outside of any runtime.
    runtime: Handle,
}

impl Collector {
    fn new() -> Result<Self, TlsError> {
        let client = legacy::Client::builder(TokioExecutor::new()).build(connector(None, false)?);
        Ok(Self { client, runtime: Handle::current() })
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sending = async move {
            let response = client.request(request.map(Full::new)).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, 64 * 1024).collect().await?.to_bytes();
            Ok(Response::from_parts(head, body))
        };
        // Inside of a task, where there is a clock.
        self.runtime.spawn(async { tokio::time::timeout(TIMEOUT, sending).await }).await??
    }
}
