//! Client of the provider's API, which tells apart every way in which a call can end.

use std::time::Duration;

use onceward::DownstreamKey;
use reqwest::{Client, StatusCode};

use crate::provider::{Charge, NewCharge};

/// HTTP client of the payment provider.
#[derive(Debug, Clone)]
pub struct ProviderClient {
    client: Client,
    base_url: String,
}

/// Result of a request for a charge.
#[derive(Debug)]
pub(crate) enum ChargeResult {
    /// The provider has made this charge.
    Charged(Charge),
    /// The provider refused the card. This is final.
    Declined,
    /// The connection failed before anything was sent: nothing was charged.
    NotSent,
    /// The request was sent and no valid response came back: it may have been charged.
    ResponseLost,
}

impl ProviderClient {
    /// A client of the provider at this URL.
    pub fn new(base_url: String) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(5))
            // A failure on a reused connection does not tell whether the request was sent.
            // A failure to open a new one does.
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(Self { client, base_url })
    }

    pub(crate) async fn charge(&self, key: &DownstreamKey, new: &NewCharge) -> ChargeResult {
        let request = self.client.post(format!("{}/charges", self.base_url));
        let sent = request.header("idempotency-key", key.as_str()).json(new).send().await;
        match sent {
            Err(error) if error.is_connect() => ChargeResult::NotSent,
            Err(_) => ChargeResult::ResponseLost,
            Ok(response) if response.status() == StatusCode::PAYMENT_REQUIRED => {
                ChargeResult::Declined
            }
            Ok(response) if response.status().is_success() => {
                response.json().await.map_or(ChargeResult::ResponseLost, ChargeResult::Charged)
            }
            // A 500 does not tell whether the card was charged.
            Ok(_) => ChargeResult::ResponseLost,
        }
    }

    /// The charge that was made under a key, if there is one.
    pub(crate) async fn find(&self, key: &DownstreamKey) -> Result<Option<Charge>, reqwest::Error> {
        let request = self.client.get(format!("{}/charges/{key}", self.base_url));
        let response = request.send().await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        response.error_for_status()?.json().await.map(Some)
    }
}
