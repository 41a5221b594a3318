//! WebSockets and other upgrades: once both sides have switched, bytes pass in both directions.

use http::Response;
use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use http::request::Parts;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::headers::{self, ConnectionSlot};

/// An upgrade that a client has requested.
pub(super) struct Tunnel {
    protocol: HeaderValue,
    client: OnUpgrade,
    /// A tunnel counts as a connection while it lasts.
    slot: Option<ConnectionSlot>,
}

impl Tunnel {
    /// Takes the upgrade out of a request. HTTP itself is not allowed as the protocol: its requests
    /// would bypass the gateway.
    pub(super) fn requested(head: &mut Parts, slot: Option<ConnectionSlot>) -> Option<Self> {
        let protocol = protocol(&head.headers).filter(|protocol| !speaks_http(protocol))?;
        let client = head.extensions.remove::<OnUpgrade>()?;
        Some(Self { protocol, client, slot })
    }

    /// Writes the upgrade into the headers of a request.
    pub(super) fn write_headers(&self, headers: &mut HeaderMap) {
        announce(headers, self.protocol.clone());
    }

    /// Joins the two sides when both have switched.
    pub(super) fn join(self, response: &mut Response<Incoming>) {
        headers::remove_hop_by_hop(response.headers_mut());
        announce(response.headers_mut(), self.protocol);
        let (client, slot) = (self.client, self.slot);
        let upstream = hyper::upgrade::on(response);
        tokio::spawn(async move {
            copy(client, upstream).await;
            drop(slot);
        });
    }
}

fn protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let names = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut names = names.flat_map(|names| names.split(','));
    let is_upgrade = names.any(|name| name.trim().eq_ignore_ascii_case("upgrade"));
    headers.get(UPGRADE).filter(|_| is_upgrade).cloned()
}

fn speaks_http(protocols: &HeaderValue) -> bool {
    let Ok(protocols) = protocols.to_str() else { return true };
    protocols.split(',').any(|protocol| {
        let name = protocol.trim().split('/').next().unwrap_or_default();
        ["h2c", "h2", "http", "tls"].iter().any(|http| name.eq_ignore_ascii_case(http))
    })
}

fn announce(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

async fn copy(client: OnUpgrade, upstream: OnUpgrade) {
    let (client, upstream) = match tokio::try_join!(client, upstream) {
        Ok(both) => both,
        Err(error) => {
            tracing::debug!(%error, "an upgrade failed");
            return;
        }
    };
    let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
    if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut upstream).await {
        tracing::debug!(%error, "a tunnel broke");
    }
}
