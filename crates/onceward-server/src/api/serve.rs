//! A listener for one of our own APIs.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::time::sleep;

/// Longest time until a request's head is there.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Listens, and says on which address it does; the future serves until it is dropped.
pub(crate) async fn serve(
    address: SocketAddr,
    router: Router,
) -> io::Result<(SocketAddr, impl Future<Output = ()> + Send + use<>)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((address, accept(listener, router)))
}

async fn accept(listener: TcpListener, router: Router) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(50)).await; // no file is free at the moment
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                // Who hangs up after its request is heard all the same.
                .half_close(true)
                .serve_connection(TokioIo::new(stream), service);
            served.await.ok(); // a connection that breaks is the client's affair
        });
    }
}
