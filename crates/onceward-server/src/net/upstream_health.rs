//! Whether the upstream answers, asked now and then.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::client::{Client, RequestBody};
use crate::config::Upstream;

const EVERY: Duration = Duration::from_secs(5);

/// What was seen last. Without a path to ask for, the upstream counts as well.
#[derive(Debug, Clone, Default)]
pub(crate) struct UpstreamHealth(Arc<Mutex<Option<String>>>);

impl UpstreamHealth {
    /// What is wrong with the upstream.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.0.lock().clone()
    }

    fn see(&self, trouble: Option<String>) {
        let mut seen = self.0.lock();
        match &trouble {
            _ if *seen == trouble => {}
            Some(trouble) => tracing::warn!(%trouble, "the upstream is not well"),
            None => tracing::info!("the upstream is well again"),
        }
        *seen = trouble;
    }

    /// Asks for ever.
    pub(crate) async fn watch(self, client: Client, upstream: Upstream) {
        let Some(path) = &upstream.health else { return };
        let address = upstream.url.to_string();
        let address = format!("{}{path}", address.trim_end_matches('/'));
        loop {
            let trouble = ask(&client, &address, upstream.response_timeout.0).await.err();
            self.see(trouble);
            sleep(EVERY).await;
        }
    }
}

async fn ask(client: &Client, address: &str, limit: Duration) -> Result<(), String> {
    let question = Request::builder().method(Method::GET).uri(address);
    let question = question.body(RequestBody::whole(bytes::Bytes::new()));
    let question = question.map_err(|why| format!("{address}: {why}"))?;
    match timeout(limit, client.request(question)).await {
        Ok(Ok(answer)) if answer.status().is_success() => Ok(()),
        Ok(Ok(answer)) => Err(format!("{address} answers {}", answer.status())),
        Ok(Err(failed)) => Err(failed.to_string()),
        Err(_late) => Err(format!("{address} does not answer")),
    }
}
