//! Two gateway processes on one store.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use onceward_services::{Postgres, Redis, Server, or_skip};

use crate::counting_service::{Connection, CountingService, Response};
use crate::kills::{End, end_of};
use crate::process::Program;
use crate::threats::long;

/// Number of times that each key is sent.
const DUPLICATES: usize = 8;
const CLIENTS: usize = 16;

fn keys() -> usize {
    if long() { 10_000 } else { 500 }
}

fn redis() -> Option<Server> {
    or_skip(Redis::default().start())
}

fn postgres() -> Option<Server> {
    or_skip(Postgres::default().start())
}

/// Two gateways in front of one service.
struct Pair {
    service: CountingService,
    nodes: [Program; 2],
    _config: tempfile::TempDir,
}

impl Pair {
    fn start(server: &Server, settings: &str) -> Self {
        let (service, directory) = (CountingService::open(), tempfile::tempdir().unwrap());
        let config = directory.path().join("onceward.toml");
        std::fs::write(&config, format!("[store]\nreplicas = true\n{settings}")).unwrap();
        let more = ["--config", config.to_str().unwrap()];
        let node = || Program::gateway_on(service.address, server.url(), &more);
        Self { nodes: [node(), node()], service, _config: directory }
    }

    fn addresses(&self) -> [SocketAddr; 2] {
        [self.nodes[0].address(), self.nodes[1].address()]
    }
}

/// Pseudorandom numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// Keys in sending order. Duplicates are within a few dozen other keys, so most of them arrive while
/// the first runs, and some later.
fn schedule(keys: usize) -> Vec<usize> {
    let mut dice = Dice(7);
    let mut sent: Vec<usize> =
        (0..keys).flat_map(|key| std::iter::repeat_n(key, DUPLICATES)).collect();
    for place in 0..sent.len() {
        let other = (place + dice.below(64)).min(sent.len() - 1);
        sent.swap(place, other);
    }
    sent
}

/// Sends all keys to both nodes at random, and returns all answers per key.
fn send_all(nodes: [SocketAddr; 2], keys: usize) -> Vec<Vec<Response>> {
    let (sent, next) = (Arc::new(schedule(keys)), Arc::<AtomicUsize>::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (sent, next) = (Arc::clone(&sent), Arc::clone(&next));
            thread::spawn(move || {
                let mut dice = Dice(client as u64);
                let mut lines = nodes.map(Connection::open);
                let mut answers = Vec::new();
                while let Some(key) = sent.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answer = lines[dice.below(2)].post("2", &format!("key-{key}"));
                    answers.push((*key, answer.expect("an answer")));
                }
                answers
            })
        })
        .collect();
    let mut by_key = vec![Vec::new(); keys];
    for (key, answer) in clients.into_iter().flat_map(|client| client.join().unwrap()) {
        by_key[key].push(answer);
    }
    by_key
}

fn one_effect_each(server: &Server, kind: &str) {
    let pair = Pair::start(server, "");
    let (keys, begun) = (keys(), Instant::now());
    let answers = send_all(pair.addresses(), keys);
    let took = begun.elapsed();
    let mut counts = BTreeMap::<_, usize>::new();
    for (number, answers) in answers.iter().enumerate() {
        let key = format!("key-{number}");
        assert_eq!(answers.len(), DUPLICATES);
        assert_eq!(pair.service.effects(&key), 1, "{key}");
        for answer in answers {
            let what = match (answer.status, answer.code()) {
                (201, _) if answer.is_replay() => "replayed",
                (201, _) => "executed",
                (409, Some("IDEMPOTENCY_REQUEST_IN_PROGRESS")) => "in progress",
                _ => panic!("{key} got {answer:?}"),
            };
            *counts.entry(what).or_default() += 1;
            if answer.status == 201 {
                assert_eq!(answer.body, format!("{{\"done\":\"{key}\"}}"));
            }
        }
        let executed = answers.iter().filter(|it| it.status == 201 && !it.is_replay()).count();
        assert_eq!(executed, 1, "{key}");
    }
    let rate = (keys * DUPLICATES) as f64 / took.as_secs_f64();
    println!("{kind}: {keys} keys × {DUPLICATES} in {took:.1?} ({rate:.0}/s): {counts:?}");
}

