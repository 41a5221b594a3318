//! Serves until a stop signal, then shuts down gracefully.

use std::io;
use std::time::Duration;

use axum::Router;
use onceward::{Drained, Engine};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Time limit for sending the last responses to their clients.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves until `stop`. Then accepts no new requests, waits up to `drain_max` for the running ones,
/// and marks the rest as unknown, so that retries at another instance need not wait for the lease
/// to lapse.
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
    // A client that does not read its response must not keep the process alive.
    let _closed = timeout(CLOSE_TIMEOUT, server).await;
    drained
}

/// Registers handlers for Ctrl-C and SIGTERM. The future ends at the first signal. Call it before
/// the service announces its address: a signal that comes earlier kills the process.
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

/// Registers a handler for Ctrl-C. The future ends at the first signal.
#[cfg(windows)]
pub fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = tokio::signal::windows::ctrl_c()?;
    Ok(async move { _ = interrupt.recv().await })
}
