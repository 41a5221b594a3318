//! Traces: continued from callers, passed on to upstreams, sent to a collector by OTLP.

use std::error::Error;
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

/// Timeout of one batch.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Export of traces to a collector.
pub(crate) struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts the export, on the current runtime.
    pub(crate) fn start(to: &UpstreamUrl, settings: &Telemetry) -> Result<Self, Box<dyn Error>> {
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

    /// Layer that exports the gateway's spans, and no others.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let gateway_spans =
            filter_fn(|span: &Metadata<'_>| span.is_span() && span.target() == TRACE_TARGET);
        let tracer = self.0.tracer("onceward");
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        layer
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(gateway_spans)
    }

    /// Sends the remaining spans and stops.
    pub(crate) async fn end(self) {
        let ended = tokio::task::spawn_blocking(move || self.0.shutdown()).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

const TRACE_STATE: &str = "tracestate";

/// The span of one request, in its caller's trace if there is one. Costs nothing without a
/// collector.
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
        let _never_fails_before_entering = span.set_parent(caller);
    }
    span
}

/// Adds the current trace to the headers of an outgoing request.
pub(crate) fn inject(headers: &mut HeaderMap) {
    let span = Span::current();
    if !span.is_none() && span.metadata().is_some_and(|it| it.target() == TRACE_TARGET) {
        TraceContextPropagator::new().inject_context(&span.context(), &mut HeaderInjector(headers));
        if headers.get(TRACE_STATE).is_some_and(HeaderValue::is_empty) {
            headers.remove(TRACE_STATE);
        }
    }
}

/// HTTP client of the exporter.
struct Collector {
    client: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// The exporter's own thread has no runtime.
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
        // A task of the runtime, because the timeout needs its clock.
        self.runtime.spawn(async { tokio::time::timeout(TIMEOUT, sending).await }).await??
    }
}
