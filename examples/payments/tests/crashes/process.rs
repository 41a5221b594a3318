//! The shop as a process of its own, to be killed by its parent.

use std::env;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use example_payments::{Charging, Orders, Shop};
use onceward::stores::{SharedStore, connect};
use onceward::{OnLapse, Policy, Query, ReconcilerSettings, StateName};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdout, Command};

use super::mortal::{HERE, Mortal, Place, die};

/// So short that a dead shop is noticed soon, and long enough for a busy machine.
pub(crate) const LEASE: Duration = Duration::from_millis(600);

/// A running shop.
pub(crate) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
}

impl Process {
    pub(crate) async fn start(
        store: &str,
        provider: &str,
        book: &Path,
        resolver: bool,
        place: Option<Place>,
    ) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "a_shop_to_be_killed", "--nocapture", "--test-threads=1"]);
        command.env("SHOP_STORE", store).env("SHOP_PROVIDER", provider).env("SHOP_BOOK", book);
        command.env("SHOP_RESOLVER", if resolver { "1" } else { "" });
        command.env("SHOP_DIES", place.map_or("", Place::name));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        loop {
            let line = lines.next_line().await.unwrap().expect("the shop opens");
            if let Some((_, address)) = line.split_once("open at ") {
                return Self { child, lines, address: address.parse().unwrap() };
            }
        }
    }

    /// Returns when it is where it is to be killed.
    pub(crate) async fn dying(&mut self) {
        while let Some(line) = self.lines.next_line().await.unwrap() {
            if line.contains(HERE) {
                return;
            }
        }
        panic!("the shop has ended by itself");
    }

    /// SIGKILL.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Serves for ever, if this process was started as a shop.
pub(crate) async fn shop_if_told(
    made_of: impl FnOnce(SharedStore, Charging, &Path) -> (SharedStore, Charging, Orders),
) {
    let Ok(store) = env::var("SHOP_STORE") else { return };
    let var = |name| env::var(name).unwrap();
    let place = Some(var("SHOP_DIES")).filter(|name| !name.is_empty());
    let place = place.map(|name| Place::named(&name));
    let store: SharedStore = Arc::new(Mortal { store: connect(&store).await.unwrap(), place });
    let charging = Charging::at(var("SHOP_PROVIDER")).unwrap();
    let (store, charging, orders) = made_of(store, charging, Path::new(&var("SHOP_BOOK")));
    // Only the reconciler is to find out: claims ask nobody.
    let policy = Policy::builder().lease(LEASE).on_lapse(OnLapse::Unknown);
    let mut shop = Shop::new(store, charging, orders).policy(policy).without_resolver();
    if !var("SHOP_RESOLVER").is_empty() {
        let (every, backoff) = (Duration::from_millis(50), Duration::from_millis(50));
        shop = shop.reconciled(ReconcilerSettings { every, backoff, ..Default::default() });
    }
    let shop = shop.watched(move |point| {
        if place.is_some_and(|place| place.is_at(point)) {
            die();
        }
    });
    let routes = shop.open().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("\nopen at {}", listener.local_addr().unwrap());
    axum::serve(listener, routes).await.unwrap();
}

/// How many operations stand at unknown in a store that nobody else uses.
pub(crate) async fn unknown(store: &str) -> usize {
    let store = connect(store).await.unwrap();
    let query = Query { standing: Some(StateName::Unknown), limit: 10_000, ..Query::default() };
    let page = store.list(&query).await.unwrap();
    assert!(page.next.is_none());
    let orders = page.records.iter().filter(|it| it.scope.operation() == "orders.create");
    orders.count()
}

/// A schema of its own on a server that all trials share.
pub(crate) fn postgres(schema: &str) -> Option<String> {
    static SERVER: OnceLock<Option<onceward_services::Server>> = OnceLock::new();
    if env::var("SHOP_STORE").is_ok() {
        return None; // a shop needs no server of its own
    }
    let server = SERVER.get_or_init(onceward_services::postgres).as_ref()?;
    let short: String = schema.split('_').map(|word| &word[..word.len().min(3)]).collect();
    Some(format!("{}?schema={short}&connections=2", server.url()))
}
