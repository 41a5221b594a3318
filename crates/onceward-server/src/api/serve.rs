//! A listener for one of the APIs.

use std::io;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::net::BoundAddress;

/// Time limit for a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves a router on an address until the future is dropped. Call it inside a runtime.
pub(crate) fn serve(
    bound: BoundAddress,
    router: Router,
) -> io::Result<impl Future<Output = ()> + Send + use<>> {
    Ok(accept(TcpListener::from_std(bound.into_socket())?, router))
}

async fn accept(listener: TcpListener, router: Router) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(50)).await; // out of file descriptors
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                // A client that closes its side after the request still has it executed.
                .half_close(true)
                .serve_connection(TokioIo::new(stream), service);
            served.await.ok(); // errors of one connection are the client's
        });
    }
}
