//! Health check of the upstream.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::client::{Client, RequestBody};
use crate::config::Upstream;

const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Result of the last check; `None` is healthy, also without a configured path.
#[derive(Debug, Clone, Default)]
pub(crate) struct UpstreamHealth(Arc<Mutex<Option<String>>>);

impl UpstreamHealth {
    /// Returns why the upstream is unhealthy; `None` if it is healthy.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.0.lock().clone()
    }

    fn set(&self, trouble: Option<String>) {
        let mut last = self.0.lock();
        match &trouble {
            _ if *last == trouble => {}
            Some(trouble) => tracing::warn!(%trouble, "the upstream is unhealthy"),
            None => tracing::info!("the upstream is healthy again"),
        }
        *last = trouble;
    }

    /// Checks until the task is aborted.
    pub(crate) async fn watch(self, client: Client, upstream: Upstream) {
        let Some(path) = &upstream.health else { return };
        let base = upstream.url.to_string();
        let url = format!("{}{path}", base.trim_end_matches('/'));
        loop {
            let trouble = check(&client, &url, upstream.response_timeout.0).await.err();
            self.set(trouble);
            sleep(CHECK_EVERY).await;
        }
    }
}

async fn check(client: &Client, url: &str, limit: Duration) -> Result<(), String> {
    let request = Request::builder().method(Method::GET).uri(url);
    let request = request.body(RequestBody::whole(bytes::Bytes::new()));
    let request = request.map_err(|why| format!("{url}: {why}"))?;
    match timeout(limit, client.request(request)).await {
        Ok(Ok(response)) if response.status().is_success() => Ok(()),
        Ok(Ok(response)) => Err(format!("{url} answers {}", response.status())),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_late) => Err(format!("{url} does not answer within {limit:?}")),
    }
}
