//! Bodies with timeouts.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use onceward_core::BoxError;
use tokio::time::{Instant, Sleep, sleep_until};

/// A body with a timeout between frames, and optionally one for the whole body.
pub(crate) struct TimeoutBody<B> {
    body: B,
    pause: Duration,
    /// Deadline of the whole body.
    end: Option<Instant>,
    /// Set while waiting for a frame.
    waiting: Option<Pin<Box<Sleep>>>,
    sender: Sender,
}

/// The side that sends a body.
#[derive(Debug, Clone, Copy)]
enum Sender {
    Client,
    Upstream,
}

/// A client's body that ended early or has malformed chunks.
#[derive(Debug, thiserror::Error)]
#[error("the request body is incomplete or malformed")]
pub(crate) struct BrokenRequest(#[source] BoxError);

/// A timeout passed before the body was complete.
#[derive(Debug, thiserror::Error)]
#[error("the body arrived too slowly")]
pub(crate) struct TooSlow(
    /// Its kind tells the layer that this is a timeout.
    #[source]
    io::Error,
);

impl TooSlow {
    fn now() -> Self {
        Self(io::ErrorKind::TimedOut.into())
    }
}

impl<B> TimeoutBody<B> {
    /// Limits a client's body.
    pub(crate) fn request(body: B, pause: Duration, total: Option<Duration>) -> Self {
        let end = total.map(|total| Instant::now() + total);
        Self { body, pause, end, waiting: None, sender: Sender::Client }
    }

    /// Limits an upstream's body.
    pub(crate) fn response(body: B, pause: Duration) -> Self {
        Self { body, pause, end: None, waiting: None, sender: Sender::Upstream }
    }

    /// Marks a client's error, so that the proxy does not blame the upstream.
    fn broken(&self, error: BoxError) -> BoxError {
        match self.sender {
            Sender::Client => BrokenRequest(error).into(),
            Sender::Upstream => error,
        }
    }
}

impl<B> Body for TimeoutBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.waiting = None;
            return Poll::Ready(
                frame.map(|frame| frame.map_err(|error| self.broken(error.into()))),
            );
        }
        let late = Instant::now() + self.pause;
        let late = self.end.map_or(late, |end| late.min(end));
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep_until(late)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Some(Err(TooSlow::now().into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Full, StreamBody};
    use std::convert::Infallible;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stands_still_is_an_error() {
        let silent = futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>();
        let body = TimeoutBody::request(StreamBody::new(silent), Duration::from_secs(5), None);
        let told = body.collect().await.unwrap_err();
        assert!(told.is::<TooSlow>());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_trickles_ends_with_its_time() {
        let trickle = futures_util::stream::unfold((), async |()| {
            tokio::time::sleep(Duration::from_secs(4)).await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from("x"))), ()))
        });
        let body = StreamBody::new(Box::pin(trickle));
        let pause = Duration::from_secs(5);
        let begun = Instant::now();
        let told = TimeoutBody::request(body, pause, Some(Duration::from_secs(30))).collect().await;
        assert!(told.unwrap_err().is::<TooSlow>());
        assert_eq!(begun.elapsed(), Duration::from_secs(30));
    }

    #[tokio::test]
    async fn a_quick_one_passes_unchanged() {
        let body = TimeoutBody::response(Full::from("abc"), Duration::from_secs(1));
        assert_eq!(body.size_hint().exact(), Some(3));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abc");
    }
}
