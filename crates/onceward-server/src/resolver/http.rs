//! Asks a URL, which answers with JSON that has an `outcome`.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CACHE_CONTROL, HeaderValue};
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use onceward_core::{
    BoxError, Clock as _, Finding, Identity, OperationId, Placeholder, Record, Resolver, Since,
    SystemAmbient, Verdict,
};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::answer::Resolution;
use super::{ProbeError, ResolverError};
use crate::config;
use crate::config::environment;
use crate::net::{Client, RequestBody};

/// Largest answer accepted.
const ANSWER_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Timeout of a probe: the default timeout of an answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks a URL.
pub(super) struct HttpResolver {
    client: Client,
    /// Runtime of the client's connections; callers may be on another one.
    runtime: Handle,
    /// URL of the upstream, prefixed to a configured path.
    upstream: String,
    settings: config::HttpResolver,
    token: Option<HeaderValue>,
    since: Since,
    identity: Identity,
}

impl HttpResolver {
    pub(super) fn new(
        settings: &config::HttpResolver,
        upstream: &config::Upstream,
        since: Since,
        identity: Identity,
    ) -> Result<Self, ResolverError> {
        let token = settings.token_env.as_deref().map(bearer).transpose()?;
        Ok(Self {
            client: Client::new(upstream)?,
            runtime: Handle::current(),
            upstream: upstream.url.to_string().trim_end_matches('/').to_owned(),
            settings: settings.clone(),
            token,
            since,
            identity,
        })
    }

    /// The URL for an operation; `None` if the operation lacks one of its values.
    fn url(&self, value: impl Fn(Placeholder) -> Option<String>) -> Option<String> {
        let path = self.settings.url.0.fill(|about| value(about).map(|it| encoded(&it)))?;
        let upstream = if path.starts_with('/') { &*self.upstream } else { "" };
        Some(format!("{upstream}{path}"))
    }

    async fn ask(&self, url: &str) -> Result<Response<Bytes>, BoxError> {
        let mut request = Request::get(url).header(CACHE_CONTROL, "no-cache");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(RequestBody::whole(Bytes::new()))?;
        self.runtime.spawn(send(self.client.clone(), request)).await?
    }

    /// Asks about an operation that does not exist. The answer must have a resolver's form and
    /// must not say that it happened.
    pub(super) async fn probe(&self) -> Result<(), ProbeError> {
        let operation = OperationId::of_no_record();
        let url = self.url(|about| Some(about.of_no_record(&operation))).unwrap_or_default();
        let text = |problem: &str| format!("resolver.http.url: GET {url}: {problem}");
        let response = match timeout(PROBE_TIMEOUT, self.ask(&url)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(ProbeError::Unreachable(text(&error.to_string()))),
            Err(_late) => {
                let late = format!("no answer within {PROBE_TIMEOUT:?}");
                return Err(ProbeError::Unreachable(text(&late)));
            }
        };
        match Resolution::read(&response) {
            Ok(Resolution::DidNotHappen | Resolution::Unknown) => Ok(()),
            Ok(Resolution::Happened(_)) => Err(ProbeError::Untrue(text(
                "\"happened\" about an operation that does not exist; expected \"did_not_happen\" \
                 or \"unknown\"",
            ))),
            Err(why) => Err(ProbeError::NoResolver(text(&why))),
        }
    }

    /// Returns whether the grace period has passed. Before, an attempt may still be under way.
    fn is_grace_over(&self, record: &Record) -> bool {
        SystemAmbient::new().now() >= record.updated_at + self.settings.grace.0
    }
}

#[async_trait]
impl Resolver for HttpResolver {
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError> {
        let Some(url) = self.url(|about| about.of(record, &self.identity)) else {
            return Ok(Finding::new(Verdict::StillUnknown, "the record has no reference"));
        };
        let response = self.ask(&url).await?;
        let template = &self.settings.url.0;
        let evidence = |answer: &str| format!("{template} answered {answer}");
        Ok(match Resolution::read(&response) {
            Ok(Resolution::Happened(answer)) => {
                let happened = evidence(&format!("\"happened\" with status {}", answer.status));
                Finding::new(Verdict::Happened(answer.outcome()?), happened)
            }
            Ok(Resolution::DidNotHappen) if self.is_grace_over(record) => {
                Finding::new(Verdict::DidNotHappen, evidence("\"did_not_happen\""))
            }
            Ok(Resolution::DidNotHappen) => {
                let early = evidence("\"did_not_happen\", within the grace period");
                Finding::new(Verdict::StillUnknown, early)
            }
            Ok(Resolution::Unknown) => Finding::new(Verdict::StillUnknown, evidence("\"unknown\"")),
            Err(why) => {
                let operation = record.operation;
                tracing::warn!(%operation, url = %template, "resolver.http.url answered {why}");
                Finding::new(Verdict::StillUnknown, evidence(&why))
            }
        })
    }

    fn name(&self) -> &str {
        "http"
    }

    fn address(&self) -> String {
        let template = self.settings.url.0.as_str();
        let upstream = if template.starts_with('/') { &*self.upstream } else { "" };
        format!("{upstream}{template}")
    }

    fn since(&self) -> Since {
        self.since
    }
}

/// Sends a request and reads the whole answer. Runs as a task, so dropping the caller does not
/// cancel it.
async fn send(client: Client, request: Request<RequestBody>) -> Result<Response<Bytes>, BoxError> {
    let response = client.request(request).await.map_err(|failed| failed.to_string())?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}

fn bearer(variable: &str) -> Result<HeaderValue, ResolverError> {
    let token = format!("Bearer {}", environment(variable)?.trim());
    let mut token = HeaderValue::try_from(token).map_err(|_| ResolverError::NotAToken)?;
    token.set_sensitive(true);
    Ok(token)
}

/// Percent-encodes a value, so that it stays one segment of a URL.
fn encoded(value: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => char::from(byte).into(),
        other => format!("%{other:02X}"),
    };
    value.bytes().map(byte).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_leave_its_place_in_an_address() {
        assert_eq!(encoded("RF18-5390_x~"), "RF18-5390_x~");
        assert_eq!(encoded("../admin?a=1#é"), "%2E%2E%2Fadmin%3Fa%3D1%23%C3%A9");
    }
}
