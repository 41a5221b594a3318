//! Home regions: each key belongs to one region, whose gateway alone executes its requests.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`RegionRouter`]: whether a request is decided here, in another region, or not at all |
//! | `home` | the home region of a key |
//! | `forwarder` | sends requests to the gateways of other regions |
//! | `refusal` | refusals that name regions |
//! | `report` | metrics and log lines |
//! | `status_path` | status pages, whose paths name their region |

mod forwarder;
mod home;
mod refusal;
mod report;
mod status_path;

use std::sync::Arc;

use http::{HeaderMap, Request, Response, Uri};
use onceward_http::{Mode, ProblemFormat, RouteMatch};

use super::headers::REGION;
use super::proxy::ResponseBody;
use crate::config::{Config, HomeSource, Others, Region, RegionName, Unnamed, UpstreamUrl};
use crate::telemetry::{Metrics, RegionDecision};
use home::Home;
use refusal::{Misrouted, Refusals};
use report::Report;
use status_path::StatusPaths;

pub(super) use forwarder::Forwarder;

/// Decides whether a request is decided in this region.
pub(crate) struct RegionRouter {
    own: Box<str>,
    others: Vec<OtherRegion>,
    of_key: HomeSource,
    unnamed: Unnamed,
    rule: Others,
    status_paths: StatusPaths,
    refusals: Refusals,
    report: Report,
}

/// A region that another gateway decides in.
struct OtherRegion {
    name: Box<str>,
    gateway: UpstreamUrl,
}

/// The place where a request is decided.
pub(super) enum Placement<'r> {
    /// This gateway.
    Here,
    /// The gateway of another region.
    Elsewhere(Elsewhere<'r>),
    /// Nowhere: nothing is executed.
    Refused(Box<Response<ResponseBody>>),
}

/// A request that belongs to another region.
pub(super) struct Elsewhere<'r> {
    router: &'r RegionRouter,
    region: &'r OtherRegion,
    /// The operation of a protected request; status pages have none.
    operation: Option<Box<str>>,
}

/// Returns where a request is decided. Without a router, everything is decided here, except what
/// another gateway has forwarded as a request of its region.
pub(super) fn place<'r, B>(
    router: Option<&'r RegionRouter>,
    route: &RouteMatch,
    request: &Request<B>,
    format: &ProblemFormat,
) -> Placement<'r> {
    match router {
        Some(router) => router.place(route, request),
        None if request.headers().contains_key(REGION) => {
            report::misrouted(Misrouted::NoRegions);
            Placement::refused(refusal::misrouted(Misrouted::NoRegions, format))
        }
        None => Placement::Here,
    }
}

impl Placement<'_> {
    fn refused(response: Response<ResponseBody>) -> Self {
        Self::Refused(Box::new(response))
    }
}

impl RegionRouter {
    pub(super) fn new(
        region: &Region,
        config: &Config,
        format: Arc<ProblemFormat>,
        metrics: &Metrics,
    ) -> Self {
        let other = |(name, gateway): (&RegionName, &UpstreamUrl)| OtherRegion {
            name: name.as_str().into(),
            gateway: gateway.clone(),
        };
        let others: Vec<_> = region.gateways.iter().map(other).collect();
        let own = region.name.as_str();
        Self {
            own: own.into(),
            of_key: region.of_key.clone(),
            unnamed: region.unnamed.clone(),
            rule: region.others,
            status_paths: StatusPaths::new(&config.operations_at, own),
            refusals: Refusals::new(region, format),
            report: Report::new(metrics, own, others.iter().map(|it| &*it.name)),
            others,
        }
    }

    /// Adds the own region to the path of a status page that names none, as the paths had none before
    /// the gateway had a region.
    pub(super) fn complete_status_path(&self, uri: &mut Uri) {
        self.status_paths.complete(uri);
    }

    fn place<B>(&self, route: &RouteMatch, request: &Request<B>) -> Placement<'_> {
        let forwarded = request.headers().contains_key(REGION);
        if forwarded && let Err(misrouted) = self.check_forwarded(route, request) {
            self.report.misrouted(misrouted);
            return Placement::refused(self.refusals.misrouted(misrouted));
        }
        let page = self.status_paths.region(request.uri().path());
        if let Some(region) = page.and_then(|name| self.other(name)) {
            return self.elsewhere(region, None, request.uri());
        }
        // The layer refuses a request whose key is missing or malformed.
        let (Some((operation, mode)), Some(home)) =
            (route.operation(), self.home(route, request.headers()))
        else {
            return Placement::Here;
        };
        match (mode, home) {
            (Mode::Shadow, home) => {
                self.report.decided(self.label(&home), RegionDecision::Shadow, operation);
                Placement::Here
            }
            (Mode::Enforce, Home::Own) => {
                self.report.decided(&self.own, RegionDecision::Here, operation);
                Placement::Here
            }
            (Mode::Enforce, Home::Other(region)) => {
                self.elsewhere(region, Some(operation), request.uri())
            }
            (Mode::Enforce, Home::Unnamed) => {
                self.report.decided(NO_REGION, RegionDecision::Unnamed, operation);
                Placement::refused(self.refusals.unnamed())
            }
            (Mode::Enforce, Home::Unknown) => {
                self.report.decided(NO_REGION, RegionDecision::Unknown, operation);
                Placement::refused(self.refusals.unknown())
            }
        }
    }

    /// Refuses a request that another gateway has forwarded although it does not belong here. It is
    /// never forwarded a second time.
    fn check_forwarded<B>(
        &self,
        route: &RouteMatch,
        request: &Request<B>,
    ) -> Result<(), Misrouted> {
        let headers = request.headers();
        if headers.get_all(REGION).iter().any(|named| named.as_bytes() != self.own.as_bytes()) {
            return Err(Misrouted::OtherName);
        }
        if let Some(Home::Other(_)) = self.home(route, headers) {
            return Err(Misrouted::OtherHome);
        }
        // Only protected requests and status pages are forwarded.
        match route.operation() {
            Some((_, Mode::Enforce)) => Ok(()),
            None if route.is_status_page() => Ok(()),
            Some((_, Mode::Shadow)) | None => Err(Misrouted::NotProtected),
        }
    }

    fn elsewhere<'r>(
        &'r self,
        region: &'r OtherRegion,
        operation: Option<&str>,
        uri: &Uri,
    ) -> Placement<'r> {
        match self.rule {
            Others::Forward => {
                let operation = operation.map(Into::into);
                Placement::Elsewhere(Elsewhere { router: self, region, operation })
            }
            Others::Refuse => {
                if let Some(operation) = operation {
                    self.report.decided(&region.name, RegionDecision::Refused, operation);
                }
                Placement::refused(self.refusals.of_another_region(region, uri))
            }
        }
    }

    fn home(&self, route: &RouteMatch, headers: &HeaderMap) -> Option<Home<'_>> {
        let key = route.key(headers)?;
        home::named(&self.of_key, &key, headers).map(|named| self.home_of(named))
    }

    fn other(&self, name: &str) -> Option<&OtherRegion> {
        self.others.iter().find(|it| &*it.name == name)
    }

    /// The label of a home region in metrics.
    fn label<'h>(&'h self, home: &Home<'h>) -> &'h str {
        match home {
            Home::Own => &self.own,
            Home::Other(region) => &region.name,
            Home::Unnamed | Home::Unknown => NO_REGION,
        }
    }
}

/// Label of requests whose key names no region, or an unknown one.
const NO_REGION: &str = "-";
