//! Serving until told to stop, and stopping without leaving anybody in the dark.

use std::io;
use std::time::Duration;

use axum::Router;
use onceward::{Drained, Engine};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long finished answers may take to reach their clients.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// Serves until `stop`. Then takes no new requests, waits up to `drain_max` for those that
/// run, and marks the rest as unknown: a retry at another instance hears at once that nobody
/// knows, instead of when the lease lapses.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    engine: Engine,
    drain_max: Duration,
    stop: impl Future<Output = ()>,
) -> Drained {
    let (close, closing) = oneshot::channel::<()>();
    let closing = async { closing.await.unwrap_or_default() };
    let server = axum::serve(listener, app).with_graceful_shutdown(closing);
    let server = tokio::spawn(server.into_future());
    stop.await;
    drop(close);
    let drained = engine.drain(drain_max).await;
    // A client that does not read its answer must not keep the process alive.
    let _who_is_too_slow_retries = timeout(LAST_BYTES, server).await;
    drained
}

/// Listens for Ctrl-C and for the SIGTERM of an orchestrator, from the call on; the future ends
/// at the first of them. Call it before anybody is told that the service is there: a signal
/// that comes earlier kills the process.
#[cfg(unix)]
pub fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Listens for Ctrl-C.
#[cfg(windows)]
pub fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = tokio::signal::windows::ctrl_c()?;
    Ok(async move { _ = interrupt.recv().await })
}
