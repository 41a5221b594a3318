//! An address whose target is set later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A TCP relay whose target is set later. For the gateway it looks like a service, so the check at
/// its start cannot find the loop.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    pub(crate) to: watch::Sender<Option<SocketAddr>>,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Relay {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (to, known) = watch::channel(None);
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let mut known = known.clone();
                tokio::spawn(async move {
                    let to = known.wait_for(Option::is_some).await.unwrap().unwrap();
                    let mut server = TcpStream::connect(to).await.unwrap();
                    copy_bidirectional(&mut client, &mut server).await.ok();
                });
            }
        });
        Self { address, to, connections }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.address)
    }
}
