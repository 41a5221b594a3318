//! The service that the layer makes: protects a request, shadows it, or lets it pass.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::TryFutureExt;
use http::{HeaderMap, Request, Response};
use http_body::Body as HttpBody;
use onceward_core::BoxError;
use pin_project_lite::pin_project;
use tower_service::Service;
use tracing::Instrument;

use crate::body::Body;
use crate::exchange::{
    Exchange, FinishInBackground, HandlerReport, LayerState, MatchedOperation, StatusRequest,
    shadow,
};
use crate::observe::Trace;
use crate::request::HeadKey;
use crate::rules::Mode;

/// A service whose protected requests have one effect and one response. Made by
/// [`OncewardLayer`](crate::OncewardLayer).
#[derive(Clone)]
pub struct OncewardService<S> {
    inner: S,
    state: Arc<LayerState>,
}

impl<S> OncewardService<S> {
    pub(crate) fn new(inner: S, state: Arc<LayerState>) -> Self {
        Self { inner, state }
    }
}

impl<S: fmt::Debug> fmt::Debug for OncewardService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OncewardService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for OncewardService<S>
where
    S: Service<Request<Body<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
    R: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let route = self.match_route(&request);
        self.call_matched(request, route)
    }
}

/// The match of a request with the layer's routes. See [`OncewardService::match_route`].
#[derive(Clone)]
pub struct RouteMatch(Route);

#[derive(Clone)]
enum Route {
    /// The request is not protected.
    Pass,
    StatusPage(StatusRequest),
    Operation(MatchedOperation),
}

impl RouteMatch {
    /// The largest request body that is buffered; `None` if the body streams, because the request
    /// is not protected.
    pub fn request_max_bytes(&self) -> Option<usize> {
        match &self.0 {
            Route::Operation(operation) if !operation.protected().is_shadow() => {
                Some(operation.protected().rules.request_max_bytes)
            }
            Route::Operation(_) | Route::StatusPage(_) | Route::Pass => None,
        }
    }

    /// True if the request asks for the status page of an operation.
    pub const fn is_status_page(&self) -> bool {
        matches!(self.0, Route::StatusPage(_))
    }

    /// The operation's name and mode; `None` if the request belongs to no operation or asks for a
    /// status page.
    pub fn operation(&self) -> Option<(&str, Mode)> {
        match &self.0 {
            Route::Operation(operation) => {
                Some((operation.name(), operation.protected().rules.mode))
            }
            Route::StatusPage(_) | Route::Pass => None,
        }
    }

    /// The key in the head of a request of an operation. So servers can decide where a request
    /// belongs before its body is read.
    pub fn key(&self, headers: &HeaderMap) -> Option<HeadKey> {
        match &self.0 {
            Route::Operation(operation) => {
                Some(HeadKey::of(headers, &operation.protected().rules.key))
            }
            Route::StatusPage(_) | Route::Pass => None,
        }
    }
}

impl fmt::Debug for RouteMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Route::Pass => f.write_str("RouteMatch(pass)"),
            Route::StatusPage(_) => f.write_str("RouteMatch(status page)"),
            Route::Operation(operation) => write!(f, "RouteMatch({:?})", operation.name()),
        }
    }
}

impl<S> OncewardService<S> {
    /// Matches a request with the routes, for servers that prepare for its body before they call
    /// [`call_matched`](Self::call_matched).
    pub fn match_route<B>(&self, request: &Request<B>) -> RouteMatch {
        let path = request.uri().path();
        RouteMatch(match StatusRequest::of(&self.state.format.operations_at, path) {
            Some(status) => Route::StatusPage(status),
            None => self.state.match_operation(request).map_or(Route::Pass, Route::Operation),
        })
    }

