//! One guarded request, from its head to its answer. This is the protocol.

use std::error::Error;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, ready};
use http::request::Parts;
use http::{Request, Response, response};
use http_body::Body as HttpBody;
use onceward_core::{
    BeginError, BoxError, Disposition, Ended, Intent, Key, OnLapse, OperationId, Outcome,
    Rejection, Replay, Scope, Settled, StoreError, StoreErrorKind,
};
use tower_service::Service;

use crate::admission::Admission;
use crate::body::{Body, Held, Whole, hold, resumed};
use crate::coding::Accept;
use crate::credentials::CREDENTIAL_HEADERS;
use crate::fingerprint::{Subject, decoded};
use crate::header::{key_in_body, key_in_headers};
use crate::layer::{Guard, Guarded, Shared};
use crate::observe::Event;
use crate::outlive::GoesOn;
use crate::problem::{Code, Problem, whole_seconds};
use crate::reply;
use crate::right::{Begun, Kept, LetGo, Right};
use crate::rules::{CompletionLost, InProgress, KeyFrom, StoreDown};
use crate::seen::{self, Digest, Known, Seen};
use crate::speak::{self, Sensitive};
use crate::trace::Trace;

/// One guarded request on its way.
pub(crate) struct Exchange {
    pub(crate) guarded: Guarded,
    pub(crate) trace: Trace,
}

/// What a request asks for.
enum Ask {
    /// Something that was done before.
    Again(Replay),
    /// Something that is to be decided about.
    Decide(Intent),
    /// Something without a key, which no rule requires.
    Pass,
}

