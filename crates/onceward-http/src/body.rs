//! Bodies: streamed where nothing is guarded, held whole where something is.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use onceward_core::BoxError;

use crate::overhear::Ear;

/// The body of a request or response that went through the layer: as it came, or held
/// whole, or held up to a limit with the rest to come.
pub struct Body<B> {
    held: Option<Bytes>,
    rest: Option<B>,
    /// In a box, as nearly no body has any.
    trailers: Option<Box<HeaderMap>>,
    /// Who listens, where a request is only observed.
    ear: Option<Box<Ear>>,
}

impl<B> Body<B> {
    /// A body as it came.
    pub fn passed(body: B) -> Self {
        Self { held: None, rest: Some(body), trailers: None, ear: None }
    }

    /// A body that is held whole.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let held = Some(bytes).filter(|bytes| !bytes.is_empty());
        Self { held, rest: None, trailers: None, ear: None }
    }

    /// A body as it came, that somebody listens to.
    pub(crate) fn overheard(body: B, ear: Ear) -> Self {
        Self { ear: Some(Box::new(ear)), ..Self::passed(body) }
    }

    /// Trailers that come after what is held. Those of a body as it came are not known before its
    /// end.
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
            if let Some(ear) = &mut this.ear {
                ear.hear(frame.as_ref());
                // Over HTTP/2 it is known with the last frame, and nobody polls for more.
                if rest.is_end_stream() {
                    ear.finish();
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

/// A body read up to a limit.
pub(crate) enum Held<B> {
    /// All of it.
    Whole(Whole),
    /// There is more than the limit: this much was read, and the rest is to come.
    TooLarge { read: Bytes, rest: B },
    /// It broke off.
    Broken(BoxError),
}

/// All of a body.
#[derive(Debug, Clone, Default)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    pub(crate) trailers: Option<Box<HeaderMap>>,
}

impl Whole {
    pub(crate) fn into_body<B>(self) -> Body<B> {
        Body::whole(self.bytes).with_trailers(self.trailers)
    }
}

/// A body of which the beginning was read.
pub(crate) fn resumed<B>(read: Bytes, rest: B) -> Body<B> {
    Body { held: Some(read).filter(|bytes| !bytes.is_empty()), ..Body::passed(rest) }
}

/// Reads a body until its end, or until there is more than `limit`.
#[expect(clippy::manual_async_fn, reason = "an async fn would keep the body twice")]
pub(crate) fn hold<B>(mut body: B, limit: usize) -> impl Future<Output = Held<B>>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    async move {
        if body.size_hint().lower() > limit as u64 {
            return Held::TooLarge { read: Bytes::new(), rest: body };
        }
        let mut read = Gathered::default();
        let mut trailers = None;
        while let Some(frame) = body.frame().await {
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => {
                    read.push(data);
                    if read.len() > limit {
                        return Held::TooLarge { read: read.finish(), rest: body };
                    }
                    // As a rule that is known by now, and need not be asked for.
                    if body.is_end_stream() {
                        break;
                    }
                }
                Ok(Err(other)) => trailers = other.into_trailers().ok().map(Box::new),
                Err(error) => return Held::Broken(error.into()),
            }
        }
        Held::Whole(Whole { bytes: read.finish(), trailers })
    }
}

/// Data frames put together; a single one is not copied.
#[derive(Default)]
pub(crate) struct Gathered {
    first: Bytes,
    more: BytesMut,
}

impl Gathered {
    pub(crate) fn push(&mut self, data: Bytes) {
        if self.more.is_empty() && self.first.is_empty() {
            self.first = data;
        } else {
            if self.more.is_empty() {
                self.more.extend_from_slice(&self.first);
            }
            self.more.extend_from_slice(&data);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len().max(self.more.len())
    }

    pub(crate) fn finish(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.freeze() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{Full, StreamBody};
    use std::convert::Infallible;

    fn streamed(
        chunks: &[&'static str],
    ) -> impl HttpBody<Data = Bytes, Error = Infallible> + Unpin {
        let frames: Vec<_> = chunks
            .iter()
            .map(|chunk| Ok(Frame::data(Bytes::from_static(chunk.as_bytes()))))
            .collect();
        StreamBody::new(futures_util::stream::iter(frames))
    }

    async fn text<B>(body: B) -> String
    where
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: std::fmt::Debug,
    {
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_body_within_the_limit_is_held_whole() {
        for chunks in [&[][..], &["abc"], &["a", "", "bc"], &["", "abc"]] {
            let Held::Whole(whole) = hold(streamed(chunks), 3).await else { panic!("{chunks:?}") };
            assert_eq!(whole.bytes, chunks.concat());
            let body = whole.into_body::<Full<Bytes>>();
            assert_eq!(body.size_hint().exact(), Some(chunks.concat().len() as u64));
            assert_eq!(text(body).await, chunks.concat());
        }
    }

    #[tokio::test]
    async fn nothing_is_lost_of_a_body_over_the_limit() {
        for chunks in [&["abcd"][..], &["ab", "cd", "ef"]] {
            let Held::TooLarge { read, rest } = hold(streamed(chunks), 3).await else { panic!() };
            assert_eq!(text(resumed(read, rest)).await, chunks.concat());
        }
    }

    #[tokio::test]
    async fn trailers_stay_behind_the_data() {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, "x".parse().unwrap())]);
        let whole = Whole { bytes: "abc".into(), trailers: Some(Box::new(trailers.clone())) };
        let collected = whole.into_body::<Full<Bytes>>().collect().await.unwrap();
        assert_eq!(collected.trailers(), Some(&trailers));
        let collected = BodyExt::boxed(
            Full::new(Bytes::from("abc")).with_trailers(async move { Some(Ok(trailers)) }),
        );
        let Held::Whole(whole) = hold(collected, 10).await else { panic!() };
        assert_eq!((whole.bytes.as_ref(), whole.trailers.is_some()), (&b"abc"[..], true));
    }
}
