//! Asking somebody who knows, before anything is looked up or replayed.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri};
use onceward_http::ProblemFormat;
use tokio::time::timeout;

use super::headers;
use super::loop_detection::LoopDetector;
use super::problem::Problem;
use super::proxy::ResponseBody;
use super::snapshot::ConfigSnapshot;
use crate::config::Authorization;
use crate::net::{Client, RequestBody};

const ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");

/// Sends what a request is, without its body, to an address that answers whether it may go
/// on: 2xx yes, 401 or 403 no, anything else 503.
#[derive(Clone)]
pub(crate) struct Authorizer {
    client: Client,
    url: Uri,
    timeout: Duration,
    loop_detector: Arc<LoopDetector>,
    format: Arc<ProblemFormat>,
}

impl Authorizer {
    pub(crate) fn new(client: Client, settings: &Authorization, snapshot: &ConfigSnapshot) -> Self {
        let (loop_detector, format) =
            (Arc::clone(&snapshot.loop_detector), Arc::clone(&snapshot.format));
        let (url, timeout) = (settings.url.0.clone(), settings.timeout.0);
        Self { client, url, timeout, loop_detector, format }
    }

    /// `Err` is the answer to the client.
    pub(crate) async fn check<B>(
        &self,
        request: &Request<B>,
    ) -> Result<(), Box<Response<ResponseBody>>> {
        let response = self.client.request(self.subrequest(request));
        let response = match timeout(self.timeout, response).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                tracing::warn!(%error, "authorization could not be asked");
                return Err(self.unavailable());
            }
            Err(_late) => {
                tracing::warn!("authorization did not answer in time");
                return Err(self.unavailable());
            }
        };
        match response.status() {
            status if status.is_success() => Ok(()),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                let mut refused = self.problem(status, "INVALID_CREDENTIALS", "It is not allowed");
                if let Some(how) = response.headers().get(WWW_AUTHENTICATE) {
                    refused.headers_mut().insert(WWW_AUTHENTICATE, how.clone());
                }
                Err(refused)
            }
            status => {
                tracing::warn!(%status, "authorization answered with neither yes nor no");
                Err(self.unavailable())
            }
        }
    }

    fn subrequest<B>(&self, request: &Request<B>) -> Request<RequestBody> {
        let mut subrequest = Request::new(RequestBody::whole(bytes::Bytes::new()));
        *subrequest.method_mut() = Method::GET;
        *subrequest.uri_mut() = self.url.clone();
        *subrequest.headers_mut() = request.headers().clone();
        headers::remove_hop_by_hop(subrequest.headers_mut());
        for name in [CONTENT_LENGTH, CONTENT_TYPE, http::header::HOST, http::header::EXPECT] {
            subrequest.headers_mut().remove(name);
        }
        self.loop_detector.mark(subrequest.headers_mut());
        let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        let headers = [
            (ORIGINAL_METHOD, request.method().as_str().to_owned()),
            // As it stands in HTTP/1.1; HTTP/2 puts the host before it.
            (ORIGINAL_URI, path.to_owned()),
        ];
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::try_from(value) {
                subrequest.headers_mut().insert(name, value);
            }
        }
        subrequest
    }
}

impl Authorizer {
    fn unavailable(&self) -> Box<Response<ResponseBody>> {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let title = "It cannot be told whether this is allowed";
        self.problem(status, "AUTHORIZATION_UNAVAILABLE", title)
    }

    fn problem(
        &self,
        status: StatusCode,
        code: &'static str,
        title: &str,
    ) -> Box<Response<ResponseBody>> {
        let (detail, retryable) = ("Nothing was executed.", status.is_server_error());
        let (same_key, operation) = (true, None);
        let problem = Problem { status, code, title, detail, retryable, same_key, operation };
        Box::new(problem.response(&self.format))
    }
}
