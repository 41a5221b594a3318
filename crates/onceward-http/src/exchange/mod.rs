//! One protected request, from its head to its response. [`Exchange::answer`] is the protocol.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the walk: key, scope, body, intent; then execute, replay or refuse |
//! | `settle` | the end of an execution: storing or settling the handler's result |
//! | `refusal` | the engine's decisions as responses |
//! | `state` | the state of a layer, and the operation that a request belongs to |
//! | `permit_kind` | the right to run: a permit with a lease, or a transaction |
//! | `transaction` | handlers in a PostgreSQL transaction (feature `postgres`) |
//! | `background` | finishing the work of clients that have disconnected |
//! | `admission` | admission of requests and of new keys |
//! | `replay_cache` | exact repetitions of replayed requests |
//! | `shadow` | requests that pass while their claims are only observed |
//! | `status_page` | status pages of operations |

mod admission;
mod background;
mod permit_kind;
mod refusal;
mod replay_cache;
mod settle;
mod shadow;
mod state;
mod status_page;
#[cfg(feature = "postgres")]
mod transaction;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body as HttpBody;
use onceward_core::log::LogSubject;
use onceward_core::{
    BeginError, BoxError, Identity, Intent, Key, Policy, Rejection, Replay, ReplayCheck, Scope,
    StoreErrorKind,
};
use tower_service::Service;

use crate::body::{Accept, Body, Buffered, Whole, buffer};
use crate::observe::{Event, LoggedIntent, Trace, log};
use crate::problem::{Code, Problem};
use crate::request::{RawFields, RequestView, key_in_body, key_in_headers};
use crate::response;
use crate::rules::{KeyFrom, Rules};
use admission::Usage;
use permit_kind::Begun;
use refusal::is_timeout;
use replay_cache::{CachedRequest, RequestDigest};
use settle::handle;

pub use admission::{Admission, OverQuota};
pub(crate) use background::{FinishInBackground, MustFinish};
pub(crate) use permit_kind::PermitKind;
pub(crate) use replay_cache::ReplayCache;
pub(crate) use shadow::{HandlerReport, shadow};
pub(crate) use state::{
    LayerState, MatchedOperation, NamedOperation, OperationIndex, ProtectedOperation,
};
pub(crate) use status_page::StatusRequest;
#[cfg(feature = "postgres")]
pub use transaction::{PgClient, PgTransaction, TransactionEnded};

/// One protected request, from its head to its response.
pub(crate) struct Exchange {
    pub(crate) operation: MatchedOperation,
    pub(crate) trace: Trace,
}

/// A buffered request, before the claim.
enum Prepared {
    /// An exact repetition of a replayed request.
    Replay(Replay),
    /// An intent for the engine.
    Intent(Intent),
    /// A request without a key, which the rules let pass.
    WithoutKey,
}

impl Exchange {
    /// Answers a request: executes it, replays it, or refuses it.
    ///
    /// A function that returns a future, like all functions here with large arguments: an
    /// `async fn` would keep its arguments twice.
    pub(crate) fn answer<S, B, R>(
        self,
        request: Request<B>,
        inner: S,
        must_finish: MustFinish,
    ) -> impl Future<Output = Result<Response<Body<R>>, S::Error>>
    where
        S: Service<Request<Body<B>>, Response = Response<R>>,
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
        R: HttpBody<Data = Bytes> + Unpin,
        R::Error: Into<BoxError>,
    {
        let (mut head, body) = request.into_parts();
        async move {
            let prepared = async {
                let key = self.key_in_head(&head)?;
                let scope = self.operation.scope(&head)?;
                if let Some(key) = &key {
                    self.admit_request(&scope, key)?;
                }
                let buffered = buffer(body, self.rules().request_max_bytes).await;
                let body = self.whole(buffered)?;
                let prepared =
                    self.prepare(&self.operation.view(&head, &body.bytes), scope, key)?;
                self.admit_new_key(&prepared).await?;
                Ok((body, prepared))
            };
            let (body, intent) = match prepared.await {
                Ok((body, Prepared::Intent(intent))) => (body, intent),
                Ok((_, Prepared::Replay(replay))) => return Ok(self.replay(replay, &head).await),
                Ok((body, Prepared::WithoutKey)) => return pass(inner, head, body).await,
                Err(problem) => return Ok(self.refuse(problem)),
            };
            let begun = self.protected().begin(&intent).await;
            self.report_begun(&begun);
            match begun {
                Ok(Begun::Execute(permit)) => {
                    must_finish.set(); // An execution is settled even if its client disconnects.
                    let usage = Usage::granted(self.state(), &intent);
                    let logged = LoggedIntent::of(&intent);
                    permit.add_extensions(intent, &mut head.extensions);
                    let request = Request::from_parts(head, body.into_body());
                    match self.to_store(handle(inner, request).await) {
                        Ok(response) => Ok(self.store(permit, response, usage, logged).await),
                        Err(not_stored) => self.settle(permit, not_stored, logged).await,
                    }
                }
                Ok(Begun::Replay(replay)) => {
                    self.remember(&intent, &self.operation.view(&head, &body.bytes));
                    self.log_replay(&intent, &replay);
                    Ok(self.replay(replay, &head).await)
                }
                Ok(Begun::Reject(rejection)) => {
                    Ok(self.reject(rejection, &intent, &self.operation.view(&head, &body.bytes)))
                }
                Err(BeginError::Unavailable(error)) if self.runs_unprotected(&error) => {
                    pass(inner, head, body).await
                }
                Err(error) => Ok(self.unavailable(&error)),
            }
        }
    }

