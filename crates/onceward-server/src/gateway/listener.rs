//! Accepting and serving connections.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::headers::{ConnectionSlot, Peer};
use super::interim::{Interim, WithInterim};
use super::request_target;
use super::worker::Worker;
use crate::config::Limits;
use crate::net::{WriteTimeout, tls};

/// The settings and services of all connections of a listener.
#[derive(Clone)]
pub(super) struct ListenerContext {
    pub(super) worker: Arc<Worker>,
    pub(super) limits: Limits,
    /// Replaced by each reload.
    pub(super) tls: Option<Arc<ArcSwap<ServerConfig>>>,
    /// The connection limit of all threads together.
    pub(super) slots: Arc<Semaphore>,
}

/// Accepts connections until `stop`, then serves the open ones until they are idle. Returns only at
/// [`Shutdown::Off`]: until then, work whose client has disconnected goes on in this runtime.
pub(super) async fn serve(
    listener: std::net::TcpListener,
    context: ListenerContext,
    mut stop: Stop,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {} // removes ended connections
        let (stream, from) = tokio::select! {
            biased;
            _ = stop.wait_for(|running| *running != Shutdown::Serving) => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Possibly out of file descriptors; some are returned soon.
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let Ok(slot) = Arc::clone(&context.slots).try_acquire_owned() else {
            tracing::debug!("the connection limit is reached; a connection is refused");
            continue;
        };
        let (context, stop) = (context.clone(), stop.clone());
        connections.spawn(async move {
            if let Err(error) = connection(stream, from, &context, stop, slot.into()).await {
                tracing::debug!(%error, "a connection broke");
            }
        });
    }
    drop(listener);
    let _or_the_gateway_is_gone = stop.wait_for(|running| *running == Shutdown::Off).await;
    Ok(())
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

/// The phase of the shutdown, watched by each connection.
pub(super) type Stop = watch::Receiver<Shutdown>;

/// Phase of a gateway's shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shutdown {
    /// Requests are served.
    Serving,
    /// Running requests end; no connection is accepted.
    Draining,
    /// Running requests whose upstream has not answered get a problem.
    CutOff,
    /// Running requests are dropped, as in a crash.
    Off,
}

async fn connection(
    stream: TcpStream,
    from: SocketAddr,
    context: &ListenerContext,
    stop: Stop,
    slot: ConnectionSlot,
) -> Result<(), ConnectionError> {
    stream.set_nodelay(true)?;
    let (host, slot) = (from.ip().to_canonical(), Some(slot));
    let mut peer = Peer { host, tls: false, trusted: false, subject: None, slot, interim: None };
    let head_timeout = context.limits.head_timeout.0;
    let Some(tls) = &context.tls else {
        let preface = timeout(head_timeout, http2_preface(&stream)).await??;
        let stream = WriteTimeout::new(stream, context.limits.write_timeout.0);
        return serve_connection(stream, preface, peer, context, stop).await;
    };
    let stream = WriteTimeout::new(stream, context.limits.write_timeout.0);
    let acceptor = TlsAcceptor::from(tls.load_full());
    let stream = timeout(head_timeout, acceptor.accept(stream)).await??;
    let session = stream.get_ref().1;
    let http2 = session.alpn_protocol() == Some(b"h2");
    peer.tls = true;
    peer.subject =
        session.peer_certificates().and_then(|chain| chain.first()).and_then(tls::subject);
    serve_connection(stream, http2, peer, context, stop).await
}

/// Returns whether the client starts with the HTTP/2 preface, without reading from the stream.
async fn http2_preface(stream: &TcpStream) -> io::Result<bool> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0";
    let mut seen = [0; PREFACE.len()];
    let mut pause = Duration::from_millis(5);
    loop {
        let length = stream.peek(&mut seen).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if length == seen.len() || !PREFACE.starts_with(&seen[..length]) {
            return Ok(seen == *PREFACE);
        }
        // `peek` does not wait for more bytes. The pauses grow, so that a client that sends one
        // byte and then nothing costs no processor time.
        sleep(pause).await;
        pause *= 2;
    }
}

async fn serve_connection<I>(
    stream: I,
    is_http2: bool,
    peer: Peer,
    context: &ListenerContext,
    stop: Stop,
) -> Result<(), ConnectionError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (worker, begun) = (Arc::clone(&context.worker), Arc::new(AtomicBool::new(false)));
    let (request_seen, stopping) = (Arc::clone(&begun), stop.clone());
    let interim = Interim::default();
    let stream_interim = interim.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        request_seen.store(true, Ordering::Relaxed);
        let (worker, mut peer, stop) = (Arc::clone(&worker), peer.clone(), stopping.clone());
        let interim_sender = (request.version() == Version::HTTP_11).then(|| interim.begin());
        peer.interim.clone_from(&interim_sender);
        async move {
            let answer = match request_target::check(&request) {
                Ok(()) => worker.answer(request, peer, stop).await,
                Err(problem) => Ok(worker.refuse(problem, &request)),
            };
            if let Some(sender) = interim_sender {
                sender.end();
            }
            answer
        }
    });
    if !is_http2 {
        let io = TokioIo::new(WithInterim::new(stream, stream_interim));
        let connection = http1(&context.limits).serve_connection(io, service).with_upgrades();
        return Ok(run_until_stopped(
            connection,
            stop,
            http1::UpgradeableConnection::graceful_shutdown,
        )
        .await?);
    }
    let connection = http2(&context.limits).serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        biased;
        ended = run_until_stopped(connection, stop, http2::Connection::graceful_shutdown) => Ok(ended?),
        () = no_request_within(&begun, context.limits.head_timeout.0) => {
            Err(io::Error::from(io::ErrorKind::TimedOut).into())
        }
    }
}

fn http1(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout.0)
        .max_headers(limits.headers)
        .max_buf_size(usize::try_from(limits.head_bytes.0).unwrap_or(usize::MAX).max(8192));
    builder
}

fn http2(limits: &Limits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(limits.head_timeout.0))
        .keep_alive_timeout(limits.head_timeout.0)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.head_bytes.0).unwrap_or(u32::MAX));
    builder
}

/// Returns after `limit` if no request has come by then. hyper's HTTP/2 has no timeout of its own
/// for the preface and the first request.
async fn no_request_within(begun: &AtomicBool, limit: Duration) {
    sleep(limit).await;
    if begun.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

/// Serves a connection to its end, or after `stop` until its running requests have ended.
async fn run_until_stopped<C: Future>(
    connection: C,
    mut stop: Stop,
    shut_down: impl FnOnce(Pin<&mut C>),
) -> C::Output {
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        ended = connection.as_mut() => return ended,
        _ = stop.wait_for(|running| *running != Shutdown::Serving) => shut_down(connection.as_mut()),
    }
    connection.await
}