    /// Serves a request that was [matched](Self::match_route) already. Its head must be unchanged.
    pub fn call_matched<B, R>(
        &mut self,
        request: Request<B>,
        route: RouteMatch,
    ) -> ResponseFuture<S::Future, R, S::Error>
    where
        S: Service<Request<Body<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
        R: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        R::Error: Into<BoxError>,
    {
        let inner = match route.0 {
            Route::Pass => Inner::Passed { future: self.inner.call(request.map(Body::passed)) },
            Route::StatusPage(status) => {
                let (state, (head, _)) = (Arc::clone(&self.state), request.into_parts());
                let future = Box::pin(async move { Ok(status.answer(&state, &head).await) });
                Inner::StatusPage { future }
            }
            Route::Operation(operation) if operation.protected().is_shadow() => {
                let (request, report) = shadow(operation, request);
                Inner::Shadowed { future: self.inner.call(request), report }
            }
            Route::Operation(operation) => {
                Inner::Protected { future: self.protect(request, operation) }
            }
        };
        ResponseFuture { inner }
    }

    fn protect<B, R>(
        &mut self,
        request: Request<B>,
        operation: MatchedOperation,
    ) -> ExchangeFuture<R, S::Error>
    where
        S: Service<Request<Body<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
        R: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        R::Error: Into<BoxError>,
    {
        // `poll_ready` made this instance ready, so the clone stays behind.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        let trace = Trace::begin(operation.name());
        let (span, recorder) = (trace.span(), trace.clone());
        let exchange = Exchange { operation, trace };
        let answer = |must_finish| exchange.answer(request, ready, must_finish);
        match span {
            None => FinishInBackground::new(answer),
            Some(span) => FinishInBackground::new(|must_finish| {
                let record =
                    move |response: &Response<_>| recorder.record_status(response.status());
                answer(must_finish).inspect_ok(record).instrument(span)
            }),
        }
    }
}

pin_project! {
    /// Future of a response.
    pub struct ResponseFuture<F, R, E> {
        #[pin]
        inner: Inner<F, R, E>,
    }
}

type StatusFuture<R, E> = Pin<Box<dyn Future<Output = Result<Response<Body<R>>, E>> + Send>>;
type ExchangeFuture<R, E> = FinishInBackground<Result<Response<Body<R>>, E>>;

pin_project! {
    #[project = Projected]
    enum Inner<F, R, E> {
        Passed { #[pin] future: F },
        Shadowed { #[pin] future: F, report: HandlerReport },
        StatusPage { future: StatusFuture<R, E> },
        Protected { future: ExchangeFuture<R, E> },
    }
}

impl<F, R, E> Future for ResponseFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<Body<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().inner.project() {
            Projected::Passed { future } => {
                let answer = ready!(future.poll(cx));
                Poll::Ready(answer.map(|response| response.map(Body::passed)))
            }
            Projected::Shadowed { future, report } => {
                let answer = ready!(future.poll(cx));
                report.ended(&answer);
                Poll::Ready(answer.map(|response| response.map(Body::passed)))
            }
            Projected::StatusPage { future } => future.as_mut().poll(cx),
            Projected::Protected { future } => Pin::new(future).poll(cx),
        }
    }
}

impl<F, R, E> fmt::Debug for ResponseFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.inner {
            Inner::Passed { .. } => "ResponseFuture(passed)",
            Inner::Shadowed { .. } => "ResponseFuture(shadowed)",
            Inner::StatusPage { .. } => "ResponseFuture(status page)",
            Inner::Protected { .. } => "ResponseFuture(protected)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Onceward, Operation};
    use http_body_util::Full;
    use onceward_core::{Engine, MemoryStore};
    use std::convert::Infallible;
    use tower_layer::Layer;

    #[derive(Clone)]
    struct Nothing;

    impl<B> Service<Request<B>> for Nothing {
        type Response = Response<Full<Bytes>>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<B>) -> Self::Future {
            std::future::ready(Ok(Response::new(Full::default())))
        }
    }

    /// The future is written to the heap for each request, and evicts as much from the caches.
    #[tokio::test]
    async fn the_future_of_a_protected_request_is_small() {
        let layer = Onceward::layer(Engine::new(Arc::new(MemoryStore::new())))
            .single_tenant()
            .operation(Operation::post("/"))
            .build()
            .unwrap();
        let request =
            Request::post("/").header("idempotency-key", "k").body(Full::<Bytes>::default());
        let answer = layer.layer(Nothing).call(request.unwrap());
        let Inner::Protected { future } = &answer.inner else { panic!("it is protected") };
        let bytes = future.bytes();
        assert!(bytes <= 2048, "{bytes} bytes");
        assert_eq!(answer.await.unwrap().status(), 200);
    }
}