    fn state(&self) -> &LayerState {
        &self.operation.state
    }

    fn protected(&self) -> &ProtectedOperation {
        self.operation.protected()
    }

    fn rules(&self) -> &Rules {
        &self.protected().rules
    }

    fn policy(&self) -> &Policy {
        self.protected().engine.policy()
    }

    /// Returns the key in a request's head; `None` if it is in the body.
    fn key_in_head(&self, head: &Parts) -> Result<Option<Key>, Problem> {
        let rules = &self.rules().key;
        match (key_in_headers(&head.headers, rules)?, &rules.from) {
            (None, KeyFrom::Header(_)) => Err(Problem::new(Code::MissingKey)),
            (key, _) => Ok(key),
        }
    }

    /// Returns the key in a request's body; `None` lets the request pass.
    fn key_in_body(&self, request: &RequestView<'_>) -> Result<Option<Key>, Problem> {
        let rules = self.rules();
        let key = key_in_body(&request.decoded_body()?, &rules.key)?;
        if key.is_none() && rules.required {
            return Err(Problem::new(Code::MissingKey));
        }
        Ok(key)
    }

    /// Returns a request's whole body.
    fn whole<B>(&self, buffered: Buffered<B>) -> Result<Whole, Problem> {
        match buffered {
            Buffered::Whole(whole) => Ok(whole),
            Buffered::TooLarge { .. } => {
                Err(Problem::request_too_large(self.rules().request_max_bytes))
            }
            Buffered::Broken(error) if is_timeout(&*error) => {
                Err(Problem::new(Code::InvalidBody).status(http::StatusCode::REQUEST_TIMEOUT))
            }
            Buffered::Broken(_) => Err(Problem::new(Code::InvalidBody)),
        }
    }

    /// Turns a request into an intent, or finds it in the replay cache. Nothing is claimed yet.
    fn prepare(
        &self,
        request: &RequestView<'_>,
        scope: Scope,
        key: Option<Key>,
    ) -> Result<Prepared, Problem> {
        let key = match key {
            Some(key) => key,
            None => match self.key_in_body(request)? {
                Some(key) => {
                    self.admit_request(&scope, &key)?;
                    key
                }
                None => return Ok(Prepared::WithoutKey),
            },
        };
        if let Some(replay) = self.recall(&scope, &key, request) {
            self.report(Event::Replayed(replay.ended));
            if log::debug_enabled()
                && let Ok(intent) = self.operation.intent(request, scope, key)
            {
                self.log_replay(&intent, &replay);
            }
            return Ok(Prepared::Replay(replay));
        }
        Ok(Prepared::Intent(self.operation.intent(request, scope, key)?))
    }

    /// Returns the replay of an exact repetition, if its record is settled.
    fn recall(&self, scope: &Scope, key: &Key, request: &RequestView<'_>) -> Option<Replay> {
        let cache = self.state().replay_cache.as_ref()?;
        let cached = cache.get(cache.key_hash(key))?;
        if self.digest(cache, scope, key, request) != Some(cached.digest) {
            return None;
        }
        self.protected().engine.recall(&cached.record, &cached.fingerprint)
    }

    /// Puts a replayed request into the replay cache. Not inlined, like
    /// [`digest`](Self::digest): first requests need neither.
    #[inline(never)]
    fn remember(&self, intent: &Intent, request: &RequestView<'_>) {
        let Some(cache) = &self.state().replay_cache else { return };
        let Intent { scope, key, fingerprint, .. } = intent;
        let Some(digest) = self.digest(cache, scope, key, request) else { return };
        let (key_hash, fingerprint) = (cache.key_hash(key), *fingerprint);
        let record = self.protected().engine.identity().record_id(scope, key);
        cache.insert(CachedRequest { key_hash, digest, record, fingerprint });
    }

