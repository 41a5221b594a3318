//! External authorization (like nginx `auth_request`) before any store access.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri};
use onceward_http::{Code, ProblemDetails, ProblemFormat};
use tokio::time::timeout;

use super::headers;
use super::loop_detection::LoopDetector;
use super::problem::{GatewayCode, respond};
use super::proxy::ResponseBody;
use super::snapshot::ConfigSnapshot;
use crate::config::Authorization;
use crate::net::{Client, RequestBody};

const ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");

/// Sends method, URI and headers of each request to an authorization service. 2xx allows the
/// request, 401 and 403 refuse it, any other response gives 503.
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

    /// Checks a request. `Err` is the response to the client.
    pub(crate) async fn check<B>(
        &self,
        request: &Request<B>,
    ) -> Result<(), Box<Response<ResponseBody>>> {
        let response = self.client.request(self.subrequest(request));
        let response = match timeout(self.timeout, response).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the authorization service could not be reached");
                return Err(self.unavailable());
            }
            Err(_late) => {
                tracing::warn!("the authorization service did not answer in time");
                return Err(self.unavailable());
            }
        };
        match response.status() {
            status if status.is_success() => Ok(()),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                let mut refused = self.refused(status);
                if let Some(how) = response.headers().get(WWW_AUTHENTICATE) {
                    refused.headers_mut().insert(WWW_AUTHENTICATE, how.clone());
                }
                Err(refused)
            }
            status => {
                tracing::warn!(%status, "the authorization service gave neither 2xx nor 401 or 403");
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
            // Without the host, which an HTTP/2 URI includes.
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
        Box::new(respond(&GatewayCode::AuthorizationUnavailable.details(), &self.format))
    }

    /// The refusal of a request that the authorization service does not allow.
    fn refused(&self, status: StatusCode) -> Box<Response<ResponseBody>> {
        let (code, title) = (Code::InvalidCredentials.as_str(), "The request is not allowed");
        let problem = ProblemDetails {
            same_key: true,
            ..ProblemDetails::new(status, code, title, "Nothing was executed.")
        };
        Box::new(respond(&problem, &self.format))
    }
}
