//! The shop's side of the provider's API: every way a call can end, told apart.

use std::time::Duration;

use onceward::DownstreamKey;
use reqwest::{Client, StatusCode};

use crate::provider::{Charge, NewCharge};

/// The provider, as seen from the shop.
#[derive(Debug, Clone)]
pub struct Charging {
    client: Client,
    base: String,
}

/// What came of asking for a charge.
#[derive(Debug)]
pub(crate) enum Charged {
    /// The money is there.
    Yes(Charge),
    /// The provider said no: final.
    Declined,
    /// There was no connection, so nothing was sent, so nothing happened.
    NeverSent,
    /// It was sent. Whether it was done, nobody can tell from here.
    AnswerLost,
}

impl Charging {
    /// The provider at this address.
    pub fn at(base: String) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(5))
            // A connection that was kept may be dead, and then it is not clear whether the
            // request was sent. A fresh one tells.
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(Self { client, base })
    }

    pub(crate) async fn charge(&self, key: &DownstreamKey, new: &NewCharge) -> Charged {
        let request = self.client.post(format!("{}/charges", self.base));
        let sent = request.header("idempotency-key", key.as_str()).json(new).send().await;
        match sent {
            Err(error) if error.is_connect() => Charged::NeverSent,
            Err(_) => Charged::AnswerLost,
            Ok(answer) if answer.status() == StatusCode::PAYMENT_REQUIRED => Charged::Declined,
            Ok(answer) if answer.status().is_success() => {
                answer.json().await.map_or(Charged::AnswerLost, Charged::Yes)
            }
            // A 500 says nothing about the money.
            Ok(_) => Charged::AnswerLost,
        }
    }

    /// The charge that was made under a key, if there is one.
    pub(crate) async fn find(&self, key: &DownstreamKey) -> Result<Option<Charge>, reqwest::Error> {
        let request = self.client.get(format!("{}/charges/{key}", self.base));
        let answer = request.send().await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        answer.error_for_status()?.json().await.map(Some)
    }
}
