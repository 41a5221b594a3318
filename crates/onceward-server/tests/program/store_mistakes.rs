//! Operating mistakes with the store of a running gateway: each ends in refusals.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use onceward_services::{Postgres, Server, ask, or_skip, query};

use crate::counting_service::{CountingService, post};
use crate::process::{Program, run};

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a gateway with an admin address.
fn gateway(upstream: SocketAddr, store: &str) -> Program {
    gateway_logging(upstream, store, Stdio::inherit())
}

fn gateway_logging(upstream: SocketAddr, store: &str, logs: Stdio) -> Program {
    let upstream = format!("http://{upstream}");
    let arguments = [
        "gateway",
        "--upstream",
        &upstream,
        "--store",
        store,
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--single-tenant",
    ];
    Program::start_logging(&arguments, "metrics at", logs)
}

fn known_keys() -> Vec<String> {
    (0..120).map(|index| format!("known-{index}")).collect()
}

/// Sends all known keys and asserts that each is refused with a code.
fn assert_refused(gateway: &Program, code: &str) {
    for key in known_keys() {
        let answer = post(gateway.address(), "0", &key).unwrap();
        assert_eq!((answer.status, answer.code()), (503, Some(code)), "{key}");
    }
}

fn assert_one_effect_each(service: &CountingService) {
    for key in known_keys() {
        assert_eq!(service.effects(&key), 1, "{key}");
    }
}

/// Accepts the loss as an operator does, and finds it in the audit log.
fn accept_loss(store: &str) {
    let accept = ["store", "accept-loss", "--store", store, "--reason", "clients are stopped"];
    let (succeeded, output) = run(&accept);
    assert!(!succeeded && output.contains("--yes"), "it needs a confirmation: {output}");
    let (succeeded, output) = run(&[&accept[..], &["--yes"]].concat());
    assert!(succeeded && output.contains("the loss is accepted"), "{output}");
    let (succeeded, output) = run(&[&accept[..], &["--yes", "--json"]].concat());
    assert!(succeeded && output.contains("\"reopened\": false"), "{output}");
    let (succeeded, output) = run(&["operations", "trail", "--store", store, "--json"]);
    assert!(succeeded && output.matches("loss_accepted").count() == 1, "{output}");
    assert!(
        output.contains("clients are stopped") && output.contains("\"by\": \"cli:"),
        "{output}"
    );
}

/// Removes the records while one gateway runs, and starts others afterwards.
fn lost_records_are_refused(server: &Server, remove: impl Fn()) {
    let service = CountingService::open();
    let mut first = gateway(service.address, server.url());
    for key in known_keys() {
        assert_eq!(post(first.address(), "0", &key).unwrap().status, 201);
    }
    remove();
    // The first gateway is restarted before the next claim.
    first.kill();
    let restarted = gateway(service.address, server.url());
    assert_refused(&restarted, "IDEMPOTENCY_STORE_UNAVAILABLE");
    for gateway in [&restarted, &gateway(service.address, server.url())] {
        let ready = gateway.admin("/ready");
        assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
        assert!(ready.contains("the store: ") && ready.contains("accept-loss"), "{ready}");
    }
    assert_one_effect_each(&service);
    accept_loss(server.url());
    assert!(restarted.admin("/ready").starts_with("HTTP/1.1 200"));
    assert_eq!(post(restarted.address(), "0", "new").unwrap().status, 201);
}

/// A gateway restarted after FLUSHALL let 115 of 120 known keys run again.
#[test]
fn after_a_flush_of_redis_a_restarted_gateway_runs_no_known_key() {
    let Some(server) = onceward_services::redis() else { return };
    lost_records_are_refused(&server, || drop(ask(&server, &["FLUSHALL"]).unwrap()));
}

/// A truncated table let 171 of 171 known keys run again.
#[test]
fn after_the_table_in_postgres_was_truncated_a_restarted_gateway_runs_no_known_key() {
    let Some(server) = or_skip(Postgres::default().fsync(false).start()) else { return };
    lost_records_are_refused(&server, || {
        drop(query(&server, "TRUNCATE onceward.idempotency_record").unwrap());
    });
}

/// Eviction switched on while a gateway runs let 40 keys run twice.
#[test]
fn a_redis_that_begins_to_evict_is_refused_until_an_operator_has_looked() {
    let Some(server) = onceward_services::redis() else { return };
    let service = CountingService::open();
    let gateway = gateway(service.address, server.url());
    for key in known_keys() {
        assert_eq!(post(gateway.address(), "0", &key).unwrap().status, 201);
    }
    let set =
        |name: &str, value: &str| drop(ask(&server, &["CONFIG", "SET", name, value]).unwrap());
    set("maxmemory-policy", "allkeys-random");
    let mut ready = String::new();
    eventually("not ready", || {
        ready = gateway.admin("/ready");
        ready.starts_with("HTTP/1.1 503")
    });
    assert!(ready.contains("maxmemory-policy is `allkeys-random`"), "{ready}");
    set("maxmemory", "1mb");
    let stats = || format!("{:?}", ask(&server, &["INFO", "stats"]).unwrap());
    eventually("evicted", || !stats().contains("evicted_keys:0"));
    set("maxmemory", "0");
    set("maxmemory-policy", "noeviction");
    eventually("lost", || gateway.admin("/ready").contains("records were lost"));
    for key in known_keys() {
        let answer = post(gateway.address(), "0", &key).unwrap();
        assert!(answer.status == 503 || answer.is_replay(), "{key}: {}", answer.status);
    }
    assert_one_effect_each(&service);
}

