//! The shop as a child process, which the test kills.

use std::env;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use example_payments::{OrderLog, ProviderClient, Shop};
use onceward::stores::SharedStore;
use onceward::{OnLapse, Policy, Query, ReconcilerSettings, StateName};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdout, Command};

use super::crashing_store::{CrashPoint, CrashingStore, READY_TO_BE_KILLED, wait_for_kill};
use super::shop_store::StoreAddress;

/// Short, so that a dead shop is noticed soon, and long enough for a busy machine.
pub(crate) const LEASE: Duration = Duration::from_millis(600);

/// A running shop.
pub(crate) struct ShopProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
}

impl ShopProcess {
    pub(crate) async fn start(
        store: &StoreAddress,
        provider: &str,
        order_log: &Path,
        reconciler: bool,
        crash_point: Option<CrashPoint>,
    ) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "a_shop_to_be_killed", "--nocapture", "--test-threads=1"]);
        command
            .env("SHOP_STORE", &store.url)
            .env("SHOP_CACHE", store.cache.as_deref().unwrap_or_default())
            .env("SHOP_PROVIDER", provider)
            .env("SHOP_ORDER_LOG", order_log);
        command.env("SHOP_RECONCILER", if reconciler { "1" } else { "" });
        command.env("SHOP_CRASH_POINT", crash_point.map_or("", CrashPoint::name));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        loop {
            let line = lines.next_line().await.unwrap().expect("the shop listens before it ends");
            if let Some((_, address)) = line.split_once("listening on ") {
                return Self { child, lines, address: address.parse().unwrap() };
            }
        }
    }

    /// Waits until the shop has reached its crash point.
    pub(crate) async fn reached_crash_point(&mut self) {
        while let Some(line) = self.lines.next_line().await.unwrap() {
            if line.contains(READY_TO_BE_KILLED) {
                return;
            }
        }
        panic!("the shop has ended before its crash point");
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Serves until the process is killed, if [`ShopProcess::start`] started this process.
pub(crate) async fn run_shop_if_child() {
    let Ok(url) = env::var("SHOP_STORE") else { return };
    let var = |name| env::var(name).unwrap();
    let cache = Some(var("SHOP_CACHE")).filter(|url| !url.is_empty());
    let crash_point = Some(var("SHOP_CRASH_POINT")).filter(|name| !name.is_empty());
    let crash_point = crash_point.map(|name| CrashPoint::named(&name));
    let store = StoreAddress { url, cache }.connect().await.unwrap();
    let store: SharedStore = Arc::new(CrashingStore { store, crash_point });
    let provider = ProviderClient::new(var("SHOP_PROVIDER")).unwrap();
    let order_log = OrderLog::open(Path::new(&var("SHOP_ORDER_LOG"))).unwrap();
    // Only the reconciler asks the provider about unknown outcomes, retries do not.
    let policy = Policy::builder().lease(LEASE).on_lapse(OnLapse::Unknown);
    let mut shop = Shop::new(store, provider, order_log).policy(policy).without_resolver();
    if !var("SHOP_RECONCILER").is_empty() {
        let (every, backoff) = (Duration::from_millis(50), Duration::from_millis(50));
        shop = shop.reconciler(ReconcilerSettings { every, backoff, ..Default::default() });
    }
    let shop = shop.on_checkpoint(move |checkpoint| {
        if crash_point.is_some_and(|point| point.is_at(checkpoint)) {
            wait_for_kill();
        }
    });
    let routes = shop.into_router().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("\nlistening on {}", listener.local_addr().unwrap());
    axum::serve(listener, routes).await.unwrap();
}

/// Number of unknown operations in a store that no other process uses.
pub(crate) async fn count_unknown(store: &StoreAddress) -> usize {
    let store = store.connect().await.unwrap();
    let query = Query { standing: Some(StateName::Unknown), limit: 10_000, ..Query::default() };
    let page = store.list(&query).await.unwrap();
    assert!(page.next.is_none());
    let orders = page.records.iter().filter(|it| it.scope.operation() == "orders.create");
    orders.count()
}
