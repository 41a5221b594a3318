//! The desk of a running gateway, over its admin API.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::AdminApi;
use super::requests::{
    AcceptLoss, ListDecisions, ListRecords, PurgeRecords, ReleaseRecord, ResolveRecord, ShowRecord,
    VerifyRecords,
};
use super::views::{
    AcceptLossDone, DecisionPage, PurgeDone, RecordDetails, RecordPage, StoreTotals, VerifiedPage,
};
use crate::api::{ApiProblem, RecordRef};
use crate::config::UpstreamUrl;
use crate::error_chain::error_chain;
use crate::net::{TlsError, connector};

/// Longest time for an answer: a page of a large store that hardly anything matches.
const PATIENCE: Duration = Duration::from_secs(120);
/// Largest answer: a page of replies.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// Asks the admin API of a gateway.
pub(crate) struct AdminClient {
    at: String,
    token: HeaderValue,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// Why a gateway cannot be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminClientError {
    /// Its certificate could not be checked.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No header can hold the token.
    #[error("the token has characters that no header can hold")]
    Token,
}

impl AdminClient {
    /// The desk at an address, by a token.
    pub(crate) fn new(at: &UpstreamUrl, token: &str) -> Result<Self, AdminClientError> {
        let mut token = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_not_shown| AdminClientError::Token)?;
        token.set_sensitive(true);
        let client = Client::builder(TokioExecutor::new()).build(connector(None, false)?);
        Ok(Self { at: at.to_string().trim_end_matches('/').to_owned(), token, client })
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        params: &(impl Serialize + Sync),
    ) -> Result<T, ApiProblem> {
        self.ask(Method::GET, &format!("{path}{}", query(params)), Bytes::new()).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        order: &(impl Serialize + Sync),
    ) -> Result<T, ApiProblem> {
        let order = serde_json::to_vec(order).unwrap_or_default();
        self.ask(Method::POST, path, order.into()).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ApiProblem> {
        let uri: Uri = format!("{}{path}", self.at).parse().map_err(|why| self.lost(why))?;
        let mut request = Request::new(Full::new(body));
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        request.headers_mut().insert(AUTHORIZATION, self.token.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let (status, body) = timeout(PATIENCE, self.send(request))
            .await
            .map_err(|_late| self.lost(format!("no answer in {PATIENCE:?}")))??;
        if status == StatusCode::OK {
            return serde_json::from_slice(&body)
                .map_err(|why| self.lost(format!("an answer of another release: {why}")));
        }
        Err(serde_json::from_slice(&body)
            .unwrap_or_else(|_| self.lost(format!("it answers {status}, as no admin API does"))))
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), ApiProblem> {
        let response =
            self.client.request(request).await.map_err(|why| self.lost(error_chain(&why)))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|why| self.lost(error_chain(&*why)))?;
        Ok((head.status, body.to_bytes()))
    }

    fn lost(&self, why: impl std::fmt::Display) -> ApiProblem {
        let title = "The gateway does not answer";
        ApiProblem::new(StatusCode::BAD_GATEWAY, "GATEWAY_UNANSWERED", title).detail(format!(
            "{}: {why}; see that it runs, and that its [admin] address is this one",
            self.at
        ))
    }
}

/// The fields of an order that are set, as a query.
fn query(params: &impl Serialize) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(params) else {
        return String::new();
    };
    let set = fields.iter().filter(|(_, value)| !value.is_null());
    let pairs: Vec<_> = set.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn escaped(value: &serde_json::Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string()
}

#[async_trait]
impl AdminApi for AdminClient {
    async fn records(&self, wanted: &ListRecords) -> Result<RecordPage, ApiProblem> {
        self.get("/v1/records", wanted).await
    }

    async fn record(
        &self,
        subject: &RecordRef,
        look: &ShowRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        self.get(&format!("/v1/records/{subject}"), look).await
    }

    async fn resolve(
        &self,
        subject: &RecordRef,
        order: &ResolveRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        self.post(&format!("/v1/records/{subject}/resolve"), order).await
    }

    async fn release(
        &self,
        subject: &RecordRef,
        order: &ReleaseRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        self.post(&format!("/v1/records/{subject}/release"), order).await
    }

    async fn purge(&self, order: &PurgeRecords) -> Result<PurgeDone, ApiProblem> {
        self.post("/v1/purge", order).await
    }

    async fn accept_loss(&self, order: &AcceptLoss) -> Result<AcceptLossDone, ApiProblem> {
        self.post("/v1/accept-loss", order).await
    }

    async fn decisions(&self, trail: &ListDecisions) -> Result<DecisionPage, ApiProblem> {
        self.get("/v1/decisions", trail).await
    }

    async fn stats(&self) -> Result<StoreTotals, ApiProblem> {
        self.get("/v1/stats", &()).await
    }

    async fn verify(&self, order: &VerifyRecords) -> Result<VerifiedPage, ApiProblem> {
        self.post("/v1/verify", order).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_what_is_set_and_escapes_it() {
        let wanted =
            ListRecords { tenant: Some("a&b=ü".into()), limit: Some(7), ..ListRecords::default() };
        let query = query(&wanted);
        assert!(query.contains("tenant=a%26b%3D%C3%BC") && query.contains("limit=7"), "{query}");
        assert!(!query.contains("state"), "{query}");
        assert_eq!(super::query(&()), "");
    }
}
