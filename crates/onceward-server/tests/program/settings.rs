//! Configuration files, as an operator meets them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::book::{Book, post};
use crate::process::{Program, run};

#[test]
fn check_tells_mistakes_by_line_and_unwise_settings_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("onceward.toml");
    let path = file.to_str().unwrap();
    fs::write(&file, "[upstream]\nurll = \"http://a\"\n").unwrap();
    let (fine, told) = run(&["config", "check", path]);
    assert!(!fine && told.contains("line 2") && told.contains("urll"), "{told}");

    fs::write(&file, "[defaults]\nttl = \"1h\"\n").unwrap();
    let (fine, told) = run(&["config", "check", path]);
    assert!(fine && told.contains("warning: defaults.ttl"), "{told}");
    assert!(!run(&["config", "check", path, "--deny-warnings"]).0);
}

#[test]
fn the_printed_default_is_a_configuration() {
    let (fine, text) = run(&["config", "print-default"]);
    assert!(fine);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("onceward.toml");
    fs::write(&file, text).unwrap();
    let (fine, told) = run(&["config", "check", file.to_str().unwrap(), "--deny-warnings"]);
    assert!(fine, "{told}");
    let (fine, told) = run(&["config", "explain", "defaults.lease"]);
    assert!(fine && told.contains("without being renewed"), "{told}");
    assert!(!run(&["config", "explain", "nonsense"]).0);
}

#[test]
fn without_an_upstream_it_says_what_to_do() {
    let (fine, told) = run(&["gateway"]);
    assert!(!fine && told.contains("--upstream"), "{told}");
    let (fine, told) = run(&["gateway", "--upstream", "ftp://x"]);
    assert!(!fine && told.contains("http:// or https://"), "{told}");
}

#[test]
fn a_reload_changes_the_rules_and_a_bad_one_changes_nothing() {
    let book = Book::open();
    let directory = tempfile::tempdir().unwrap();
    let (file, pid) = (directory.path().join("onceward.toml"), directory.path().join("pid"));
    fs::write(&file, "").unwrap();
    let more = ["--config", file.to_str().unwrap(), "--pid-file", pid.to_str().unwrap()];
    let records = directory.path().join("records");
    let logs = directory.path().join("logs");
    let gateway = Program::gateway_logging(book.address, &records, &more, &logs);
    let first = post(gateway.address(), "0", "k1").unwrap();
    assert_eq!(first.status, 201);

    let reload = || assert!(run(&["reload", "--pid-file", pid.to_str().unwrap()]).0);
    fs::write(&file, "[defaults]\nreplay_status = \"ok\"\n").unwrap();
    reload();
    let end = Instant::now() + Duration::from_secs(10);
    while post(gateway.address(), "0", "k1").unwrap().status != 200 {
        assert!(Instant::now() < end, "the reload is not seen");
        thread::sleep(Duration::from_millis(20));
    }
    fs::write(&file, "nonsense").unwrap();
    reload();
    while !fs::read_to_string(&logs).unwrap().contains("not reloaded") {
        assert!(Instant::now() < end, "the bad configuration is not told");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(post(gateway.address(), "0", "k1").unwrap().status, 200);
    assert_eq!(book.effects("k1"), 1);
}

#[test]
fn a_quota_that_is_hit_is_logged_once_with_its_setting() {
    let book = Book::open();
    let directory = tempfile::tempdir().unwrap();
    let (file, logs) = (directory.path().join("onceward.toml"), directory.path().join("logs"));
    fs::write(&file, "[quotas.total]\nlive_keys = 2\n").unwrap();
    let more = ["--config", file.to_str().unwrap()];
    let records = directory.path().join("records");
    let gateway = Program::gateway_logging(book.address, &records, &more, &logs);
    let status = |key: &str| post(gateway.address(), "0", key).unwrap().status;
    assert_eq!([status("k1"), status("k2"), status("k3"), status("k4")], [201, 201, 429, 429]);
    let end = Instant::now() + Duration::from_secs(10);
    let told = loop {
        let told = fs::read_to_string(&logs).unwrap();
        if told.contains("quotas.total.live_keys") {
            break told;
        }
        assert!(Instant::now() < end, "no line: {told}");
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(told.matches("quotas.total.live_keys").count(), 1, "{told}");
}

#[test]
fn a_second_gateway_on_the_same_records_is_refused() {
    let book = Book::open();
    let data = tempfile::tempdir().unwrap();
    let _first = Program::gateway(book.address, data.path(), "127.0.0.1:0", &[]);
    let (upstream, store) =
        (format!("http://{}", book.address), format!("file:{}", data.path().display()));
    let (fine, told) =
        run(&["gateway", "--upstream", &upstream, "--store", &store, "--listen", "127.0.0.1:0"]);
    assert!(!fine && told.contains("store.url"), "{told}");
}
