//! Reading a body into memory, up to a limit.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt;
use onceward_core::BoxError;

use super::Body;

/// Result of reading a body up to a limit.
pub(crate) enum Buffered<B> {
    /// The whole body.
    Whole(Whole),
    /// The body exceeds the limit: the part that was read, and the rest, which still streams.
    TooLarge { read: Bytes, rest: B },
    /// The body broke off.
    Broken(BoxError),
}

/// A body in memory, with its trailers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    pub(crate) trailers: Option<Box<HeaderMap>>,
}

impl Whole {
    /// True without bytes and trailers.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.trailers.is_none()
    }

    pub(crate) fn into_body<B>(self) -> Body<B> {
        Body::whole(self.bytes).with_trailers(self.trailers)
    }
}

/// Reads a body to its end, or until it exceeds `limit` bytes.
#[expect(clippy::manual_async_fn, reason = "an async fn would keep the body twice")]
pub(crate) fn buffer<B>(mut body: B, limit: usize) -> impl Future<Output = Buffered<B>>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    async move {
        if body.size_hint().lower() > limit as u64 {
            return Buffered::TooLarge { read: Bytes::new(), rest: body };
        }
        let mut read = Chunks::default();
        let mut trailers = None;
        while let Some(frame) = body.frame().await {
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => {
                    read.push(data);
                    if read.len() > limit {
                        return Buffered::TooLarge { read: read.finish(), rest: body };
                    }
                    // Usually known by now, which saves a poll.
                    if body.is_end_stream() {
                        break;
                    }
                }
                Ok(Err(other)) => trailers = other.into_trailers().ok().map(Box::new),
                Err(error) => return Buffered::Broken(error.into()),
            }
        }
        Buffered::Whole(Whole { bytes: read.finish(), trailers })
    }
}

/// Data frames joined into one buffer; a single frame is not copied.
#[derive(Default)]
pub(crate) struct Chunks {
    first: Bytes,
    more: BytesMut,
}

impl Chunks {
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
    async fn a_body_within_the_limit_is_buffered_whole() {
        for chunks in [&[][..], &["abc"], &["a", "", "bc"], &["", "abc"]] {
            let Buffered::Whole(whole) = buffer(streamed(chunks), 3).await else {
                panic!("{chunks:?}")
            };
            assert_eq!(whole.bytes, chunks.concat());
            let body = whole.into_body::<Full<Bytes>>();
            assert_eq!(body.size_hint().exact(), Some(chunks.concat().len() as u64));
            assert_eq!(text(body).await, chunks.concat());
        }
    }

    #[tokio::test]
    async fn nothing_is_lost_of_a_body_over_the_limit() {
        for chunks in [&["abcd"][..], &["ab", "cd", "ef"]] {
            let Buffered::TooLarge { read, rest } = buffer(streamed(chunks), 3).await else {
                panic!()
            };
            assert_eq!(text(Body::resumed(read, rest)).await, chunks.concat());
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
        let Buffered::Whole(whole) = buffer(collected, 10).await else { panic!() };
        assert_eq!((whole.bytes.as_ref(), whole.trailers.is_some()), (&b"abc"[..], true));
    }
}
