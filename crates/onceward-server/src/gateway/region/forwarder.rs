//! Sends requests to the gateways of other regions.

use http::{Request, Response};

use super::Elsewhere;
use crate::config::Others;
use crate::gateway::proxy::{Proxy, ResponseBody};
use crate::gateway::snapshot::ConfigSnapshot;
use crate::gateway::undelivered::Undelivered;
use crate::net::{Client, RequestBody, TlsError};
use crate::telemetry::RegionDecision;

/// The connections of one thread to the gateways of other regions; none unless requests are forwarded.
pub(crate) struct Forwarder {
    proxies: Vec<(Box<str>, Proxy)>,
}

impl Forwarder {
    pub(crate) fn new(snapshot: &ConfigSnapshot) -> Result<Self, TlsError> {
        let mut proxies = Vec::new();
        let region = snapshot.config.region.as_ref();
        for region in region.into_iter().filter(|region| region.others == Others::Forward) {
            for (name, url) in &region.gateways {
                let (settings, name) = (region.gateway(url), name.as_str());
                let client = Client::new(&settings)?;
                proxies.push((name.into(), Proxy::to_region(client, name, &settings, snapshot)));
            }
        }
        Ok(Self { proxies })
    }

    /// Sends a request once, and returns the response of its home region.
    pub(crate) async fn forward(
        &self,
        elsewhere: Elsewhere<'_>,
        request: Request<RequestBody>,
    ) -> Response<ResponseBody> {
        let Elsewhere { router, region, operation } = elsewhere;
        let proxy = self.proxies.iter().find(|(name, _)| *name == region.name);
        let exchanged = match proxy {
            Some((_, proxy)) => proxy.exchange(request).await,
            None => Err(Undelivered::NotSent),
        };
        if let Some(operation) = operation {
            router.report.decided(&region.name, decision(exchanged.as_ref().err()), &operation);
        }
        exchanged.unwrap_or_else(|undelivered| router.refusals.undelivered(region, &undelivered))
    }
}

fn decision(undelivered: Option<&Undelivered>) -> RegionDecision {
    match undelivered {
        Some(Undelivered::NotSent) => RegionDecision::Unreachable,
        Some(Undelivered::Cut | Undelivered::Late | Undelivered::SwitchedProtocols) => {
            RegionDecision::Unanswered
        }
        // The client's request failed, and not the region.
        Some(Undelivered::InvalidTarget(_) | Undelivered::TooSlow | Undelivered::Broken) | None => {
            RegionDecision::Forwarded
        }
    }
}
