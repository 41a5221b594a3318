//! Interim responses (1xx, such as `103 Early Hints`) from the upstream to a client over HTTP/1.1.
//!
//! hyper's client reports them, but its server cannot send them. So they are written to the client's
//! stream below hyper, between two messages: after a flush hyper has no unwritten bytes, and it
//! writes nothing while a request has no response yet.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use futures_util::task::AtomicWaker;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::headers;

/// Largest number of bytes that wait for a client to read. More is dropped: interim responses are
/// optional.
const BYTES_MAX: usize = 64 * 1024;

/// The interim responses of one connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Interim(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    connection: AtomicWaker,
}

#[derive(Debug, Default)]
struct State {
    /// Number of requests, so that a late interim response is not sent for the next request.
    request: u64,
    /// True while the request has no response.
    open: bool,
    pending: BytesMut,
    /// A part of `pending` is written, so the rest must follow.
    partly_written: bool,
    /// hyper has written since its last flush, and may have more of the same message.
    mid_message: bool,
}

/// Sends the interim responses of one request.
#[derive(Debug, Clone)]
pub(crate) struct InterimSender {
    interim: Interim,
    request: u64,
}

impl Interim {
    /// Begins a request. HTTP/1.1 has one request at a time on a connection.
    pub(super) fn begin(&self) -> InterimSender {
        let mut state = self.0.state.lock();
        state.request += 1;
        state.open = true;
        InterimSender { interim: self.clone(), request: state.request }
    }
}

impl InterimSender {
    /// Sends an interim response to the client, if the request has no response yet.
    pub(super) fn send(&self, status: StatusCode, headers: &HeaderMap) {
        let shared = &self.interim.0;
        // 100 and 101 are hop-by-hop.
        if matches!(status, StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS) {
            return;
        }
        let head = head(status, headers.clone());
        let mut state = shared.state.lock();
        let is_current = state.open && state.request == self.request;
        if is_current && state.pending.len() + head.len() <= BYTES_MAX {
            state.pending.extend_from_slice(&head);
            drop(state);
            shared.connection.wake();
        }
    }

    /// Ends the request: from now on an interim response is too late.
    pub(super) fn end(&self) {
        let mut state = self.interim.0.state.lock();
        if state.request == self.request {
            state.open = false;
            // hyper appends the response to the message that it is writing, so there is no gap.
            if state.mid_message && !state.partly_written {
                state.pending.clear();
            }
        }
    }
}

fn head(status: StatusCode, mut headers: HeaderMap) -> Vec<u8> {
    headers::remove_hop_by_hop(&mut headers);
    let reason = status.canonical_reason().unwrap_or_default();
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    for (name, value) in &headers {
        head.extend_from_slice(name.as_ref());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// A client's stream, with interim responses between hyper's messages.
pub(super) struct WithInterim<S> {
    stream: S,
    interim: Interim,
}

impl<S: AsyncWrite + Unpin> WithInterim<S> {
    pub(super) fn new(stream: S, interim: Interim) -> Self {
        Self { stream, interim }
    }

    /// Writes the pending responses, unless hyper is in the middle of a message.
    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.interim.0.state.lock();
        while !state.pending.is_empty() && !state.mid_message {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &state.pending))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            state.pending.advance(written);
            state.partly_written = !state.pending.is_empty();
        }
        Poll::Ready(Ok(()))
    }

    fn set_mid_message(&self, mid_message: bool) {
        self.interim.0.state.lock().mid_message = mid_message;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WithInterim<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WithInterim<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(cx))?;
        self.set_mid_message(true);
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(cx))?;
        self.set_mid_message(true);
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.interim.0.connection.register(cx.waker());
        self.set_mid_message(false);
        ready!(self.poll_pending(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const HINT: &[u8] = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";

    fn hint(sender: &InterimSender) {
        let link = [(http::header::LINK, HeaderValue::from_static("</a>"))];
        sender.send(StatusCode::EARLY_HINTS, &HeaderMap::from_iter(link));
    }

    /// The bytes that these steps write.
    async fn written(
        steps: impl AsyncFnOnce(&mut WithInterim<tokio::io::DuplexStream>, Interim),
    ) -> Vec<u8> {
        let (stream, mut other) = duplex(1024);
        let interim = Interim::default();
        let mut stream = WithInterim::new(stream, interim.clone());
        steps(&mut stream, interim).await;
        drop(stream);
        let mut bytes = Vec::new();
        other.read_to_end(&mut bytes).await.unwrap();
        bytes
    }

    #[tokio::test]
    async fn a_hint_comes_before_the_response_of_its_request() {
        let bytes = written(async |stream, interim| {
            let sender = interim.begin();
            hint(&sender);
            sender.end();
            stream.write_all(b"response").await.unwrap();
        });
        assert_eq!(bytes.await, [HINT, b"response"].concat());
    }

    #[tokio::test]
    async fn a_hint_that_comes_late_is_not_put_into_a_response_or_before_the_next() {
        let bytes = written(async |stream, interim| {
            let sender = interim.begin();
            sender.end();
            stream.write_all(b"res").await.unwrap();
            stream.flush().await.unwrap();
            hint(&sender);
            stream.write_all(b"ponse").await.unwrap();
            stream.flush().await.unwrap();
            let _next = interim.begin();
            hint(&sender);
            stream.write_all(b"next").await.unwrap();
        });
        assert_eq!(bytes.await, b"responsenext");
    }

    #[tokio::test]
    async fn a_hint_waits_for_the_end_of_what_is_being_written() {
        let bytes = written(async |stream, interim| {
            stream.write_all(b"fir").await.unwrap();
            let sender = interim.begin();
            hint(&sender);
            stream.write_all(b"st").await.unwrap();
            stream.flush().await.unwrap();
            sender.end();
            stream.write_all(b"response").await.unwrap();
        });
        assert_eq!(bytes.await, [b"first", HINT, b"response"].concat());
    }

    #[tokio::test]
    async fn a_hint_for_which_there_is_no_place_is_dropped() {
        let bytes = written(async |stream, interim| {
            stream.write_all(b"first").await.unwrap();
            let sender = interim.begin();
            hint(&sender);
            sender.end();
            stream.write_all(b"response").await.unwrap();
            stream.flush().await.unwrap();
        });
        assert_eq!(bytes.await, b"firstresponse");
    }

    #[tokio::test]
    async fn hints_that_nobody_reads_have_a_limit() {
        let interim = Interim::default();
        let sender = interim.begin();
        (0..BYTES_MAX).for_each(|_| hint(&sender));
        assert!(interim.0.state.lock().pending.len() <= BYTES_MAX);
    }
}
