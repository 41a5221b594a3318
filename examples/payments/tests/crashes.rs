//! The shop is killed at each of the six points where it may die, again and again, in front of a
//! provider that loses requests and answers; the history checker judges what came of it.
//!
//! `ONCEWARD_ROUNDS=100 cargo test -p example-payments --test crashes` is the long form.

#[path = "crashes/mortal.rs"]
mod mortal;
#[path = "crashes/process.rs"]
mod process;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use example_payments::{Charging, Line, Orders, Provider};
use mortal::Place;
use onceward::{Clock as _, Ended, Fence, Fingerprint, RecordId, SystemAmbient};
use onceward_testkit::history::{Answer, Attempt, Event, Expectations, History, Outcome, check};
use process::{LEASE, Process};
use tempfile::TempDir;

/// How often the shop dies at each point; `ONCEWARD_ROUNDS` sets it.
fn rounds() -> u64 {
    std::env::var("ONCEWARD_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap())
}

/// A shop that dies at a place, and all that outlives it.
struct Trial {
    store: String,
    place: Place,
    resolver: bool,
    directory: TempDir,
    provider: Provider,
    line: Arc<Line>,
    client: reqwest::Client,
    history: History,
    attempts: u64,
}

/// What a client was told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Paid(Vec<u8>),
    Unknown,
    /// To come again.
    Later,
    Nothing,
}

