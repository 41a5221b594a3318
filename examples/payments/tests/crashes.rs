//! Kills the shop with SIGKILL at six points of an order, several rounds each, on every durable
//! store. The provider loses requests and responses, and ignores idempotency keys. The history
//! checker verifies the results. The points of a store are tried concurrently, because most of the
//! time goes into waiting for leases.
//!
//! `ONCEWARD_ROUNDS=100 cargo test -p example-payments --test crashes` runs more rounds.

#[path = "crashes/crashing_store.rs"]
mod crashing_store;
#[path = "crashes/shop_process.rs"]
mod shop_process;
#[path = "crashes/shop_store.rs"]
mod shop_store;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crashing_store::CrashPoint;
use example_payments::{OrderLog, Provider, ProviderServer};
use onceward::{Clock as _, Ended, Fence, Fingerprint, RecordId, SystemAmbient};
use onceward_testkit::history::{Answer, Attempt, Event, Expectations, History, Outcome, check};
use shop_process::{LEASE, ShopProcess};
use shop_store::{ShopStore, StoreKind};
use tempfile::TempDir;

/// Rounds for each crash point, from `ONCEWARD_ROUNDS`.
fn rounds() -> u64 {
    std::env::var("ONCEWARD_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap())
}

/// Test of a crash point, with everything that survives the shop's process.
struct CrashTest {
    store: ShopStore,
    crash_point: CrashPoint,
    outage: Outage,
    reconciler: bool,
    directory: TempDir,
    provider: Provider,
    provider_server: Arc<ProviderServer>,
    client: reqwest::Client,
    history: History,
    attempts: u64,
}

/// Event at the store's Redis, while the shop is stopped at its crash point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outage {
    None,
    /// It is killed with SIGKILL, and started again before the shop.
    RedisKilled,
    /// All its data is deleted.
    RedisFlushed,
}

/// Response that a client got to an order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ClientResult {
    /// 201 with this body.
    Paid(Vec<u8>),
    /// 409: the outcome is unknown.
    Unknown,
    /// A response that asks for a retry.
    Retry,
    /// No response.
    Nothing,
}

