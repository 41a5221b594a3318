//! Observing instead of guarding: a request passes as if nobody looked, and beside it the same
//! claim is made as if it were guarded, to count what would have become of it.
//!
//! Nothing here is waited for on the way of the request or its response.

use http::request::Parts;
use http::{Request, Response};
use http_body::Body as HttpBody;
use onceward_core::{
    Begin, BeginError, Difference, Disposition, Intent, Key, OnLapse, Outcome, Permit, Rejection,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::body::Body;
use crate::fingerprint::{Subject, decoded};
use crate::header::{key_in_body, key_in_headers};
use crate::layer::Guarded;
use crate::observe::{Differing, Event, Would};
use crate::overhear::{Ear, Heard, Place};
use crate::reply;
use crate::rules::KeyFrom;
use crate::speak;

/// The region of every scope here. No guarded request has one, so that no record that was
/// written here is ever taken for what a guarded request came to.
const REGION: &str = "onceward:shadow";

/// Lets a request pass, and observes it.
pub(crate) fn observe<B: HttpBody>(
    guarded: Guarded,
    request: Request<B>,
) -> (Request<Body<B>>, Ending) {
    let (head, body) = request.into_parts();
    let watcher = Watcher { guarded: guarded.clone() };
    let (key, place, runtime) = match watcher.prepare(&head) {
        Ok(prepared) => prepared,
        Err(would) => {
            watcher.tell(would);
            return (Request::from_parts(head, Body::passed(body)), Ending::of_nobody(guarded));
        }
    };
    let (ear, heard) =
        Ear::new(guarded.guard().rules.request_bytes_max, body.size_hint().exact(), place);
    let (ending, ended) = Ending::new(guarded);
    runtime.spawn(watcher.watch(head.clone(), key, heard, ended));
    (Request::from_parts(head, Body::overheard(body, ear)), ending)
}

/// How a handler ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It answered; guarded, this would be the word on its outcome.
    Answered { disposition: Disposition, failed: bool },
    /// It failed or panicked.
    Accident,
    /// Its client hung up. Guarded, it would have gone on.
    HungUp,
}

/// Tells how a handler ended.
pub(crate) struct Ending {
    guarded: Guarded,
    tell: Option<oneshot::Sender<End>>,
}

impl Ending {
    fn new(guarded: Guarded) -> (Self, oneshot::Receiver<End>) {
        let (tell, told) = oneshot::channel();
        (Self { guarded, tell: Some(tell) }, told)
    }

    /// Of a request that nobody watches.
    fn of_nobody(guarded: Guarded) -> Self {
        Self { guarded, tell: None }
    }

    pub(crate) fn with<R, E>(&mut self, answer: &Result<Response<R>, E>) {
        self.say(match answer {
            Ok(response) => {
                let status = response.status();
                let said = speak::overheard(response);
                End::Answered {
                    disposition: said
                        .unwrap_or_else(|| self.guarded.guard().rules.outcomes.disposition(status)),
                    failed: status.is_client_error() || status.is_server_error(),
                }
            }
            Err(_) => End::Accident,
        });
    }

    fn say(&mut self, end: End) {
        if let Some(tell) = self.tell.take() {
            let _nobody_watches_any_more = tell.send(end);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.say(if std::thread::panicking() { End::Accident } else { End::HungUp });
    }
}

/// Watches one request from beside.
struct Watcher {
    guarded: Guarded,
}

/// What was asked for.
struct Asked {
    intent: Intent,
    head: Parts,
    body: bytes::Bytes,
    /// Until the body is gone.
    _place: Place,
}

impl Watcher {
    /// What is needed to watch a request; else, what would become of it by its head alone.
    fn prepare(&self, head: &Parts) -> Result<(Option<Key>, Place, Handle), Would> {
        let rules = &self.guarded.guard().rules.key;
        let key = key_in_headers(&head.headers, rules).map_err(|_| Would::InvalidKey)?;
        if key.is_none() && matches!(rules.from, KeyFrom::Header(_)) {
            return Err(Would::MissingKey);
        }
        let place = self.guarded.shared.used.enter().ok_or(Would::Unseen)?;
        let runtime = Handle::try_current().map_err(|_| Would::Unseen)?;
        Ok((key, place, runtime))
    }