impl Trial {
    async fn new(store: &str, place: Place, resolver: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let records = directory.path().join("records");
        let store = store.replace("{records}", records.to_str().unwrap());
        let provider = Provider::default();
        let line = Line::open(&provider, 0).await.unwrap();
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0);
        let client = client.timeout(Duration::from_secs(20)).build().unwrap();
        let history = History::default();
        Self { store, place, resolver, directory, provider, line, client, history, attempts: 0 }
    }

    async fn start(&self, place: Option<Place>) -> Process {
        let (store, provider) = (&self.store, format!("http://{}", self.line.address()));
        Process::start(store, &provider, &self.book(), self.resolver, place).await
    }

    fn book(&self) -> std::path::PathBuf {
        self.directory.path().join("orders")
    }

    /// An order, its death, and its retries until they are answered for good.
    async fn round(&mut self, number: u64) {
        let card = ["tok_ok", "tok_lost_answer", "tok_lost_request"][number as usize % 3];
        let mut shop = self.start(Some(self.place)).await;
        let address = shop.address;
        let (order, dying) = (self.order(address, number, card), shop.dying());
        // Where the provider's answer is lost it may never come to the point.
        tokio::select! {
            () = dying => {}
            told = order => self.note(number, told),
        }
        shop.kill().await;

        let shop = self.start(None).await;
        let first = self.end(&shop, number, card).await;
        for _ in 0..2 {
            assert_eq!(self.end(&shop, number, card).await, first, "order {number}");
        }
        match &first {
            Told::Paid(_) => {}
            Told::Unknown => assert!(!self.resolver, "order {number} stays unknown"),
            Told::Later | Told::Nothing => unreachable!("it ended"),
        }
        shop.kill().await;
    }

    /// Asks until it is told something that stays.
    async fn end(&mut self, shop: &Process, number: u64, card: &str) -> Told {
        let patience = Instant::now() + Duration::from_secs(60);
        loop {
            let told = self.order(shop.address, number, card).await;
            self.note(number, told.clone());
            let stays = match told {
                Told::Paid(_) => true,
                Told::Unknown => !self.resolver,
                Told::Later | Told::Nothing => false,
            };
            if stays {
                return told;
            }
            assert!(Instant::now() < patience, "order {number} is still {told:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn order(
        &self,
        address: std::net::SocketAddr,
        number: u64,
        card: &str,
    ) -> impl Future<Output = Told> + use<> {
        let body = format!(r#"{{"amountCents":{},"card":"{card}"}}"#, number + 1);
        let request = self.client.post(format!("http://{address}/orders"));
        let request = request.header("idempotency-key", format!("order-{number}"));
        let sending = request.header("content-type", "application/json").body(body).send();
        async move {
            let Ok(answer) = sending.await else { return Told::Nothing };
            let status = answer.status().as_u16();
            let Ok(body) = answer.bytes().await else { return Told::Nothing };
            match status {
                201 => Told::Paid(body.to_vec()),
                409 if body.windows(7).any(|it| it == b"UNKNOWN") => Told::Unknown,
                _ => Told::Later,
            }
        }
    }

    fn note(&mut self, number: u64, told: Told) {
        self.attempts += 1;
        let (attempt, record, fingerprint) =
            (Attempt(self.attempts), record(number), Fingerprint::of_parts(&[b"order"]));
        let answer = match told {
            Told::Paid(bytes) => {
                let (fence, ended) = (Fence(0), Ended::Completed);
                Answer::Replay(Outcome { record, fingerprint, fence, ended, bytes })
            }
            Told::Unknown => Answer::Unknown,
            Told::Later => Answer::NoWord,
            Told::Nothing => return,
        };
        self.history.push(Event::Answered { attempt, record, fingerprint, answer });
    }

    /// The provider's books are the ledger: amounts tell whose charge it is.
    fn charges(&self) -> BTreeMap<u64, usize> {
        let mut charges = BTreeMap::new();
        for (index, charge) in self.provider.charges().into_iter().enumerate() {
            let number = charge.amount_cents - 1;
            let (record, fence) = (record(number), Fence(0));
            // By somebody whom nobody was told about.
            let attempt = Attempt(1_000_000 + index as u64);
            self.history.push(Event::Effect { record, fence, attempt });
            *charges.entry(number).or_default() += 1;
        }
        charges
    }

    async fn judge(self, rounds: u64) {
        let charges = self.charges();
        let elsewhere = Expectations { claims_elsewhere: true, ..Expectations::default() };
        let now = SystemAmbient::new().now();
        let violations = check(&self.history.events(), &[], now, elsewhere);
        assert!(violations.is_empty(), "{violations:#?}");
        // Not one of them is charged any more, whatever is left: leases lapse once more.
        let shop = self.start(None).await;
        tokio::time::sleep(LEASE * 3).await;
        shop.kill().await;
        assert_eq!(self.provider.charges().len(), charges.values().sum::<usize>());
        let unknown = process::unknown(&self.store).await;
        let paid = Orders::at(&self.book()).unwrap().charges();
        println!(
            "{:?} on {}: {rounds} rounds, {} charges, {unknown} unknown",
            self.place,
            self.store.split(':').next().unwrap(),
            charges.len()
        );
        if self.resolver {
            let one_each: BTreeMap<u64, usize> = (0..rounds).map(|number| (number, 1)).collect();
            assert_eq!((charges, unknown), (one_each, 0));
            assert_eq!(paid.len() as u64, rounds, "the shop's book has them all");
        } else {
            assert!(charges.values().all(|charges| *charges == 1));
        }
    }
}

fn record(number: u64) -> RecordId {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    RecordId::from_bytes(bytes)
}

async fn trial(store: &str, place: Place, resolver: bool) {
    let mut trial = Trial::new(store, place, resolver).await;
    for number in 0..rounds() {
        trial.round(number).await;
    }
    trial.judge(rounds()).await;
}

/// What the shop is when it is started by a trial.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shop_to_be_killed() {
    process::shop_if_told(|store, charging: Charging, book: &Path| {
        (store, charging, Orders::at(book).unwrap())
    })
    .await;
}

macro_rules! trials {
    ($($place:ident)*) => {
        mod embedded {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $place() {
                    let place = super::Place::named(stringify!($place));
                    super::trial("file:{records}", place, true).await;
                }
            )*
        }
        mod embedded_without_resolver {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $place() {
                    let place = super::Place::named(stringify!($place));
                    super::trial("file:{records}", place, false).await;
                }
            )*
        }
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $place() {
                    let Some(store) = super::process::postgres(stringify!($place)) else { return };
                    super::trial(&store, super::Place::named(stringify!($place)), true).await;
                }
            )*
        }
        mod postgres_without_resolver {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $place() {
                    let name = concat!(stringify!($place), "_alone");
                    let Some(store) = super::process::postgres(name) else { return };
                    super::trial(&store, super::Place::named(stringify!($place)), false).await;
                }
            )*
        }
    };
}

trials! {
    before_the_claim
    after_the_claim
    after_the_order_before_the_charge
    after_the_charge_before_the_book
    after_the_book_before_completion
    after_completion_before_the_answer
}