impl Exchange {
    /// Answers a request: executes it, replays it, or refuses it.
    ///
    /// A function that returns a future, as are those below that take what is large: what a
    /// future captures stays where it is, while an `async fn` keeps its arguments twice.
    pub(crate) fn answer<S, B, R>(
        self,
        request: Request<B>,
        inner: S,
        goes_on: GoesOn,
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
            let asked = async {
                let key = self.key_in_head(&head)?;
                let scope = self.shared().owners.resolve(&head, self.operation())?;
                let held = hold(body, self.guard().rules.request_bytes_max).await;
                let whole = self.whole(held)?;
                let ask = self.ask(&self.subject(&head, &whole.bytes), scope, key)?;
                self.admit(&ask).await?;
                Ok((whole, ask))
            };
            let (whole, intent) = match asked.await {
                Ok((whole, Ask::Decide(intent))) => (whole, intent),
                Ok((_, Ask::Again(replay))) => return Ok(self.replay(replay, &head).await),
                Ok((whole, Ask::Pass)) => return pass(inner, head, whole).await,
                Err(problem) => return Ok(self.refuse(problem)),
            };
            let begun = self.guard().grants.begin(&self.guard().engine, &intent).await;
            self.tell_begun(&begun);
            match begun {
                Ok(Begun::Execute(right)) => {
                    goes_on.set(); // What has begun is settled, whether its client waits or not.
                    let usage = Usage::of(self.shared(), &intent);
                    right.equip(intent, &mut head.extensions);
                    let request = Request::from_parts(head, whole.into_body());
                    match self.to_keep(handle(inner, request).await) {
                        Ok(response) => Ok(self.keep(right, response, usage).await),
                        Err(not_kept) => self.settle(right, not_kept).await,
                    }
                }
                Ok(Begun::Replay(replay)) => {
                    self.remember(&intent, &self.subject(&head, &whole.bytes));
                    Ok(self.replay(replay, &head).await)
                }
                Ok(Begun::Reject(rejection)) => {
                    Ok(self.reject(rejection, &self.subject(&head, &whole.bytes)))
                }
                Err(BeginError::Unavailable(error)) if self.goes_on_without(&error) => {
                    pass(inner, head, whole).await
                }
                Err(error) => Ok(self.unavailable(&error)),
            }
        }
    }

    fn guard(&self) -> &Guard {
        self.guarded.guard()
    }

    fn shared(&self) -> &Shared {
        &self.guarded.shared
    }

    fn operation(&self) -> &str {
        self.guarded.operation()
    }

    /// The key in a request's head. `None` leaves it to the body.
    fn key_in_head(&self, head: &Parts) -> Result<Option<Key>, Problem> {
        let rules = &self.guard().rules.key;
        match (key_in_headers(&head.headers, rules)?, &rules.from) {
            (None, KeyFrom::Header(_)) => Err(Problem::new(Code::MissingKey)),
            (key, _) => Ok(key),
        }
    }

    /// The key in a request's body; `None` lets it pass.
    fn key_in_body(&self, subject: &Subject<'_>) -> Result<Option<Key>, Problem> {
        let rules = &self.guard().rules;
        let key = key_in_body(&decoded(subject)?, &rules.key)?;
        if key.is_none() && rules.required {
            return Err(Problem::new(Code::MissingKey));
        }
        Ok(key)
    }

    /// All of a request's body.
    fn whole<B>(&self, held: Held<B>) -> Result<Whole, Problem> {
        match held {
            Held::Whole(whole) => Ok(whole),
            Held::TooLarge { .. } => Err(too_large(self.guard().rules.request_bytes_max)),
            Held::Broken(error) if is_late(&*error) => {
                let late = http::StatusCode::REQUEST_TIMEOUT;
                Err(Problem::new(Code::InvalidBody).status(late))
            }
            Held::Broken(_) => Err(Problem::new(Code::InvalidBody)),
        }
    }

    /// Turns a request into an intent, or finds that it was done before. Nothing has been claimed
    /// if this fails.
    fn ask(&self, subject: &Subject<'_>, scope: Scope, key: Option<Key>) -> Result<Ask, Problem> {
        let key = match key {
            Some(key) => key,
            None => match self.key_in_body(subject)? {
                Some(key) => key,
                None => return Ok(Ask::Pass),
            },
        };
        if let Some(replay) = self.recall(&scope, &key, subject) {
            self.tell(Event::Replayed);
            return Ok(Ask::Again(replay));
        }
        let (fingerprint, parts) = self.guard().fingerprinter.fingerprint(subject, &scope)?;
        let mut intent = Intent::new(scope, key, fingerprint).with_parts(parts);
        if let Some(reference) = &self.guard().rules.reference {
            intent.reference = reference.find(subject.headers, &decoded(subject)?)?;
        }
        Ok(Ask::Decide(intent))
    }

    /// What a retry that was seen before came to, if it is settled.
    fn recall(&self, scope: &Scope, key: &Key, subject: &Subject<'_>) -> Option<Replay> {
        let seen = self.shared().seen.as_ref()?;
        let known = seen.known(seen.name(key))?;
        if self.digest(seen, scope, key, subject) != Some(known.digest) {
            return None;
        }
        self.guard().engine.recall(&known.record, &known.fingerprint)
    }

    /// Has the next retry known by its bytes, if it is sent as this one was. Not inlined, as
    /// [`digest`](Self::digest) is not: first requests need neither.
    #[inline(never)]
    fn remember(&self, intent: &Intent, subject: &Subject<'_>) {
        let Some(seen) = &self.shared().seen else { return };
        let Intent { scope, key, fingerprint, .. } = intent;
        let Some(digest) = self.digest(seen, scope, key, subject) else { return };
        let (name, fingerprint) = (seen.name(key), *fingerprint);
        let record = self.guard().engine.identity().record_id(scope, key);
        seen.remember(Known { name, digest, record, fingerprint });
    }

    /// By which a retry of this request can be known; `None` if it has to go the whole way.
    #[inline(never)]
    fn digest(
        &self,
        seen: &Seen,
        scope: &Scope,
        key: &Key,
        subject: &Subject<'_>,
    ) -> Option<Digest> {
        let plain = self.shared().admission.is_none() && self.guard().rules.reference.is_none();
        if !plain || subject.body.len() > seen::BODY_BYTES_MAX {
            return None;
        }
        let mut fields = seen::Fields::beside(subject.body);
        fields.push(scope.as_bytes());
        fields.push(key.expose().as_bytes());
        self.guard().fingerprinter.looked_at(subject, &mut fields);
        Some(seen.digest(&fields))
    }

    fn tell(&self, event: Event) {
        self.trace.tell(event);
        if let Some(observer) = &self.shared().observer {
            observer.observe(self.operation(), event);
        }
    }

    fn tell_begun(&self, begun: &Result<Begun, BeginError>) {
        self.tell(match begun {
            Ok(Begun::Execute(_)) => Event::Granted,
            Ok(Begun::Replay(_)) => Event::Replayed,
            Ok(Begun::Reject(Rejection::Mismatch { difference })) => {
                let others = self.guard().fingerprinter.other_credentials(*difference);
                if others { Event::OtherCredentials } else { Event::Mismatch }
            }
            Ok(Begun::Reject(Rejection::ReferenceTaken { .. })) => Event::ReferenceTaken,
            Ok(Begun::Reject(Rejection::Running { .. })) => Event::InProgress,
            Ok(Begun::Reject(Rejection::Unknown { .. })) => Event::Unknown,
            Ok(Begun::Reject(Rejection::Expired)) => Event::Expired,
            Err(_) => Event::StoreDown,
        });
    }

    /// Whether the caller may use one more key.
    async fn admit(&self, ask: &Ask) -> Result<(), Problem> {
        let (Some(admission), Ask::Decide(intent)) = (&self.shared().admission, ask) else {
            return Ok(());
        };
        admission.admit(intent).await.map_err(|wait| {
            self.tell(Event::OverQuota);
            Problem::new(Code::QuotaExceeded).retry_after(wait)
        })
    }

    fn subject<'a>(&'a self, head: &'a Parts, body: &'a Bytes) -> Subject<'a> {
        let (method, headers) = (&head.method, &head.headers);
        let bytes_max = self.guard().rules.request_bytes_max;
        Subject { method, operation: self.operation(), uri: &head.uri, headers, body, bytes_max }
    }

    /// The response that every retry gets, if the handler's own word and the rules say so.
    fn to_keep<R, E>(&self, handled: Handled<R, E>) -> Result<Response<R>, NotKept<R, E>> {
        let mut response = match handled {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(NotKept::Error(error)),
            Err(_panic) => return Err(NotKept::Panic),
        };
        let by_rule = |status| self.guard().rules.outcomes.disposition(status);
        match speak::said(&mut response).unwrap_or_else(|| by_rule(response.status())) {
            Disposition::Keep => Ok(response),
            Disposition::Release => Err(NotKept::LetGo(LetGo::Release, response)),
            Disposition::Unknown => Err(NotKept::LetGo(LetGo::Unknown, response)),
        }
    }

    /// Settles what is not to be kept, and answers.
    async fn settle<R, E>(
        &self,
        right: Right,
        not_kept: NotKept<R, E>,
    ) -> Result<Response<Body<R>>, E> {
        match not_kept {
            // Where that does not land, the outcome is unknown.
            NotKept::LetGo(word, response) => {
                self.let_go(right, word).boxed().await;
                Ok(response.map(Body::passed))
            }
            NotKept::Error(error) => {
                self.abandon(right).boxed().await;
                Err(error)
            }
            NotKept::Panic => {
                tracing::error!(operation = %right.operation(), "the handler panicked");
                Ok(self.refuse(self.abandon(right).boxed().await))
            }
        }
    }

    /// Stores a response, and answers with it as soon as it is stored.
    fn keep<R>(
        &self,
        right: Right,
        response: Response<R>,
        usage: Option<Usage>,
    ) -> impl Future<Output = Response<Body<R>>>
    where
        R: HttpBody<Data = Bytes> + Unpin,
        R::Error: Into<BoxError>,
    {
        let (head, body) = response.into_parts();
        async move {
            let rules = &self.guard().rules;
            let limit = if is_endless(&head) { 0 } else { rules.response_bytes_max };
            let (outcome, body) = match hold(body, limit).await {
                Held::Whole(whole) => (self.outcome(&head, &whole), whole.into_body()),
                Held::TooLarge { read, rest } => {
                    let summary = reply::encode_head(&head, rules);
                    (Outcome::omitted(reply::TAG, summary), resumed(read, rest))
                }
                Held::Broken(error) => {
                    tracing::warn!(%error, "a response broke off");
                    return self.refuse(self.abandon(right).boxed().await);
                }
            };
            if let Some(usage) = usage {
                usage.keeps(outcome.bytes.len());
            }
            let operation = right.operation();
            let failed = head.status.is_client_error() || head.status.is_server_error();
            let ended = if failed { Ended::Failed } else { Ended::Completed };
            match self.kept(right.keep(ended, outcome).await, operation) {
                Some(problem) => self.refuse(problem),
                None => Response::from_parts(head, body),
            }
        }
    }

    /// Why a response must not be given, after what became of it at the store.
    fn kept(&self, kept: Kept, operation: OperationId) -> Option<Problem> {
        match kept {
            Kept::Settled(settled) => {
                self.tell(Event::Settled(Disposition::Keep, settled));
                self.lost(settled, operation)
            }
            #[cfg(feature = "postgres")]
            Kept::RolledBack => {
                self.tell(Event::Settled(Disposition::Release, Settled::Durable));
                Some(self.rolled_back())
            }
            #[cfg(feature = "postgres")]
            Kept::Unknown => {
                self.tell(Event::Settled(Disposition::Unknown, Settled::Pending));
                Some(self.not_known(operation))
            }
        }
    }

    /// What an accident means, and what to tell: a lease is left as if it had lapsed, and a
    /// transaction is rolled back.
    async fn abandon(&self, right: Right) -> Problem {
        let unknown = self.shared().outcome_unknown(right.operation());
        match (right, self.guard().engine.policy().on_lapse()) {
            (Right::Permit(permit), OnLapse::Takeover) => {
                drop(permit);
                unknown
            }
            (right, _) => match self.let_go(right, LetGo::Unknown).await {
                Disposition::Release => Problem::new(Code::RolledBack),
                Disposition::Keep | Disposition::Unknown => unknown,
            },
        }
    }

    /// Gives a right back, and says what that came to. Where not even *unknown* lands, the
    /// lease lapses to the same.
    async fn let_go(&self, right: Right, said: LetGo) -> Disposition {
        let (disposition, settled) = right.let_go(said).await;
        self.tell(Event::Settled(disposition, settled));
        disposition
    }

    /// The transaction could not be committed, though the handler was content.
    #[cfg(feature = "postgres")]
    fn rolled_back(&self) -> Problem {
        Problem::new(Code::RolledBack)
            .status(http::StatusCode::SERVICE_UNAVAILABLE)
            .retry_after(self.guard().engine.policy().retry_after())
    }

    fn outcome(&self, head: &response::Parts, whole: &Whole) -> Outcome {
        let rules = &self.guard().rules;
        match head.extensions.get::<Sensitive>() {
            None => Outcome::whole(reply::TAG, reply::encode(head, whole, rules)),
            Some(Sensitive(resource)) => {
                Outcome::reference(reply::TAG, reply::encode_head(head, rules))
                    .with_resource(&resource.kind, &resource.id)
            }
        }
    }

    /// Why a response must not be given although the handler made it.
    fn lost(&self, settled: Settled, operation: OperationId) -> Option<Problem> {
        let policy = self.guard().engine.policy();
        let respond = self.guard().rules.completion_lost == CompletionLost::Respond;
        match settled {
            Settled::Durable => None,
            // Whoever takes over may come to another outcome: this one is not final yet.
            Settled::Pending if respond && policy.on_lapse() != OnLapse::Takeover => None,
            Settled::Missing if respond => None,
            Settled::Pending | Settled::Missing => Some(self.not_known(operation)),
            // Somebody else's outcome counts; the retry will get it.
            Settled::Superseded => Some(
                Problem::new(Code::InProgress)
                    .operation(operation)
                    .retry_after(policy.retry_after()),
            ),
        }
    }

    /// A response was made, and it is not known whether it is stored.
    fn not_known(&self, operation: OperationId) -> Problem {
        self.shared().outcome_unknown(operation).status(http::StatusCode::INTERNAL_SERVER_ERROR)
    }

    async fn replay<R>(&self, replay: Replay, retry: &Parts) -> Response<Body<R>> {
        let accept = Accept::of(&retry.headers);
        let replayed = self.shared().replay(replay, &self.guard().rules.replay, &accept).await;
        replayed.unwrap_or_else(|problem| self.refuse(problem))
    }

    #[cold]
    fn reject<R>(&self, rejection: Rejection, subject: &Subject<'_>) -> Response<Body<R>> {
        let rules = &self.guard().rules;
        self.refuse(match rejection {
            Rejection::Mismatch { difference }
                if self.guard().fingerprinter.other_credentials(difference) =>
            {
                self.other_credentials(subject)
            }
            Rejection::Mismatch { difference } => {
                let differs = self.guard().fingerprinter.explain(subject, difference);
                Problem::new(Code::KeyReused).status(rules.mismatch_status).differs(differs)
            }
            Rejection::ReferenceTaken { operation, difference } => {
                let differs = self.guard().fingerprinter.explain(subject, difference);
                let problem = Problem::new(Code::ReferenceTaken).differs(differs);
                operation.into_iter().fold(problem, Problem::operation)
            }
            Rejection::Running { operation, retry_after } => {
                let problem = Problem::new(Code::InProgress).retry_after(retry_after);
                if operation.as_uuid().is_nil() {
                    // In a transaction that nobody else can look into: it has no page.
                    problem
                } else if rules.in_progress == InProgress::Accepted {
                    return self.accepted(operation);
                } else {
                    problem.operation(operation)
                }
            }
            Rejection::Unknown { operation } => self.shared().outcome_unknown(operation),
            Rejection::Expired => Problem::new(Code::KeyExpired),
        })
    }

    /// The refusal of a retry with other credentials than the first request's: 401 if it has none.
    fn other_credentials(&self, subject: &Subject<'_>) -> Problem {
        let has_any = CREDENTIAL_HEADERS.iter().any(|name| subject.headers.contains_key(*name));
        let problem = Problem::new(Code::OtherCredentials);
        if has_any { problem } else { problem.status(http::StatusCode::UNAUTHORIZED) }
    }

    /// 202: it is being done, and there is a page to look at.
    fn accepted<R>(&self, operation: OperationId) -> Response<Body<R>> {
        let retry_after = self.guard().engine.policy().retry_after();
        let body = serde_json::json!({ "operation": operation, "status": "running" }).to_string();
        let location = self.shared().format.page(operation);
        let response = Response::builder()
            .status(http::StatusCode::ACCEPTED)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::RETRY_AFTER, whole_seconds(retry_after))
            .header(http::header::LOCATION, location);
        response
            .body(Body::whole(body))
            .unwrap_or_else(|_| self.refuse(Problem::new(Code::InProgress)))
    }

    /// Whether to run unguarded because the store is down.
    fn goes_on_without(&self, error: &StoreError) -> bool {
        let open = self.guard().rules.store_down == StoreDown::Open;
        if open {
            self.tell(Event::Unguarded);
            self.shared().count_unguarded();
            tracing::warn!(%error, operation = self.operation(), "UNSAFE: running unguarded");
        }
        open
    }

    #[cold]
    fn unavailable<R>(&self, error: &BeginError) -> Response<Body<R>> {
        let full = matches!(error, BeginError::Unavailable(it) if it.kind == StoreErrorKind::Full);
        let problem = match error {
            BeginError::Rebuild { operation, .. } => {
                Problem::new(Code::NotReplayable).operation(*operation)
            }
            _ if full => Problem::new(Code::StoreFull),
            _ => Problem::new(Code::StoreUnavailable),
        };
        tracing::warn!(error = error as &dyn std::error::Error, "not executed");
        self.refuse(problem.retry_after(self.guard().engine.policy().retry_after()))
    }

    #[cold]
    fn refuse<R>(&self, problem: Problem) -> Response<Body<R>> {
        problem.into_response(&self.shared().format).map(Body::whole)
    }
}