#[test]
fn two_processes_on_one_redis_have_one_effect_a_key() {
    let Some(server) = redis() else { return };
    one_effect_each(&server, "redis");
}

#[test]
fn two_processes_on_one_postgres_have_one_effect_a_key() {
    let Some(server) = postgres() else { return };
    one_effect_each(&server, "postgres");
}

/// Keys that clients sent, and their answers.
#[derive(Default)]
struct Seen {
    all: BTreeSet<String>,
    /// Not answered because the node died.
    cut_off: BTreeSet<String>,
    /// Number of answers by the other node since then.
    after: usize,
}

/// Clients that send new keys to both nodes, and only to the second once the first is dead.
struct Load {
    stop: Arc<AtomicBool>,
    dead: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    clients: Vec<thread::JoinHandle<()>>,
}

impl Load {
    fn start(nodes: [SocketAddr; 2]) -> Self {
        let (stop, dead) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (seen, number) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicUsize>::default());
        let clients = (0..CLIENTS).map(|client| {
            let (stop, dead) = (Arc::clone(&stop), Arc::clone(&dead));
            let (seen, number) = (Arc::clone(&seen), Arc::clone(&number));
            thread::spawn(move || {
                let mut lines = nodes.map(Connection::open);
                while !stop.load(Ordering::Relaxed) {
                    let key = format!("key-{}", number.fetch_add(1, Ordering::Relaxed));
                    seen.lock().unwrap().all.insert(key.clone());
                    let to = if dead.load(Ordering::Relaxed) { 1 } else { client % 2 };
                    match lines[to].post("20", &key) {
                        Some(answer) => {
                            assert_eq!(answer.status, 201, "{key} got {answer:?}");
                            seen.lock().unwrap().after += usize::from(dead.load(Ordering::Relaxed));
                        }
                        None => {
                            assert_eq!(to, 0, "the node that lives answers");
                            seen.lock().unwrap().cut_off.insert(key);
                            dead.store(true, Ordering::Relaxed);
                        }
                    }
                }
            })
        });
        let clients = clients.collect();
        Self { stop, dead, seen, clients }
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Seen) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so(&self.seen.lock().unwrap()) {
            assert!(Instant::now() < end, "never: {what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        assert!(self.dead.load(Ordering::Relaxed));
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

/// Kills one of two nodes under load: the other goes on, and interrupted requests are at worst
/// unknown.
fn one_of_two_dies(server: &Server, kind: &str) {
    // The shortest lease that is safe on a machine busy with other tests.
    let mut pair = Pair::start(server, "[defaults]\nlease = \"6s\"\n");
    let nodes = pair.addresses();
    let load = Load::start(nodes);
    load.wait_until("some load", |seen| seen.all.len() > 200);
    pair.nodes[0].kill();
    load.wait_until("the other goes on", |seen| seen.after > 200);
    let seen = load.end();
    let (mut answered, mut unknown) = (0, 0);
    for key in &seen.all {
        match end_of(nodes[1], "20", key) {
            End::Answered(answer) => {
                answered += 1;
                assert_eq!(answer.body, format!("{{\"done\":\"{key}\"}}"));
                assert_eq!(pair.service.effects(key), 1, "{key}");
            }
            End::Unknown => {
                unknown += 1;
                assert!(seen.cut_off.contains(key), "{key} was answered, and is unknown");
                assert!(pair.service.effects(key) <= 1, "{key}");
            }
        }
    }
    let (keys, cut_off) = (seen.all.len(), seen.cut_off.len());
    println!("{kind}: {keys} keys, {cut_off} cut off: {answered} answered, {unknown} unknown");
    assert!(unknown <= cut_off);
}

#[test]
fn of_two_processes_on_one_redis_one_may_die() {
    let Some(server) = redis() else { return };
    one_of_two_dies(&server, "redis");
}

#[test]
fn of_two_processes_on_one_postgres_one_may_die() {
    let Some(server) = postgres() else { return };
    one_of_two_dies(&server, "postgres");
}