impl CrashTest {
    async fn new(store: ShopStore, crash_point: CrashPoint, reconciler: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let provider = Provider::without_idempotency();
        let provider_server = ProviderServer::start(&provider, 0).await.unwrap();
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0);
        let client = client.timeout(Duration::from_secs(20)).build().unwrap();
        let history = History::default();
        Self {
            store,
            crash_point,
            outage: Outage::None,
            reconciler,
            directory,
            provider,
            provider_server,
            client,
            history,
            attempts: 0,
        }
    }

    async fn start_shop(&self, crash_point: Option<CrashPoint>) -> ShopProcess {
        let provider = format!("http://{}", self.provider_server.address());
        let order_log = self.order_log();
        let address = &self.store.address;
        ShopProcess::start(address, &provider, &order_log, self.reconciler, crash_point).await
    }

    fn order_log(&self) -> PathBuf {
        self.directory.path().join("orders")
    }

    /// Sends an order, kills the shop, and retries the order until its result is final.
    async fn round(&mut self, number: u64) {
        let card = ["tok_ok", "tok_lost_answer", "tok_lost_request"][number as usize % 3];
        let mut shop = self.start_shop(Some(self.crash_point)).await;
        let address = shop.address;
        let (order, crash) = (self.order(address, number, card), shop.reached_crash_point());
        // If the provider's response is lost, the shop may not reach the crash point.
        tokio::select! {
            () = crash => {}
            result = order => self.record(number, result),
        }
        match self.outage {
            Outage::None => shop.kill().await,
            Outage::RedisKilled => {
                self.store.kill_redis();
                shop.kill().await;
                self.store.start_redis();
            }
            Outage::RedisFlushed => {
                self.store.flush_redis();
                shop.kill().await;
            }
        }

        let shop = self.start_shop(None).await;
        let first = self.retry_until_final(&shop, number, card).await;
        for _ in 0..2 {
            assert_eq!(self.retry_until_final(&shop, number, card).await, first, "order {number}");
        }
        match &first {
            ClientResult::Paid(_) => {}
            ClientResult::Unknown => assert!(!self.reconciler, "order {number} stays unknown"),
            ClientResult::Retry | ClientResult::Nothing => unreachable!("not final"),
        }
        shop.kill().await;
    }

    /// Retries an order until its result is final.
    async fn retry_until_final(
        &mut self,
        shop: &ShopProcess,
        number: u64,
        card: &str,
    ) -> ClientResult {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let result = self.order(shop.address, number, card).await;
            self.record(number, result.clone());
            let is_final = match result {
                ClientResult::Paid(_) => true,
                ClientResult::Unknown => !self.reconciler,
                ClientResult::Retry | ClientResult::Nothing => false,
            };
            if is_final {
                return result;
            }
            assert!(Instant::now() < deadline, "order {number} is still {result:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn order(
        &self,
        address: std::net::SocketAddr,
        number: u64,
        card: &str,
    ) -> impl Future<Output = ClientResult> + use<> {
        let body = format!(r#"{{"amountCents":{},"card":"{card}"}}"#, number + 1);
        let request = self.client.post(format!("http://{address}/orders"));
        let request = request.header("idempotency-key", format!("order-{number}"));
        let sending = request.header("content-type", "application/json").body(body).send();
        async move {
            let Ok(response) = sending.await else { return ClientResult::Nothing };
            let status = response.status().as_u16();
            let Ok(body) = response.bytes().await else { return ClientResult::Nothing };
            match status {
                201 => ClientResult::Paid(body.to_vec()),
                409 if body.windows(7).any(|it| it == b"UNKNOWN") => ClientResult::Unknown,
                _ => ClientResult::Retry,
            }
        }
    }

    fn record(&mut self, number: u64, result: ClientResult) {
        self.attempts += 1;
        let (attempt, record, fingerprint) =
            (Attempt(self.attempts), record_id(number), Fingerprint::of_parts(&[b"order"]));
        let answer = match result {
            ClientResult::Paid(bytes) => {
                let (fence, ended) = (Fence(0), Ended::Completed);
                Answer::Replay(Outcome { record, fingerprint, fence, ended, bytes })
            }
            ClientResult::Unknown => Answer::Unknown,
            ClientResult::Retry => Answer::NoWord,
            ClientResult::Nothing => return,
        };
        self.history.push(Event::Answered { attempt, record, fingerprint, answer });
    }

    /// Number of charges of each order, from the provider's ledger. The amount identifies the order.
    fn charge_counts(&self) -> BTreeMap<u64, usize> {
        let mut charges = BTreeMap::new();
        for (index, charge) in self.provider.charges().into_iter().enumerate() {
            let number = charge.amount_cents - 1;
            let (record, fence) = (record_id(number), Fence(0));
            // An attempt other than those of the clients.
            let attempt = Attempt(1_000_000 + index as u64);
            self.history.push(Event::Effect { record, fence, attempt });
            *charges.entry(number).or_default() += 1;
        }
        charges
    }

    async fn verify(self, rounds: u64) {
        let charges = self.charge_counts();
        let elsewhere = Expectations { claims_elsewhere: true, ..Expectations::default() };
        let now = SystemAmbient::new().now();
        let violations = check(&self.history.events(), &[], now, elsewhere);
        assert!(violations.is_empty(), "{violations:#?}");
        // No further charges are made while the remaining leases lapse.
        let shop = self.start_shop(None).await;
        tokio::time::sleep(LEASE * 3).await;
        shop.kill().await;
        assert_eq!(self.provider.charges().len(), charges.values().sum::<usize>());
        let unknown = shop_process::count_unknown(&self.store.address).await;
        let paid = OrderLog::open(&self.order_log()).unwrap().charges();
        println!(
            "{:?} on {:?}: {rounds} rounds, {} charges, {unknown} unknown",
            self.crash_point,
            self.store.kind,
            charges.len()
        );
        if self.reconciler {
            let one_each: BTreeMap<u64, usize> = (0..rounds).map(|number| (number, 1)).collect();
            assert_eq!((charges, unknown), (one_each, 0));
            assert_eq!(paid.len() as u64, rounds, "the order log has all orders");
        } else {
            assert!(charges.values().all(|charges| *charges == 1));
        }
    }
}

fn record_id(number: u64) -> RecordId {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    RecordId::from_bytes(bytes)
}

impl CrashTest {
    async fn run(mut self) {
        for number in 0..rounds() {
            self.round(number).await;
        }
        self.verify(rounds()).await;
    }
}

/// Kills the shop at each of the six points, on stores of their own.
async fn at_every_point(kind: StoreKind, reconciler: bool) {
    let mut tests = Vec::new();
    for (name, crash_point) in CrashPoint::ALL {
        let variant = if reconciler { "" } else { "_alone" };
        let Some(store) = ShopStore::new(kind, &format!("{name}{variant}")) else { return };
        let test = CrashTest::new(store, crash_point, reconciler).await;
        tests.push((name, tokio::spawn(test.run())));
    }
    let mut failed = Vec::new();
    for (name, test) in tests {
        if test.await.is_err() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "on {kind:?}, killed {failed:?}");
}

/// Kills the shop at its worst point, where the charge is made and neither the order log nor the
/// store has it, and lets something happen to Redis there.
async fn after_the_charge(kind: StoreKind, outage: Outage) {
    let name = format!("{outage:?}").to_lowercase();
    let Some(store) = ShopStore::with_own_redis(kind, &name) else { return };
    let test = CrashTest::new(store, CrashPoint::AfterCharge, true).await;
    CrashTest { outage, ..test }.run().await;
}

/// Entry point of the child process. Does nothing in the test process itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shop_to_be_killed() {
    shop_process::run_shop_if_child().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_six_points_an_order_is_charged_once_on_the_embedded_store() {
    at_every_point(StoreKind::Embedded, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_six_points_an_order_is_charged_once_on_postgres() {
    at_every_point(StoreKind::Postgres, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_six_points_an_order_is_charged_once_on_redis() {
    at_every_point(StoreKind::Redis, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_six_points_an_order_is_charged_once_on_postgres_behind_redis() {
    at_every_point(StoreKind::Tiered, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_resolver_no_order_is_charged_twice_on_the_embedded_store() {
    at_every_point(StoreKind::Embedded, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_resolver_no_order_is_charged_twice_on_postgres() {
    at_every_point(StoreKind::Postgres, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_killed_after_the_charge_costs_no_charge() {
    after_the_charge(StoreKind::Redis, Outage::RedisKilled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_before_postgres_that_is_killed_after_the_charge_costs_no_charge() {
    after_the_charge(StoreKind::Tiered, Outage::RedisKilled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_before_postgres_that_is_flushed_after_the_charge_costs_no_charge() {
    after_the_charge(StoreKind::Tiered, Outage::RedisFlushed).await;
}
