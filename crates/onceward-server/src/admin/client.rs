//! Requests to the admin API of a running gateway.

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
    AcceptLoss, FindRecord, InvalidateCache, InvalidateRecord, ListDecisions, ListRecords,
    PurgeRecords, ReleaseRecord, ResolveRecord, ShowRecord, VerifyRecords,
};
use super::views::{
    AcceptLossDone, CacheInvalidationDone, DecisionPage, PurgeDone, RecordDetails, RecordPage,
    StoreTotals, VerifiedPage,
};
use crate::api::{ApiProblem, RecordRef};
use crate::config::UpstreamUrl;
use crate::error_chain::error_chain;
use crate::net::{TlsError, connector};

/// Time limit for a response. A page of few matches in a large store takes longest.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(120);
/// Size limit of a response. A page with stored replies is largest.
const RESPONSE_BYTES_MAX: usize = 1 << 30;

/// Client of the admin API of a gateway.
pub(crate) struct AdminClient {
    base_url: String,
    token: HeaderValue,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminClientError {
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The token is no header value.
    #[error("the token has characters that are not allowed in an HTTP header")]
    Token,
}

impl AdminClient {
    /// A client of the admin API at a URL.
    pub(crate) fn new(url: &UpstreamUrl, token: &str) -> Result<Self, AdminClientError> {
        let mut token = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_not_shown| AdminClientError::Token)?;
        token.set_sensitive(true);
        let client = Client::builder(TokioExecutor::new()).build(connector(None, false)?);
        Ok(Self { base_url: url.to_string().trim_end_matches('/').to_owned(), token, client })
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        params: &(impl Serialize + Sync),
    ) -> Result<T, ApiProblem> {
        self.call(Method::GET, &format!("{path}{}", query(params)), Bytes::new()).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &(impl Serialize + Sync),
    ) -> Result<T, ApiProblem> {
        let body = serde_json::to_vec(request).unwrap_or_default();
        self.call(Method::POST, path, body.into()).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ApiProblem> {
        let uri: Uri =
            format!("{}{path}", self.base_url).parse().map_err(|why| self.unanswered(why))?;
        let mut request = Request::new(Full::new(body));
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        request.headers_mut().insert(AUTHORIZATION, self.token.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let (status, body) = timeout(RESPONSE_TIMEOUT, self.send(request))
            .await
            .map_err(|_late| self.unanswered(format!("no answer in {RESPONSE_TIMEOUT:?}")))??;
        if status == StatusCode::OK {
            return serde_json::from_slice(&body).map_err(|why| {
                self.unanswered(format!("the response is not one of this release: {why}"))
            });
        }
        Err(serde_json::from_slice(&body).unwrap_or_else(|_| {
            self.unanswered(format!(
                "it answers {status} without a problem body, so it is no admin API"
            ))
        }))
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), ApiProblem> {
        let response =
            self.client.request(request).await.map_err(|why| self.unanswered(error_chain(&why)))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
        let body = body.map_err(|why| self.unanswered(error_chain(&*why)))?;
        Ok((head.status, body.to_bytes()))
    }

    fn unanswered(&self, why: impl std::fmt::Display) -> ApiProblem {
        let title = "The gateway does not answer";
        ApiProblem::new(StatusCode::BAD_GATEWAY, "GATEWAY_UNANSWERED", title).detail(format!(
            "{}: {why}; check that it runs and that this is its [admin] address",
            self.base_url
        ))
    }
}

/// The fields that are set, as a query string.
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
    async fn records(&self, request: &ListRecords) -> Result<RecordPage, ApiProblem> {
        self.get("/v1/records", request).await
    }

    async fn record(
        &self,
        record_ref: &RecordRef,
        request: &ShowRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        self.get(&format!("/v1/records/{record_ref}"), request).await
    }

    async fn find(&self, request: &FindRecord) -> Result<RecordDetails, ApiProblem> {
        self.post("/v1/records/find", request).await
    }

    async fn resolve(
        &self,
        record_ref: &RecordRef,
        request: &ResolveRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        self.post(&format!("/v1/records/{record_ref}/resolve"), request).await
    }

    async fn release(
        &self,
        record_ref: &RecordRef,
        request: &ReleaseRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        self.post(&format!("/v1/records/{record_ref}/release"), request).await
    }

    async fn invalidate(
        &self,
        record_ref: &RecordRef,
        request: &InvalidateRecord,
    ) -> Result<RecordDetails, ApiProblem> {
        self.post(&format!("/v1/records/{record_ref}/invalidate"), request).await
    }

    async fn invalidate_cache(
        &self,
        request: &InvalidateCache,
    ) -> Result<CacheInvalidationDone, ApiProblem> {
        self.post("/v1/invalidate-cache", request).await
    }

    async fn purge(&self, request: &PurgeRecords) -> Result<PurgeDone, ApiProblem> {
        self.post("/v1/purge", request).await
    }

    async fn accept_loss(&self, request: &AcceptLoss) -> Result<AcceptLossDone, ApiProblem> {
        self.post("/v1/accept-loss", request).await
    }

    async fn decisions(&self, request: &ListDecisions) -> Result<DecisionPage, ApiProblem> {
        self.get("/v1/decisions", request).await
    }

    async fn stats(&self) -> Result<StoreTotals, ApiProblem> {
        self.get("/v1/stats", &()).await
    }

    async fn verify(&self, request: &VerifyRecords) -> Result<VerifiedPage, ApiProblem> {
        self.post("/v1/verify", request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_what_is_set_and_escapes_it() {
        let request =
            ListRecords { tenant: Some("a&b=ü".into()), limit: Some(7), ..ListRecords::default() };
        let query = query(&request);
        assert!(query.contains("tenant=a%26b%3D%C3%BC") && query.contains("limit=7"), "{query}");
        assert!(!query.contains("state"), "{query}");
        assert_eq!(super::query(&()), "");
    }
}
