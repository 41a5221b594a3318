//! Asking an address: 200 with what was answered, 404 if it did not happen.

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use onceward_core::{
    BoxError, Clock as _, Finding, Identity, Record, Resolver, SystemAmbient, Template, Verdict,
};
use tokio::runtime::Handle;

use super::ResolverError;
use super::answer::Answer;
use crate::config;
use crate::environment::environment;
use crate::gateway::{Client, RequestBody};

/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Asks an address.
pub(super) struct HttpResolver {
    client: Client,
    /// Connections live in the runtime that made them, whoever asks.
    runtime: Handle,
    /// Before a path at the upstream.
    upstream: String,
    settings: config::HttpResolver,
    token: Option<HeaderValue>,
    identity: Identity,
}

impl HttpResolver {
    pub(super) fn new(
        settings: &config::HttpResolver,
        upstream: &config::Upstream,
        identity: Identity,
    ) -> Result<Self, ResolverError> {
        let token = settings.token_env.as_deref().map(bearer).transpose()?;
        Ok(Self {
            client: Client::new(upstream)?,
            runtime: Handle::current(),
            upstream: upstream.url.to_string().trim_end_matches('/').to_owned(),
            settings: settings.clone(),
            token,
            identity,
        })
    }

    fn question(&self, record: &Record) -> Result<Option<Request<RequestBody>>, BoxError> {
        let Some(address) = address(&self.settings.url.0, record, &self.identity) else {
            return Ok(None);
        };
        let upstream = if address.starts_with('/') { &*self.upstream } else { "" };
        let mut question = Request::get(format!("{upstream}{address}"));
        if let Some(token) = &self.token {
            question = question.header(AUTHORIZATION, token);
        }
        Ok(Some(question.body(RequestBody::whole(Bytes::new()))?))
    }

    /// A 404 of an attempt that may still be under way is no evidence.
    fn is_late(&self, record: &Record) -> bool {
        SystemAmbient::new().now() >= record.updated_at + self.settings.grace.0
    }
}

#[async_trait]
impl Resolver for HttpResolver {
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError> {
        let Some(question) = self.question(record)? else {
            return Ok(Finding::new(Verdict::StillUnknown, "the record has no reference"));
        };
        let asking = ask(self.client.clone(), question);
        let response = self.runtime.spawn(asking).await??;
        let told = |what: &str| format!("{} answered {what}", self.settings.url.0);
        Ok(match response.status() {
            StatusCode::OK => {
                let answer: Answer = serde_json::from_slice(response.body())?;
                let told = told(&format!("200: the reply was {}", answer.status));
                Finding::new(Verdict::Happened(answer.outcome()?), told)
            }
            StatusCode::NOT_FOUND if self.is_late(record) => {
                Finding::new(Verdict::DidNotHappen, told("404"))
            }
            StatusCode::NOT_FOUND => Finding::new(Verdict::StillUnknown, told("404 too early")),
            status => {
                tracing::warn!(%status, operation = %record.operation, "the resolver's address");
                Finding::new(Verdict::StillUnknown, told(status.as_str()))
            }
        })
    }

    fn name(&self) -> &str {
        "http"
    }
}

/// Dropped with its caller's patience, not with its caller.
async fn ask(client: Client, question: Request<RequestBody>) -> Result<Response<Bytes>, BoxError> {
    let response = client.request(question).await.map_err(|failed| failed.to_string())?;
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

/// The address about a record; `None` if the record has not what it needs.
fn address(template: &Template, record: &Record, identity: &Identity) -> Option<String> {
    template.fill(|about| about.of(record, identity).map(|value| encoded(&value)))
}

/// A value that stays one part of an address, whatever is in it.
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
