//! Stores on servers: errors when a server is down, always without its password.

use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use onceward_services::{Postgres, Redis, Server, or_skip};

use crate::counting_service::{CountingService, post};
use crate::process::{Program, free_port, run};

/// The password of every store here.
const CANARY: &str = "canary-password-4d1b";

fn with_login(server: &Server, user: &str) -> String {
    let url = server.url().replace("postgres@", "");
    url.replace("://", &format!("://{user}:{CANARY}@"))
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn assert_no_password(place: &str, text: &str) {
    assert!(!text.contains(CANARY), "the password is in {place}:\n{text}");
}

fn does_not_start(url: &str) -> String {
    let arguments =
        ["gateway", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--store", url];
    let (succeeded, output) = run(&arguments);
    assert!(!succeeded, "{output}");
    assert_no_password("an error", &output);
    output
}

#[test]
fn a_store_that_is_down_at_the_start_is_named_with_what_to_do() {
    let place = format!("127.0.0.1:{}", free_port());
    for (scheme, path) in [("redis", "/0"), ("redis-cluster", ""), ("postgres", "/shop")] {
        let output = does_not_start(&format!("{scheme}://shop:{CANARY}@{place}{path}"));
        assert!(output.contains(&format!("{scheme}://{place}")), "{output}");
        assert!(output.contains("check that the server runs"), "{output}");
    }
}

#[test]
fn a_wrong_url_is_told_without_its_password() {
    let login = format!("shop:{CANARY}");
    for url in [
        format!("redis://{login}@h:port"),
        format!("redis://{login}@h?colour=red"),
        format!("redis://{login}@h?timeout={CANARY}"),
        format!("redis:{login}@h"),
        format!("postgres://{login}@h:port/d"),
        format!("postgres://{login}@h:5432:5433/d"),
        format!("postgres://h/d?listen_url={CANARY}&sslmode={CANARY}"),
        format!("radish://{login}@h"),
    ] {
        assert!(does_not_start(&url).contains("store.url"), "{url}");
    }
}

#[test]
fn a_configuration_with_a_password_is_checked_without_telling_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("onceward.toml");
    for (line, is_fine) in [
        (format!("url = \"redis://:{CANARY}@h\""), true),
        (format!("url = \"postgres://u:{CANARY}@h/d\"\n[defaults]\nlease = \"2s\""), true),
        (format!("url = \"redis://:{CANARY}@h\" oops"), false),
        (format!("url = \"postgres://h/d\"\ncache = \"redis://:{CANARY}@h\""), true),
        (format!("url = \"redis://h\"\ncache = \"redis://:{CANARY}@h\""), false),
        (format!("url = \"radish://:{CANARY}@h\""), false),
    ] {
        fs::write(&file, format!("[store]\n{line}\n")).unwrap();
        let (succeeded, output) = run(&["config", "check", file.to_str().unwrap()]);
        assert_eq!(succeeded, is_fine, "{output}");
        assert_no_password("config check", &output);
        assert_no_password("config explain", &run(&["config", "explain", "store"]).1);
    }
}

/// Starts a gateway that logs everything, with the store's URL in its configuration.
fn start(service: &CountingService, url: &str, directory: &Path) -> Program {
    let config = directory.join("onceward.toml");
    let text = format!("[store]\nurl = \"{url}\"\n[telemetry]\nlog = \"trace\"\n");
    fs::write(&config, text).unwrap();
    let upstream = format!("http://{}", service.address);
    let arguments = [
        "gateway",
        "--config",
        config.to_str().unwrap(),
        "--upstream",
        &upstream,
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--single-tenant",
    ];
    let logs = File::create(directory.join("logs")).unwrap();
    Program::start_logging(&arguments, "metrics at", logs.into())
}

/// Stops and restarts the server of a running gateway's store.
fn goes_and_comes_back(server: &Server, url: &str, kind: &str) {
    let (service, directory) = (CountingService::open(), tempfile::tempdir().unwrap());
    let gateway = start(&service, url, directory.path());
    let send = |key: &str| post(gateway.address(), "0", key).expect("an answer");
    assert_eq!(send("before").status, 201);
    assert!(gateway.admin("/ready").starts_with("HTTP/1.1 200"));

    server.stop().unwrap();
    let mut output = String::new();
    eventually("not ready", || {
        output = gateway.admin("/ready");
        output.starts_with("HTTP/1.1 503")
    });
    assert!(output.contains("the store: "), "{output}");
    let refused = send("meanwhile");
    assert_eq!((refused.status, refused.code()), (503, Some("IDEMPOTENCY_STORE_UNAVAILABLE")));
    assert_eq!(service.effects("meanwhile"), 0);
    assert!(gateway.admin("/live").starts_with("HTTP/1.1 200"));

    server.start().unwrap();
    eventually("ready", || gateway.admin("/ready").starts_with("HTTP/1.1 200"));
    eventually("claims", || send("meanwhile").status == 201);
    assert!(send("before").is_replay());
    assert_eq!((service.effects("before"), service.effects("meanwhile")), (1, 1));

    let metrics = gateway.admin("/metrics");
    let granted = format!("onceward_store_calls_total{{store=\"{kind}\",call=\"claim\"");
    assert!(metrics.contains(&granted), "{metrics}");
    let printed = gateway.printed.clone();
    gateway.signal("-TERM");
    assert!(gateway.wait().0);
    let logs = fs::read_to_string(directory.path().join("logs")).unwrap();
    assert!(logs.lines().count() > 3, "{logs}");
    for (place, text) in
        [("/ready", output), ("/metrics", metrics), ("logs", logs), ("standard output", printed)]
    {
        assert_no_password(place, &text);
    }
}

#[test]
fn a_redis_that_goes_away_and_comes_back_is_told_and_its_password_is_not() {
    let settings = Redis::default().setting("requirepass", CANARY);
    let Some(server) = or_skip(settings.start()) else { return };
    let wrong = with_login(&server, "default").replace(CANARY, "canary-wrong-password");
    let output = does_not_start(&wrong);
    assert!(output.contains("authentication failed") && !output.contains("canary"), "{output}");
    goes_and_comes_back(&server, &with_login(&server, "default"), "redis");
}

#[test]
fn a_postgres_that_goes_away_and_comes_back_is_told_and_its_password_is_not() {
    let Some(server) = or_skip(Postgres::default().fsync(false).start()) else { return };
    goes_and_comes_back(&server, &with_login(&server, "postgres"), "postgres");
}