/// Runs a handler unguarded, on a body that was held.
async fn pass<S, B, R>(
    mut inner: S,
    head: Parts,
    whole: Whole,
) -> Result<Response<Body<R>>, S::Error>
where
    S: Service<Request<Body<B>>, Response = Response<R>>,
{
    let unguarded = Box::pin(inner.call(Request::from_parts(head, whole.into_body())));
    Ok(unguarded.await?.map(Body::passed))
}

/// What a handler came to that is not kept.
enum NotKept<R, E> {
    LetGo(LetGo, Response<R>),
    /// The handler failed without a response.
    Error(E),
    Panic,
}

/// What a handler came to; the outer error is a panic.
type Handled<R, E> = thread::Result<Result<Response<R>, E>>;

/// Runs a handler to its end, or until it panics.
fn handle<S, B, R>(
    mut inner: S,
    request: Request<Body<B>>,
) -> impl Future<Output = Handled<R, S::Error>>
where
    S: Service<Request<Body<B>>, Response = Response<R>>,
{
    match catch_unwind(AssertUnwindSafe(|| inner.call(request))) {
        Ok(handling) => Either::Left(AssertUnwindSafe(handling).catch_unwind()),
        Err(panic) => Either::Right(ready(Err(panic))),
    }
}

/// Of a caller whose keys are counted.
struct Usage {
    admission: Arc<dyn Admission>,
    scope: Scope,
}

impl Usage {
    /// Counts a key that was granted, where somebody counts.
    fn of(shared: &Shared, intent: &Intent) -> Option<Self> {
        let admission = Arc::clone(shared.admission.as_ref()?);
        admission.granted(&intent.scope);
        Some(Self { admission, scope: intent.scope.clone() })
    }

    fn keeps(self, bytes: usize) {
        self.admission.kept(&self.scope, bytes);
    }
}

/// Whether a body broke off because somebody lost patience with it.
fn is_late(error: &(dyn Error + 'static)) -> bool {
    let timed_out = error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
    timed_out || error.source().is_some_and(is_late)
}

/// Responses that end when somebody hangs up. What was done is done, and its stream is for
/// the first caller.
fn is_endless(head: &response::Parts) -> bool {
    let kind = head.headers.get(http::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
        || head.status == http::StatusCode::SWITCHING_PROTOCOLS
}

pub(crate) fn too_large(limit: usize) -> Problem {
    Problem::new(Code::RequestTooLarge)
        .detail(format!("This operation takes bodies of at most {limit} bytes, decompressed."))
}