    /// Returns the digest of a request as it was sent; `None` if it must not be cached.
    #[inline(never)]
    fn digest(
        &self,
        cache: &ReplayCache,
        scope: &Scope,
        key: &Key,
        request: &RequestView<'_>,
    ) -> Option<RequestDigest> {
        let cacheable =
            self.rules().reference.is_none() && self.policy().replay_check() == ReplayCheck::Never;
        if !cacheable || request.body.len() > replay_cache::BODY_BYTES_MAX {
            return None;
        }
        let mut fields = RawFields::with_room_for(request.body);
        fields.push(scope.as_bytes());
        fields.push(key.expose().as_bytes());
        self.protected().fingerprinter.write_raw(request, &mut fields);
        Some(cache.digest(&fields))
    }

    #[inline(never)]
    fn log_replay(&self, intent: &Intent, replay: &Replay) {
        if log::debug_enabled() {
            log::replayed(&LoggedIntent::of(intent), self.identity(), replay);
        }
    }

    fn identity(&self) -> &Identity {
        self.protected().engine.identity()
    }

    fn report(&self, event: Event) {
        self.trace.record(event);
        if let Some(observer) = &self.state().observer {
            observer.observe(self.operation.name(), event);
        }
    }

    fn report_begun(&self, begun: &Result<Begun, BeginError>) {
        self.report(match begun {
            Ok(Begun::Execute(_)) => Event::Granted,
            Ok(Begun::Replay(replay)) => Event::Replayed(replay.ended),
            Ok(Begun::Reject(Rejection::Mismatch { difference })) => {
                let others = self.protected().fingerprinter.other_credentials(*difference);
                if others { Event::OtherCredentials } else { Event::Mismatch }
            }
            Ok(Begun::Reject(Rejection::ReferenceTaken { .. })) => Event::ReferenceTaken,
            Ok(Begun::Reject(Rejection::Running { .. })) => Event::InProgress,
            Ok(Begun::Reject(Rejection::Unknown { .. })) => Event::Unknown,
            Ok(Begun::Reject(Rejection::Contradicted { .. })) => Event::Contradicted,
            Ok(Begun::Reject(Rejection::Expired)) => Event::Expired,
            Err(BeginError::Draining) => Event::Draining,
            Err(BeginError::Rebuild { .. }) => Event::RebuildFailed,
            Err(BeginError::Unconfirmed { .. }) => Event::Unconfirmed,
            Err(BeginError::Unavailable(error)) if error.kind == StoreErrorKind::Full => {
                Event::StoreFull
            }
            Err(_) => Event::StoreDown,
        });
    }

    /// Asks whether this key may be sent once more.
    fn admit_request(&self, scope: &Scope, key: &Key) -> Result<(), Problem> {
        let Some(admission) = &self.state().admission else { return Ok(()) };
        admission.admit_request(scope, key).map_err(|over| {
            self.over_quota(over, "This key is sent too often", |limit, occurrences| {
                let subject = LogSubject::of_key(self.identity(), scope, key);
                log::key_too_often(&subject, limit, occurrences);
            })
        })
    }

    /// Asks whether the caller may use one more key.
    async fn admit_new_key(&self, prepared: &Prepared) -> Result<(), Problem> {
        let (Some(admission), Prepared::Intent(intent)) = (&self.state().admission, prepared)
        else {
            return Ok(());
        };
        admission.admit_new_key(intent).await.map_err(|over| {
            self.over_quota(over, "There are too many new keys", |limit, occurrences| {
                log::too_many_keys(intent, self.identity(), limit, occurrences);
            })
        })
    }

    /// The refusal of a request over a quota. Reports it, and logs it if a line is due.
    #[cold]
    fn over_quota(&self, over: OverQuota, why: &str, log: impl FnOnce(&str, u64)) -> Problem {
        let OverQuota { retry_after, limit } = over;
        self.report(Event::OverQuota);
        if let Some(occurrences) = self.protected().log_limits.over_quota.occurred() {
            log(&limit, occurrences);
        }
        let problem = Problem::new(Code::QuotaExceeded).retry_after(retry_after);
        problem.detail(format!(
            "{why} ({limit}). This request was not executed. Send it again with the same key, \
             after the delay."
        ))
    }

    async fn replay<R>(&self, replay: Replay, retry: &Parts) -> Response<Body<R>> {
        let accept = Accept::of(&retry.headers);
        let rebuild = self.state().rebuild.as_ref();
        let replayed = response::replay(replay, &self.rules().replay, &accept, rebuild).await;
        replayed.unwrap_or_else(|problem| self.refuse(problem))
    }
}

/// Runs a handler unprotected, on a buffered body.
async fn pass<S, B, R>(
    mut inner: S,
    head: Parts,
    body: Whole,
) -> Result<Response<Body<R>>, S::Error>
where
    S: Service<Request<Body<B>>, Response = Response<R>>,
{
    let unprotected = Box::pin(inner.call(Request::from_parts(head, body.into_body())));
    Ok(unprotected.await?.map(Body::passed))
}
