//! Accepting connections, and serving what comes on them.

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

use super::headers::{Peer, Place};
use super::interim::{Interim, WithInterim};
use super::patient::Patient;
use super::worker::Worker;
use super::{target, tls};
use crate::config::Limits;

/// How connections are served, the same for all of a listener.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) worker: Arc<Worker>,
    pub(super) limits: Limits,
    /// Read again with each reload.
    pub(super) tls: Option<Arc<ArcSwap<ServerConfig>>>,
    /// One place for each connection of all threads.
    pub(super) places: Arc<Semaphore>,
}

/// Serves connections until `stop`, and then those that are open until they are idle. Returns
/// only when all is off: until then, work whose client has gone goes on in this runtime.
pub(super) async fn serve(
    listener: std::net::TcpListener,
    serving: Serving,
    mut stop: Stop,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {} // forgets those that have ended
        let (stream, from) = tokio::select! {
            biased;
            _ = stop.wait_for(|running| *running != Running::On) => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, perhaps: some are given back soon.
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let Ok(place) = Arc::clone(&serving.places).try_acquire_owned() else {
            tracing::debug!("too many connections; one is turned away");
            continue;
        };
        let (serving, stop) = (serving.clone(), stop.clone());
        connections.spawn(async move {
            if let Err(error) = connection(stream, from, &serving, stop, place.into()).await {
                tracing::debug!(%error, "a connection broke");
            }
        });
    }
    drop(listener);
    let _or_the_gateway_is_gone = stop.wait_for(|running| *running == Running::Off).await;
    Ok(())
}

type Broken = Box<dyn std::error::Error + Send + Sync>;

/// Tells how long a gateway goes on.
pub(super) type Stop = watch::Receiver<Running>;

/// How long a gateway goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Running {
    /// Until it is told otherwise.
    On,
    /// Until what is running has ended.
    WindingUp,
    /// Until what is running has been answered: with a problem, where the upstream has not.
    CutOff,
    /// Not at all: what is running is dropped, as in a crash.
    Off,
}

async fn connection(
    stream: TcpStream,
    from: SocketAddr,
    serving: &Serving,
    stop: Stop,
    place: Place,
) -> Result<(), Broken> {
    stream.set_nodelay(true)?;
    let (host, place) = (from.ip().to_canonical(), Some(place));
    let mut peer = Peer { host, tls: false, trusted: false, subject: None, place, hints: None };
    let head_timeout = serving.limits.head_timeout.0;
    let Some(tls) = &serving.tls else {
        let preface = timeout(head_timeout, http2_preface(&stream)).await??;
        let stream = Patient::new(stream, serving.limits.write_timeout.0);
        return speak(stream, preface, peer, serving, stop).await;
    };
    let stream = Patient::new(stream, serving.limits.write_timeout.0);
    let acceptor = TlsAcceptor::from(tls.load_full());
    let stream = timeout(head_timeout, acceptor.accept(stream)).await??;
    let session = stream.get_ref().1;
    let http2 = session.alpn_protocol() == Some(b"h2");
    peer.tls = true;
    peer.subject =
        session.peer_certificates().and_then(|chain| chain.first()).and_then(tls::subject);
    speak(stream, http2, peer, serving, stop).await
}

/// Whether the client begins as HTTP/2 does, without taking anything from the stream.
async fn http2_preface(stream: &TcpStream) -> io::Result<bool> {
    const BEGINNING: &[u8] = b"PRI * HTTP/2.0";
    let mut seen = [0; BEGINNING.len()];
    let mut pause = Duration::from_millis(5);
    loop {
        let length = stream.peek(&mut seen).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if length == seen.len() || !BEGINNING.starts_with(&seen[..length]) {
            return Ok(seen == *BEGINNING);
        }
        // Peeking does not wait for more than is there. Who sends one letter and then
        // nothing must not keep us busy: we look less and less often.
        sleep(pause).await;
        pause *= 2;
    }
}

async fn speak<I>(
    stream: I,
    is_http2: bool,
    peer: Peer,
    serving: &Serving,
    stop: Stop,
) -> Result<(), Broken>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (worker, begun) = (Arc::clone(&serving.worker), Arc::new(AtomicBool::new(false)));
    let (beginning, stopping) = (Arc::clone(&begun), stop.clone());
    let interim = Interim::default();
    let beneath = interim.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        beginning.store(true, Ordering::Relaxed);
        let (worker, mut peer, stop) = (Arc::clone(&worker), peer.clone(), stopping.clone());
        let hints = (request.version() == Version::HTTP_11).then(|| interim.begin());
        peer.hints.clone_from(&hints);
        async move {
            let answer = match target::check(&request) {
                Ok(()) => worker.answer(request, peer, stop).await,
                Err(problem) => Ok(worker.refuse(problem, &request)),
            };
            if let Some(hints) = hints {
                hints.end();
            }
            answer
        }
    });
    if !is_http2 {
        let io = TokioIo::new(WithInterim::new(stream, beneath));
        let connection = http1(&serving.limits).serve_connection(io, service).with_upgrades();
        return Ok(until(connection, stop, http1::UpgradeableConnection::graceful_shutdown).await?);
    }
    let connection = http2(&serving.limits).serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        biased;
        ended = until(connection, stop, http2::Connection::graceful_shutdown) => Ok(ended?),
        () = nothing_begun(&begun, serving.limits.head_timeout.0) => {
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

/// Ends when a connection has had its time and no request came. HTTP/2 has no deadline of its
/// own for that: neither for its preface, nor for the first request.
async fn nothing_begun(begun: &AtomicBool, limit: Duration) {
    sleep(limit).await;
    if begun.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

/// Serves a connection to its end; after `stop`, to the end of what is running on it.
async fn until<C: Future>(
    connection: C,
    mut stop: Stop,
    wind_up: impl FnOnce(Pin<&mut C>),
) -> C::Output {
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        ended = connection.as_mut() => return ended,
        _ = stop.wait_for(|running| *running != Running::On) => wind_up(connection.as_mut()),
    }
    connection.await
}
