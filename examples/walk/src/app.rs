//! Serves an example's router in process.

use std::net::Ipv4Addr;

use axum::Router;
use tokio::net::TcpListener;

use crate::response::Response;

/// A running service and an HTTP client for it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct App {
    base: String,
    client: reqwest::Client,
}

impl App {
    /// Serves a router on a free port until the test ends.
    pub async fn start(router: Router) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self::at(&address.to_string())
    }

    /// A client of a service that is already running.
    pub fn at(address: &str) -> Self {
        let client = reqwest::Client::builder().no_proxy().build().expect("no TLS to set up");
        Self { base: format!("http://{address}"), client }
    }

    /// Sends POST with a JSON body.
    pub async fn post(&self, path: &str, headers: &[(&str, &str)], json: &str) -> Response {
        let request = self.client.post(format!("{}{path}", self.base)).body(json.to_owned());
        self.send(request.header("content-type", "application/json"), headers).await
    }

    /// Sends GET.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        self.send(self.client.get(format!("{}{path}", self.base)), headers).await
    }

    async fn send(&self, request: reqwest::RequestBuilder, headers: &[(&str, &str)]) -> Response {
        let add = |request: reqwest::RequestBuilder, header: &(&str, &str)| {
            request.header(header.0, header.1)
        };
        let request = headers.iter().fold(request, add);
        Response::from_reqwest(request.send().await.expect("a response of the service")).await
    }
}
