//! Kills, stops and pauses of the gateway, judged by the effects that the service counts.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::counting_service::{CountingService, Response, post, request};
use crate::process::Program;

/// Number of kills, unless `ONCEWARD_KILLS` sets it.
const KILLS: usize = 8;

fn kills() -> usize {
    std::env::var("ONCEWARD_KILLS").map_or(KILLS, |kills| kills.parse().unwrap())
}

/// Clients that send new keys until they are stopped, each key twice.
struct Load {
    stop: Arc<AtomicBool>,
    keys: Arc<Mutex<Vec<String>>>,
    clients: Vec<thread::JoinHandle<()>>,
}

impl Load {
    fn start(to: std::net::SocketAddr, path: &'static str, clients: usize) -> Self {
        let (stop, keys) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<String>>>::default());
        let number = Arc::<AtomicUsize>::default();
        let clients = (0..clients).map(|_| {
            let (stop, keys, number) = (Arc::clone(&stop), Arc::clone(&keys), Arc::clone(&number));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let key = format!("key-{}", number.fetch_add(1, Ordering::Relaxed));
                    keys.lock().unwrap().push(key.clone());
                    let first = post(to, path, &key);
                    let _retried_at_once = post(to, path, &key);
                    if first.is_none() {
                        // Otherwise thousands of keys would be sent while the gateway is down.
                        thread::sleep(Duration::from_millis(20));
                    }
                }
            })
        });
        let clients = clients.collect();
        Self { stop, keys, clients }
    }

    /// Stops the clients and returns all keys.
    fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        self.keys.lock().unwrap().clone()
    }
}

/// Final answer to the retries of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answered(Response),
    Unknown,
}

pub(crate) fn end_of(to: std::net::SocketAddr, path: &str, key: &str) -> End {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match post(to, path, key) {
            Some(answer) if answer.status == 201 => return End::Answered(answer),
            Some(answer) if answer.code() == Some("IDEMPOTENCY_OUTCOME_UNKNOWN") => {
                return End::Unknown;
            }
            other => assert!(Instant::now() < end, "{key} stays {other:?}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn killed_at_random_under_load_nothing_has_a_second_effect_and_nothing_hangs() {
    let service = CountingService::open();
    let data = tempfile::tempdir().unwrap();
    let listen = onceward_services::own_address().to_string();
    let start = || Program::gateway(service.address, data.path(), &listen, &[]);
    let mut gateway = start();
    let address = gateway.address();
    let load = Load::start(address, "5", 8);
    let mut pause = 37;
    for _ in 0..kills() {
        // Irregular, so that kills hit every phase.
        pause = (pause * 31 + 17) % 211;
        thread::sleep(Duration::from_millis(20 + pause));
        gateway.kill();
        gateway = start();
    }
    let keys = load.end();
    let (mut answered, mut unknown) = (0, 0);
    for key in &keys {
        match end_of(address, "5", key) {
            End::Answered(answer) => {
                answered += 1;
                assert_eq!(answer.body, format!("{{\"done\":\"{key}\"}}"));
                assert_eq!(service.effects(key), 1, "{key}");
            }
            End::Unknown => {
                unknown += 1;
                assert!(service.effects(key) <= 1, "{key}");
            }
        }
    }
    println!("{} kills, {} keys: {answered} answered, {unknown} unknown", kills(), keys.len());
    assert!(answered > kills() * 3 && keys.len() == answered + unknown);
}

#[test]
fn sigterm_under_load_answers_everything_that_it_took() {
    let service = CountingService::open();
    let data = tempfile::tempdir().unwrap();
    let gateway = Program::gateway(service.address, data.path(), "127.0.0.1:0", &[]);
    let address = gateway.address();
    // Running when the signal comes, and answered afterwards.
    let running: Vec<_> = (0..20)
        .map(|number| thread::spawn(move || post(address, "400", &format!("running-{number}"))))
        .collect();
    (0..20).for_each(|number| service.wait_for(&format!("running-{number}")));
    gateway.signal("-TERM");
    for answer in running {
        let answer = answer.join().unwrap().expect("an answer");
        assert_eq!(answer.status, 201);
    }
    let (success, printed) = gateway.wait();
    assert!(success && printed.contains("stopping"), "{printed}");
    let gateway = Program::gateway(service.address, data.path(), "127.0.0.1:0", &[]);
    for number in 0..20 {
        let key = format!("running-{number}");
        assert!(post(gateway.address(), "400", &key).unwrap().is_replay());
        assert_eq!(service.effects(&key), 1);
    }
}

#[test]
fn what_takes_longer_than_the_drain_is_marked_and_not_lost() {
    let service = CountingService::open();
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("onceward.toml");
    std::fs::write(&config, "[limits]\ndrain = \"300ms\"\n").unwrap();
    let records = data.path().join("records");
    let more = ["--config", config.to_str().unwrap()];
    let gateway = Program::gateway(service.address, &records, "127.0.0.1:0", &more);
    let address = gateway.address();
    let slow = thread::spawn(move || post(address, "5000", "slow"));
    service.wait_for("slow");
    gateway.signal("-TERM");
    let begun = Instant::now();
    assert!(gateway.wait().0);
    assert!(begun.elapsed() < Duration::from_secs(4));
    let cut = slow.join().unwrap().expect("an answer");
    assert_eq!((cut.status, cut.code()), (503, Some("GATEWAY_STOPPING")));
    let gateway = Program::gateway(service.address, &records, "127.0.0.1:0", &more);
    assert_eq!(end_of(gateway.address(), "5000", "slow"), End::Unknown);
    assert_eq!(service.effects("slow"), 1);
}

#[test]
fn a_drain_waits_for_work_whose_client_has_gone() {
    let service = CountingService::open();
    let data = tempfile::tempdir().unwrap();
    let gateway = Program::gateway(service.address, data.path(), "127.0.0.1:0", &[]);
    let mut client = std::net::TcpStream::connect(gateway.address()).unwrap();
    client.write_all(request("700", "gone", "close").as_bytes()).unwrap();
    service.wait_for("gone");
    drop(client);
    gateway.signal("-TERM");
    assert!(gateway.wait().0);
    let gateway = Program::gateway(service.address, data.path(), "127.0.0.1:0", &[]);
    assert!(post(gateway.address(), "700", "gone").unwrap().is_replay());
    assert_eq!(service.effects("gone"), 1);
}

#[test]
fn a_pause_of_three_leases_has_no_second_effect() {
    let service = CountingService::open();
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("onceward.toml");
    std::fs::write(&config, "[defaults]\nlease = \"1s\"\n").unwrap();
    let records = data.path().join("records");
    let more = ["--config", config.to_str().unwrap()];
    let gateway = Program::gateway(service.address, &records, "127.0.0.1:0", &more);
    let address = gateway.address();
    let first = thread::spawn(move || post(address, "300", "paused"));
    service.wait_for("paused");
    gateway.signal("-STOP");
    thread::sleep(Duration::from_secs(3)); // A stopped process has no other clock.
    gateway.signal("-CONT");
    let first = first.join().unwrap().expect("an answer");
    match end_of(address, "300", "paused") {
        End::Answered(answer) => assert_eq!(answer.body, first.body),
        End::Unknown => {}
    }
    assert_eq!(service.effects("paused"), 1);
}
