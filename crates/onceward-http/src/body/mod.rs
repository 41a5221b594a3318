//! Bodies: streamed where nothing is protected, buffered where something is.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`Body`], the body type of every request and response behind the layer |
//! | `buffer` | reading a body up to a limit |
//! | `coding` | gzip and deflate: decoding, and what a client accepts |
//! | `tap` | copying a body while it streams to its handler (shadow mode) |

mod buffer;
mod coding;
mod tap;

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use onceward_core::BoxError;

pub(crate) use buffer::{Buffered, Whole, buffer};
pub use coding::accept_only_decodable;
pub(crate) use coding::{Accept, Undecoded, decode, decode_for_client};
pub(crate) use tap::{BodyTap, TapBudget, TapPermit, Tapped};

/// The body of a request or response behind the layer: streamed as it came, buffered whole, or
/// buffered up to a limit with the rest still streaming.
pub struct Body<B> {
    held: Option<Bytes>,
    rest: Option<B>,
    /// Boxed: hardly any body has trailers.
    trailers: Option<Box<HeaderMap>>,
    /// Copies the body in shadow mode.
    tap: Option<Box<BodyTap>>,
}

impl<B> Body<B> {
    /// A body that streams as it came.
    pub fn passed(body: B) -> Self {
        Self { held: None, rest: Some(body), trailers: None, tap: None }
    }

    /// A body in memory.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let held = Some(bytes).filter(|bytes| !bytes.is_empty());
        Self { held, rest: None, trailers: None, tap: None }
    }

    /// A body that is copied while it streams.
    pub(crate) fn tapped(body: B, tap: BodyTap) -> Self {
        Self { tap: Some(Box::new(tap)), ..Self::passed(body) }
    }

    /// A body whose beginning was read already.
    pub(crate) fn resumed(read: Bytes, rest: B) -> Self {
        Self { held: Some(read).filter(|bytes| !bytes.is_empty()), ..Self::passed(rest) }
    }

    /// Trailers of a buffered body. Those of a streamed body are not known before its end.
    pub fn held_trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_deref()
    }

    fn with_trailers(mut self, trailers: Option<Box<HeaderMap>>) -> Self {
        self.trailers = trailers;
        self
    }
}

impl<B> HttpBody for Body<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(bytes) = self.held.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let this = &mut *self;
        if let Some(rest) = &mut this.rest {
            let frame = ready!(Pin::new(&mut *rest).poll_frame(cx));
            if let Some(tap) = &mut this.tap {
                tap.frame(frame.as_ref());
                // Over HTTP/2 the last frame ends the stream, and no further poll follows.
                if rest.is_end_stream() {
                    tap.finish();
                }
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(*trailers))))
    }

    fn is_end_stream(&self) -> bool {
        let rest_ended = self.rest.as_ref().is_none_or(HttpBody::is_end_stream);
        self.held.is_none() && rest_ended && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.as_ref().map_or(0, Bytes::len) as u64;
        let rest = self.rest.as_ref().map_or(SizeHint::with_exact(0), HttpBody::size_hint);
        let mut hint = SizeHint::new();
        if let Some(upper) = rest.upper() {
            hint.set_upper(held + upper);
        }
        hint.set_lower(held + rest.lower());
        hint
    }
}

impl<B> fmt::Debug for Body<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.held.as_ref().map_or(0, Bytes::len);
        let more = if self.rest.is_some() { " and more" } else { "" };
        write!(f, "Body({held} bytes held{more})")
    }
}
