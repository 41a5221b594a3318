//! The service that the layer makes: lets pass what is not guarded.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::TryFutureExt;
use http::{Request, Response};
use http_body::Body as HttpBody;
use onceward_core::BoxError;
use pin_project_lite::pin_project;
use tower_service::Service;
use tracing::Instrument;

use crate::body::Body;
use crate::exchange::Exchange;
use crate::layer::Shared;
use crate::outlive::Outlive;
use crate::shadow::{self, Ending};
use crate::status::Question;
use crate::trace::Trace;

/// A service whose guarded requests have one effect and one answer. Made by
/// [`OncewardLayer`](crate::OncewardLayer).
#[derive(Clone)]
pub struct OncewardService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> OncewardService<S> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
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
        if let Some(question) =
            Question::of(&self.shared.format.operations_at, request.uri().path())
        {
            let (shared, (head, _)) = (Arc::clone(&self.shared), request.into_parts());
            let future = Box::pin(async move { Ok(question.answer(&shared, &head).await) });
            return ResponseFuture { way: Way::Asked { future } };
        }
        let Some(guarded) = self.shared.guard(&request) else {
            let future = self.inner.call(request.map(Body::passed));
            return ResponseFuture { way: Way::Passed { future } };
        };
        if guarded.guard().only_observes() {
            let (request, ending) = shadow::observe(guarded, request);
            let future = self.inner.call(request);
            return ResponseFuture { way: Way::Observed { future, ending } };
        }
        // The clone takes the place of the one that was made ready.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        let trace = Trace::begin(guarded.operation());
        let (span, told) = (trace.span(), trace.clone());
        let exchange = Exchange { guarded, trace };
        let answer = |goes_on| exchange.answer(request, ready, goes_on);
        let future = match span {
            None => Outlive::new(answer),
            Some(span) => Outlive::new(|goes_on| {
                let tell = move |response: &Response<_>| told.answered(response.status());
                answer(goes_on).inspect_ok(tell).instrument(span)
            }),
        };
        ResponseFuture { way: Way::Guarded { future } }
    }
}

pin_project! {
    /// The answer to come.
    pub struct ResponseFuture<F, R, E> {
        #[pin]
        way: Way<F, R, E>,
    }
}

type Answering<R, E> = Pin<Box<dyn Future<Output = Result<Response<Body<R>>, E>> + Send>>;
type Exchanging<R, E> = Outlive<Result<Response<Body<R>>, E>>;

pin_project! {
    #[project = WayProjected]
    enum Way<F, R, E> {
        Passed { #[pin] future: F },
        Observed { #[pin] future: F, ending: Ending },
        Asked { future: Answering<R, E> },
        Guarded { future: Exchanging<R, E> },
    }
}

impl<F, R, E> Future for ResponseFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<Body<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().way.project() {
            WayProjected::Passed { future } => {
                let answer = ready!(future.poll(cx));
                Poll::Ready(answer.map(|response| response.map(Body::passed)))
            }
            WayProjected::Observed { future, ending } => {
                let answer = ready!(future.poll(cx));
                ending.with(&answer);
                Poll::Ready(answer.map(|response| response.map(Body::passed)))
            }
            WayProjected::Asked { future } => future.as_mut().poll(cx),
            WayProjected::Guarded { future } => Pin::new(future).poll(cx),
        }
    }
}

impl<F, R, E> fmt::Debug for ResponseFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.way {
            Way::Passed { .. } => "ResponseFuture(passed)",
            Way::Observed { .. } => "ResponseFuture(observed)",
            Way::Asked { .. } => "ResponseFuture(asked)",
            Way::Guarded { .. } => "ResponseFuture(guarded)",
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

    /// It is written to the heap for each request, and pushes as much out of the caches.
    #[tokio::test]
    async fn a_guarded_request_takes_little_room_on_its_way() {
        let layer = Onceward::layer(Engine::new(Arc::new(MemoryStore::new())))
            .single_tenant()
            .operation(Operation::post("/"))
            .build()
            .unwrap();
        let request =
            Request::post("/").header("idempotency-key", "k").body(Full::<Bytes>::default());
        let answer = layer.layer(Nothing).call(request.unwrap());
        let Way::Guarded { future } = &answer.way else { panic!("it is guarded") };
        let bytes = future.bytes();
        assert!(bytes <= 2048, "{bytes} bytes");
        assert_eq!(answer.await.unwrap().status(), 200);
    }
}
