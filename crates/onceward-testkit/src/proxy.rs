//! A TCP proxy that injects network faults between a store and its server.
//!
//! It knows no protocol. A *message* is what one read of a socket yields: on a connection that
//! waits for its answer before it asks again, that is one request or one reply, unless it is
//! larger than 64 KiB.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Most bytes of one message.
const MESSAGE_BYTES: usize = 64 * 1024;

/// Direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Request,
    /// From the server to the client, after the server has handled the request.
    Reply,
}

/// A fault of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The connection is cut, and the message is lost.
    Cut,
    /// The first half of the message passes, then the connection is cut.
    Halve,
    /// The message and all later ones of the connection are delayed.
    Delay(Duration),
    /// The message and all later ones in this direction never arrive; the connection stays open.
    Swallow,
}

/// A proxy before one server. Without planned faults it is transparent. Dropping it cuts all
/// connections.
///
/// It runs in the tokio runtime that made it.
///
/// ```
/// # use onceward_testkit::proxy::{Proxy, Trouble, Way};
/// # async fn test(server: std::net::SocketAddr) -> std::io::Result<()> {
/// let proxy = Proxy::to(server).await?;
/// proxy.on_nth(3, Way::Reply, Trouble::Cut);
/// let url = format!("redis://{}/", proxy.address());
/// # Ok(())
/// # }
/// ```
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: AbortHandle,
}

struct Shared {
    target: SocketAddr,
    plans: Mutex<Vec<Plan>>,
    fired: AtomicUsize,
    passed: [AtomicUsize; 2],
    shut: AtomicBool,
    /// Number of times that all connections were cut. A connection ends when it changes.
    cuts: watch::Sender<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    way: Way,
    skip: usize,
    times: usize,
    trouble: Trouble,
}

impl Proxy {
    /// A proxy before the server at `target`, on a free loopback port.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    pub async fn to(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target,
            plans: Mutex::default(),
            fired: AtomicUsize::new(0),
            passed: Default::default(),
            shut: AtomicBool::new(false),
            cuts: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, address, accepting })
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Injects a fault into the n-th message in this direction from now, counted from one over
    /// all connections.
    pub fn on_nth(&self, n: usize, way: Way, trouble: Trouble) {
        self.plan(Plan { way, skip: n.saturating_sub(1), times: 1, trouble });
    }

    /// Injects a fault into every message in this direction until [`Proxy::heal`].
    pub fn on_every(&self, way: Way, trouble: Trouble) {
        self.plan(Plan { way, skip: 0, times: usize::MAX, trouble });
    }

    /// Cuts all connections and refuses new ones. Returns when no connection is left, because a
    /// later cut would be a fault after [`Proxy::heal`].
    pub async fn shut(&self) {
        self.shared.shut.store(true, Ordering::SeqCst);
        self.cut();
        self.shared.cuts.closed().await;
    }

    fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Removes all planned faults and accepts connections again. Lost messages stay lost.
    pub fn heal(&self) {
        self.shared.plans.lock().clear();
        self.shared.shut.store(false, Ordering::SeqCst);
    }

    /// Number of faults injected so far. A test whose fault never occurred shows nothing.
    pub fn fired(&self) -> usize {
        self.shared.fired.load(Ordering::SeqCst)
    }

    /// Number of messages so far, in this direction.
    pub fn passed(&self, way: Way) -> usize {
        self.shared.passed[way as usize].load(Ordering::SeqCst)
    }

    fn plan(&self, plan: Plan) {
        self.shared.plans.lock().push(plan);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("address", &self.address)
            .field("target", &self.shared.target)
            .field("plans", &*self.shared.plans.lock())
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// The fault of the message that has just come, if any.
    fn next_trouble(&self, way: Way) -> Option<Trouble> {
        self.passed[way as usize].fetch_add(1, Ordering::SeqCst);
        let mut plans = self.plans.lock();
        let mut found = None;
        for plan in plans.iter_mut().filter(|plan| plan.way == way) {
            if plan.skip > 0 {
                plan.skip -= 1;
            } else if found.is_none() {
                plan.times -= 1;
                found = Some(plan.trouble);
            }
        }
        plans.retain(|plan| plan.times > 0);
        self.fired.fetch_add(usize::from(found.is_some()), Ordering::SeqCst);
        found
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        // A connection that fails before it is accepted is the client's error.
        let Ok((client, _)) = listener.accept().await else { continue };
        // Subscribed before the check, so that a cut from here on ends this connection, too.
        let cuts = shared.cuts.subscribe();
        if !shared.shut.load(Ordering::SeqCst) {
            tokio::spawn(serve(cuts, client, Arc::clone(&shared)));
        }
    }
}

/// Runs one connection until a side ends it, a fault cuts it, or all connections are cut.
async fn serve(mut cuts: watch::Receiver<u64>, client: TcpStream, shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(shared.target).await else { return };
    for side in [&client, &server] {
        // Without it small messages wait for each other. If it fails they are only slower.
        let _only_slower = side.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = pass(from_client, to_server, Way::Request, &shared) => {}
        () = pass(from_server, to_client, Way::Reply, &shared) => {}
        _ = cuts.changed() => {}
    }
}

/// Forwards messages in one direction. Returns when the connection is to end.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Way, shared: &Shared) {
    let mut message = vec![0; MESSAGE_BYTES];
    loop {
        let size = match from.read(&mut message).await {
            Ok(0) | Err(_) => return,
            Ok(size) => size,
        };
        let trouble = shared.next_trouble(way);
        let kept = match trouble {
            None => size,
            Some(Trouble::Cut) => return,
            Some(Trouble::Halve) => size / 2,
            Some(Trouble::Delay(delay)) => {
                tokio::time::sleep(delay).await;
                size
            }
            Some(Trouble::Swallow) => return std::future::pending().await,
        };
        if to.write_all(&message[..kept]).await.is_err() || trouble == Some(Trouble::Halve) {
            return;
        }
    }
}
