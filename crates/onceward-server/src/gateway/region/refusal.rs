//! Refusals that name regions. Nothing was executed, except where one says otherwise.

use std::sync::Arc;

use http::header::{HeaderValue, LOCATION};
use http::uri::PathAndQuery;
use http::{Response, StatusCode, Uri};
use onceward_http::{Code, ProblemDetails, ProblemFormat};

use super::OtherRegion;
use crate::config::{HomeSource, Region, UpstreamUrl};
use crate::gateway::problem::{GatewayCode, respond};
use crate::gateway::proxy::ResponseBody;
use crate::gateway::request_target;
use crate::gateway::undelivered::Undelivered;

/// Builds the refusals of one configuration.
pub(super) struct Refusals {
    own: Box<str>,
    /// How a key names its region.
    how: String,
    /// The names of all regions.
    regions: String,
    format: Arc<ProblemFormat>,
}

/// Why a request that another gateway has forwarded does not belong here: the two configurations
/// disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Misrouted {
    /// This gateway has no region.
    NoRegions,
    /// It was forwarded to a gateway of another name.
    OtherName,
    /// This gateway reads another home from the key.
    OtherHome,
    /// This gateway does not protect such requests.
    NotProtected,
}

impl Misrouted {
    /// The contradiction, and the settings to compare.
    pub(super) const fn why(self) -> &'static str {
        match self {
            Self::NoRegions => {
                "A gateway forwarded it to its home region, and this gateway has no [region]."
            }
            Self::OtherName => {
                "A gateway forwarded it to another region than this gateway's: its \
                 region.gateways and this gateway's region.name differ."
            }
            Self::OtherHome => {
                "A gateway forwarded it to this region, and for this gateway its key belongs to \
                 another one: their region.of_key or region.unnamed differ."
            }
            Self::NotProtected => {
                "A gateway forwarded it as a protected request, and this gateway does not protect \
                 it: their operations differ."
            }
        }
    }
}

impl Refusals {
    pub(super) fn new(region: &Region, format: Arc<ProblemFormat>) -> Self {
        let how = match &region.of_key {
            HomeSource::PrefixBefore(separator) => {
                let (name, separator) = (region.name.as_str(), separator.as_str());
                format!("A key begins with its region, as in {name}{separator}8e03978e.")
            }
            HomeSource::Header(name) => {
                format!(
                    "The header {} names the region, once, and only a trusted peer sets it.",
                    name.0
                )
            }
        };
        let regions = region.names().collect::<Vec<_>>().join(", ");
        Self { own: region.name.as_str().into(), how, regions, format }
    }

    /// The key belongs to another region, and requests are not forwarded.
    pub(super) fn of_another_region(
        &self,
        region: &OtherRegion,
        uri: &Uri,
    ) -> Response<ResponseBody> {
        let OtherRegion { name, gateway } = region;
        let own = &self.own;
        let detail = format!(
            "Nothing was executed. Its home is the region {name}, and this gateway is of {own}: \
             send the same request with the same key there. A new key could run it a second time."
        );
        let code = GatewayCode::OtherRegion.details();
        let problem = ProblemDetails { region: Some(name), detail: &detail, ..code };
        let mut refused = respond(&problem, &self.format);
        if let Some(address) = address(gateway, uri) {
            refused.headers_mut().insert(LOCATION, address);
        }
        refused
    }

    /// The key names no region.
    pub(super) fn unnamed(&self) -> Response<ResponseBody> {
        let Self { how, regions, .. } = self;
        let detail = format!(
            "Nothing was executed here. {how} The regions are {regions}. If an attempt was made \
             before keys had regions, look its outcome up first: a new key could run it again."
        );
        let problem = ProblemDetails { detail: &detail, ..GatewayCode::NoRegion.details() };
        respond(&problem, &self.format)
    }

    /// The key names a region that is not configured.
    pub(super) fn unknown(&self) -> Response<ResponseBody> {
        let Self { how, regions, .. } = self;
        let detail = format!(
            "Nothing was executed here. {how} The regions are {regions}. If the region exists, add \
             it to region.gateways and send the same request with the same key again."
        );
        let problem = ProblemDetails { detail: &detail, ..GatewayCode::UnknownRegion.details() };
        respond(&problem, &self.format)
    }

    pub(super) fn misrouted(&self, why: Misrouted) -> Response<ResponseBody> {
        misrouted(why, &self.format)
    }

    /// A forwarded request got no response. Its home decides about the key, so the same request is
    /// always safe to send again.
    pub(super) fn undelivered(
        &self,
        region: &OtherRegion,
        undelivered: &Undelivered,
    ) -> Response<ResponseBody> {
        let (problem, what) = match undelivered {
            Undelivered::InvalidTarget(why) => {
                return respond(&request_target::invalid_target(why), &self.format);
            }
            Undelivered::NotSent => (
                GatewayCode::HomeUnreachable.details(),
                "Nothing was executed: the request was not sent.",
            ),
            Undelivered::TooSlow => (
                GatewayCode::TooSlow.details(),
                "The request body did not arrive in time, and its home region executes only whole \
                 requests.",
            ),
            Undelivered::Broken => (
                broken(),
                "The request body ended early, or its chunks are malformed, and its home region \
                 executes only whole requests.",
            ),
            Undelivered::Late => (
                ProblemDetails { status: StatusCode::GATEWAY_TIMEOUT, ..unanswered() },
                "The request was forwarded, and there was no response in time. It may have been \
                 executed.",
            ),
            Undelivered::Cut | Undelivered::SwitchedProtocols => (
                unanswered(),
                "The request was forwarded, and no complete response came back. It may have been \
                 executed.",
            ),
        };
        let detail = format!(
            "{what} Send the same request with the same key again: its home region, {}, runs it at \
             most once.",
            region.name
        );
        let problem = ProblemDetails {
            retryable: true,
            same_key: true,
            region: Some(&region.name),
            detail: &detail,
            ..problem
        };
        respond(&problem, &self.format)
    }
}

const fn unanswered() -> ProblemDetails<'static> {
    GatewayCode::HomeUnanswered.details()
}

const fn broken() -> ProblemDetails<'static> {
    let code = Code::InvalidBody;
    ProblemDetails::new(code.status(), code.as_str(), code.title(), "")
}

/// The address of a request at another gateway, without that gateway's credentials.
fn address(gateway: &UpstreamUrl, uri: &Uri) -> Option<HeaderValue> {
    let (scheme, authority) = (gateway.0.scheme_str()?, gateway.0.authority()?.as_str());
    let host = authority.rsplit('@').next()?;
    let base = gateway.0.path().trim_end_matches('/');
    let target = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    HeaderValue::try_from(format!("{scheme}://{host}{base}{target}")).ok()
}

/// The refusal of a request that another gateway has forwarded although it does not belong here.
pub(super) fn misrouted(why: Misrouted, format: &ProblemFormat) -> Response<ResponseBody> {
    let detail = format!(
        "{} Nothing was executed. The operator has to correct the configuration; keep the key.",
        why.why()
    );
    let problem = ProblemDetails { detail: &detail, ..GatewayCode::RegionMisrouted.details() };
    respond(&problem, format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_request_has_its_target_and_no_credentials() {
        let at = |gateway: &str, target: &str| {
            address(&gateway.parse().unwrap(), &target.parse().unwrap()).unwrap()
        };
        assert_eq!(at("https://us.example", "/a?b=1"), "https://us.example/a?b=1");
        assert_eq!(at("http://u:secret@us.example:81/base/", "/a"), "http://us.example:81/base/a");
    }
}