#[test]
fn a_nearly_full_disk_is_told_at_the_start_in_ready_and_by_a_code_of_its_own() {
    let (service, directory) = (CountingService::open(), tempfile::tempdir().unwrap());
    let data = directory.path().join("data");
    let store = |reserve: u64| format!("file:{}?reserve_bytes={reserve}", data.display());
    let free = rustix::fs::statvfs(directory.path()).map(|it| it.f_bavail * it.f_frsize).unwrap();
    let refusing = gateway(service.address, &store(free * 4));
    let answer = post(refusing.address(), "0", "key").unwrap();
    assert_eq!((answer.status, answer.code()), (503, Some("IDEMPOTENCY_STORE_FULL")));
    let ready = refusing.admin("/ready");
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("MiB are free"), "{ready}");
    drop(refusing);

    let logs = directory.path().join("logs");
    let file = fs::File::create(&logs).unwrap();
    let warned = gateway_logging(service.address, &store(free / 4 * 3), file.into());
    assert_eq!(post(warned.address(), "0", "key").unwrap().status, 201);
    let ready = warned.admin("/ready");
    assert!(ready.starts_with("HTTP/1.1 200") && ready.contains("warning: the store"), "{ready}");
    let logged = fs::read_to_string(&logs).unwrap();
    assert!(logged.contains("MiB are free"), "{logged}");
}

#[test]
fn a_full_redis_is_told_in_ready_and_by_a_code_of_its_own() {
    let Some(server) = onceward_services::redis() else { return };
    let service = CountingService::open();
    let gateway = gateway(service.address, server.url());
    assert_eq!(post(gateway.address(), "0", "before").unwrap().status, 201);
    let used = format!("{:?}", ask(&server, &["INFO", "memory"]).unwrap());
    let used: u64 =
        used.split("used_memory:").nth(1).unwrap().split('\\').next().unwrap().parse().unwrap();
    let set = |bytes: u64| {
        drop(ask(&server, &["CONFIG", "SET", "maxmemory", &bytes.to_string()]).unwrap());
    };
    set(used + used / 20);
    eventually("warned", || {
        gateway.admin("/ready").contains("warning: the store: memory runs out")
    });
    set(1);
    eventually("not ready", || gateway.admin("/ready").contains("its memory is full"));
    let answer = post(gateway.address(), "0", "new").unwrap();
    assert_eq!((answer.status, answer.code()), (503, Some("IDEMPOTENCY_STORE_FULL")));
    assert!(post(gateway.address(), "0", "before").unwrap().is_replay());
    set(0);
    eventually("ready", || gateway.admin("/ready").starts_with("HTTP/1.1 200"));
    assert_eq!(post(gateway.address(), "0", "new").unwrap().status, 201);
}

/// After its `lock` was deleted, a second gateway opened the directory: 30 of 30 keys ran twice.
#[test]
fn a_deleted_lock_file_lets_no_second_gateway_open_the_directory() {
    let (service, directory) = (CountingService::open(), tempfile::tempdir().unwrap());
    let data = directory.path().join("data");
    let gateway = Program::gateway(service.address, &data, "127.0.0.1:0", &[]);
    assert_eq!(post(gateway.address(), "0", "before").unwrap().status, 201);
    fs::remove_file(data.join("lock")).unwrap();
    let (upstream, store) =
        (format!("http://{}", service.address), format!("file:{}", data.display()));
    let second = ["gateway", "--upstream", &upstream, "--listen", "127.0.0.1:0", "--store", &store];
    let (started, output) = run(&second);
    assert!(!started && output.contains("is open in another process"), "{output}");
    assert!(post(gateway.address(), "0", "before").unwrap().is_replay());
    assert_eq!(post(gateway.address(), "0", "after").unwrap().status, 201);
}

fn everything_in(directory: &Path, found: &mut Vec<PathBuf>) {
    found.push(directory.to_owned());
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { everything_in(&path, found) } else { found.push(path) }
    }
}

#[test]
fn only_its_owner_may_read_what_a_gateway_keeps_and_what_is_exported() {
    let (service, directory) = (CountingService::open(), tempfile::tempdir().unwrap());
    let data = directory.path().join("data");
    let mut gateway = Program::gateway(service.address, &data, "127.0.0.1:0", &[]);
    assert_eq!(post(gateway.address(), "0", "key").unwrap().status, 201);
    gateway.kill();
    let export = directory.path().join("export.jsonl");
    let store = format!("file:{}", data.display());
    let (succeeded, output) = run(&[
        "records",
        "export",
        "--store",
        &store,
        "--outcomes",
        "--to",
        export.to_str().unwrap(),
    ]);
    assert!(succeeded, "{output}");
    let mut found = vec![export];
    everything_in(&data, &mut found);
    assert!(found.len() > 8, "{found:?}");
    for path in found {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} is {mode:o}", path.display());
    }
}