    async fn watch(
        self,
        head: Parts,
        key: Option<Key>,
        heard: oneshot::Receiver<Heard>,
        ended: oneshot::Receiver<End>,
    ) {
        let asked = match heard.await {
            Ok(Heard::Whole(body, place)) => self.asked(head, key, body, place),
            Ok(Heard::TooLarge) => Err(Would::Refused),
            Ok(Heard::Partly) | Err(_) => Err(Would::Unseen),
        };
        let asked = match asked {
            Ok(asked) => asked,
            Err(would) => return self.tell(would),
        };
        let would = match self.guarded.guard().engine.begin(&asked.intent).await {
            Ok(Begin::Execute(permit)) => {
                drop(asked); // a body is not held while its handler runs
                self.tell(Would::Execute);
                return self.settle(permit, ended.await.unwrap_or(End::HungUp)).await;
            }
            Ok(Begin::Replay(_)) => Would::Replay,
            Ok(Begin::Reject(Rejection::Running { .. })) => Would::Conflict,
            Ok(Begin::Reject(Rejection::Unknown { .. })) => Would::Unknown,
            Ok(Begin::Reject(Rejection::Expired)) => Would::Expired,
            Ok(Begin::Reject(
                Rejection::Mismatch { difference } | Rejection::ReferenceTaken { difference, .. },
            )) => Would::Mismatch(self.differing(&asked, difference)),
            Err(BeginError::Draining) => Would::Unseen,
            Err(_) => Would::StoreDown,
        };
        self.tell(would);
    }

    fn asked(
        &self,
        head: Parts,
        key: Option<Key>,
        body: bytes::Bytes,
        place: Place,
    ) -> Result<Asked, Would> {
        let scope = self.guarded.shared.owners.resolve(&head, self.guarded.operation());
        let scope = scope.map_err(|_| Would::Refused)?;
        let scope = scope.with_region(REGION).map_err(|_| Would::Refused)?;
        let key = match key {
            Some(key) => key,
            None => self.key_in_body(&head, &body)?,
        };
        let fingerprinter = &self.guarded.guard().fingerprinter;
        let fingerprint = fingerprinter.fingerprint(&self.subject(&head, &body), &scope);
        let (fingerprint, parts) = fingerprint.map_err(|_| Would::Refused)?;
        let mut intent = Intent::new(scope, key, fingerprint).with_parts(parts);
        if let Some(reference) = &self.guarded.guard().rules.reference {
            let body = decoded(&self.subject(&head, &body)).map_err(|_| Would::Refused)?;
            intent.reference = reference.find(&head.headers, &body).map_err(|_| Would::Refused)?;
        }
        Ok(Asked { intent, head, body, _place: place })
    }

    fn key_in_body(&self, head: &Parts, body: &bytes::Bytes) -> Result<Key, Would> {
        let body = decoded(&self.subject(head, body)).map_err(|_| Would::Refused)?;
        let key = key_in_body(&body, &self.guarded.guard().rules.key);
        key.map_err(|_| Would::InvalidKey)?.ok_or(Would::MissingKey)
    }

    fn subject<'a>(&'a self, head: &'a Parts, body: &'a bytes::Bytes) -> Subject<'a> {
        let (method, headers) = (&head.method, &head.headers);
        let bytes_max = self.guarded.guard().rules.request_bytes_max;
        Subject {
            method,
            operation: self.guarded.operation(),
            uri: &head.uri,
            headers,
            body,
            bytes_max,
        }
    }

    /// The parts go into the log, the kind of the first into the counts.
    fn differing(&self, asked: &Asked, difference: Difference) -> Differing {
        let subject = self.subject(&asked.head, &asked.body);
        let differs = self.guarded.guard().fingerprinter.explain(&subject, difference);
        tracing::debug!(
            operation = self.guarded.operation(),
            ?differs,
            "another request under its key"
        );
        Differing::first_of(&differs)
    }

    /// What a guarded request would leave behind, without anything of its response.
    async fn settle(&self, permit: Permit, end: End) {
        let nothing = || Outcome::omitted(reply::TAG, bytes::Bytes::new());
        let _if_it_does_not_land_nobody_is_harmed = match end {
            End::Answered { disposition: Disposition::Keep, failed: true } => {
                permit.fail(nothing()).await
            }
            End::Answered { disposition: Disposition::Keep, failed: false } | End::HungUp => {
                permit.complete(nothing()).await
            }
            End::Answered { disposition: Disposition::Release, .. } => permit.release().await,
            End::Answered { disposition: Disposition::Unknown, .. } => permit.unknown().await,
            End::Accident => match self.guarded.guard().engine.policy().on_lapse() {
                OnLapse::Takeover => return drop(permit),
                OnLapse::Unknown | OnLapse::Resolve => permit.unknown().await,
            },
        };
    }

    fn tell(&self, would: Would) {
        tracing::debug!(operation = self.guarded.operation(), would = would.name(), "observed");
        if let Some(observer) = &self.guarded.shared.observer {
            observer.observe(self.guarded.operation(), Event::Observed(would));
        }
    }
}
