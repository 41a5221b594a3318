//! Plain servers for tests, over either protocol.

use std::convert::Infallible;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::client::Protocol;

/// A server on its own port. Dropping it ends the accepting of connections.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Serves a handler on a free port of this machine. A client that hangs up cancels its
    /// handler, as in axum and hyper.
    pub fn start<H: Handle>(protocol: Protocol, handler: H) -> std::io::Result<Self> {
        let listener = listen(0)?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(accept(protocol, TcpListener::from_std(listener)?, handler));
        Ok(Self { address, accepting })
    }

    /// `http://127.0.0.1:port`.
    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A server that can die with all that it is doing, and come back at the same address: for
/// [`Trouble::Crash`](super::Trouble::Crash). It runs on one thread and a runtime of its own.
pub struct MortalServer {
    address: SocketAddr,
    live: Box<dyn Fn(StdListener) -> RunningServer + Send + Sync>,
    life: Mutex<Option<RunningServer>>,
}

struct RunningServer {
    end: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl MortalServer {
    /// Serves what `handler` makes for each life.
    pub fn start<H: Handle>(
        protocol: Protocol,
        handler: impl Fn() -> H + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let handler = Arc::new(handler);
        let live = move |listener| {
            let (end, ended) = oneshot::channel();
            let handler = Arc::clone(&handler);
            let thread = thread::spawn(move || live(protocol, listener, handler(), ended));
            RunningServer { end, thread }
        };
        let listener = listen(0)?;
        let address = listener.local_addr()?;
        let life = Mutex::new(Some(live(listener)));
        Ok(Self { address, live: Box::new(live), life })
    }

    /// Drops every task of the server, and starts it again.
    ///
    /// # Panics
    /// When the port is taken meanwhile.
    pub async fn crash(&self) {
        let life = self.life.lock().take();
        let (port, ending) =
            (self.address.port(), tokio::task::spawn_blocking(|| life.map(RunningServer::end)));
        ending.await.expect("the server's thread ends");
        let listener = listen(port).expect("the port is free again");
        *self.life.lock() = Some((self.live)(listener));
    }

    /// `http://127.0.0.1:port`.
    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for MortalServer {
    fn drop(&mut self) {
        if let Some(life) = self.life.lock().take() {
            life.end();
        }
    }
}

impl std::fmt::Debug for MortalServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MortalServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl RunningServer {
    fn end(self) {
        // Fails only if the thread has ended already.
        self.end.send(()).ok();
        self.thread.join().ok();
    }
}

/// A handler that a server can be started with: any such function.
pub trait Handle: Clone + Send + Sync + 'static {
    /// Answers a request.
    fn answer(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// The body of its answers.
    type Body: http_body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>
        + Send
        + 'static;
}

impl<H, F, B> Handle for H
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    type Body = B;

    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<B>> + Send {
        self(request)
    }
}

/// A listener for any runtime. The suite connects 500 times at once; the 128 places of the
/// standard library's queue would have the system turn some of them away under load.
fn listen(port: u16) -> std::io::Result<StdListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    socket.listen(1024)?.into_std()
}

/// One life: until it is told to end, and then everything in the runtime is dropped.
fn live<H: Handle>(
    protocol: Protocol,
    listener: StdListener,
    handler: H,
    end: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async move {
        let listener = TcpListener::from_std(listener).expect("a listener that is open");
        tokio::spawn(accept(protocol, listener, handler));
        end.await.ok();
    });
}

async fn accept<H: Handle>(protocol: Protocol, listener: TcpListener, handler: H) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(protocol, stream, handler.clone()))),
            // Out of file descriptors, perhaps: some are given back soon.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn serve<H: Handle>(protocol: Protocol, stream: TcpStream, handler: H) {
    stream.set_nodelay(true).ok();
    let service = service_fn(move |request| {
        let handler = handler.clone();
        async move { Ok::<_, Infallible>(handler.answer(request).await) }
    });
    let io = TokioIo::new(stream);
    // A broken connection is the client's error.
    match protocol {
        Protocol::Http1 => http1::Builder::new().serve_connection(io, service).await.ok(),
        Protocol::Http2 => {
            http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await.ok()
        }
    };
}
