//! Serving until told to stop, and stopping without leaving anybody in the dark.

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

/// Ends at Ctrl-C, and at the SIGTERM of an orchestrator.
pub async fn stop_signal() {
    let interrupt = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminate = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => _ = signals.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}
