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

    let reload = || run(&["reload", "--pid-file", pid.to_str().unwrap()]);
    fs::write(&file, "[defaults]\nreplay_status = \"ok\"\n").unwrap();
    let (fine, told) = reload();
    assert!(fine && told.is_empty(), "{told}");
    assert_eq!(post(gateway.address(), "0", "k1").unwrap().status, 200);
    // One that cannot be read, and one that needs a restart.
    for (text, why) in
        [("[defaults]\nttl = 5", "line 2"), ("[store]\nreplicas = true", "store cannot")]
    {
        fs::write(&file, text).unwrap();
        let (fine, told) = reload();
        assert!(!fine && told.contains("not reloaded") && told.contains(why), "{told}");
        assert!(fs::read_to_string(&logs).unwrap().contains(why));
        assert_eq!(post(gateway.address(), "0", "k1").unwrap().status, 200);
    }
    assert_eq!(book.effects("k1"), 1);
    fs::write(&file, "").unwrap();
    assert!(reload().0, "a later one is not told the reason of an earlier one");

    gateway.signal("-TERM");
    assert!(gateway.wait().0);
    let left = fs::read_dir(directory.path()).unwrap().flatten().map(|it| it.file_name());
    assert!(!left.into_iter().any(|it| it.to_string_lossy().starts_with("pid")));
    assert!(!reload().0, "nobody is there");
}

/// The program with a configuration, as somebody would check it and start it.
struct Configured {
    directory: tempfile::TempDir,
}

impl Configured {
    fn with(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let records = directory.path().join("records");
        let listen = "[[listeners]]\naddress = \"127.0.0.1:0\"\n";
        let store = format!("[store]\nurl = \"file:{}\"\n", records.display());
        let store = if text.contains("[store]") { "" } else { &*store };
        fs::write(directory.path().join("onceward.toml"), format!("{listen}{store}{text}\n"))
            .unwrap();
        Self { directory }
    }

    fn file(&self) -> String {
        self.directory.path().join("onceward.toml").display().to_string()
    }

    fn check(&self, more: &[&str]) -> (bool, String) {
        run(&[&["config", "check", &*self.file()], more].concat())
    }
}

#[test]
fn check_refuses_what_does_not_start_for_the_same_reason() {
    for (text, reason) in [
        ("[[operations]]\nroute = \"/a/{x}\"\n[[operations]]\nroute = \"/a/{y}\"", "/a/{y}"),
        ("[[operations]]\nroute = \"/a/{x\"", "/a/{x"),
        ("[defaults]\nlease = \"20h\"\nttl = \"10h\"", "lease"),
        ("[defaults]\nttl = \"100years\"", "retention"),
        ("[defaults]\nresponse_headers_keep = [\"Set-Cookie\"]", "set-cookie"),
        ("[defaults]\nkey = { body = \"order\" }", "order"),
        (
            "[[tokens]]\nname = \"t\"\nrole = \"reader\"\nsecret_env = \"LONGNAMEOFNOTHING\"",
            "not set",
        ),
        ("[store]\nurl = \"redis:/host\"", "is missing, as in `redis://localhost`"),
        ("[store]\nurl = \"redis://host:port\"", "store.url"),
        ("[store]\nurl = \"redis://host?tmeout=1s\"", "tmeout"),
        ("[store]\nurl = \"postgres://host:port/d\"", "store.url"),
        ("[store]\nurl = \"file:\"", "name a directory"),
        ("[store]\nurl = \"memory:\"\nsealing_keys_file = \"/nowhere\"", "/nowhere"),
        ("[upstream]\nca = \"/nowhere\"", "/nowhere"),
        (
            "[scope]\ncaller = { claim = \"sub\" }\n[scope.jwt]\njwks_file = \"/nowhere\"",
            "/nowhere",
        ),
        ("[telemetry]\nlog = \"onceward=loud\"", "telemetry.log"),
    ] {
        let configured = Configured::with(text);
        let (fine, told) = configured.check(&[]);
        assert!(!fine && told.contains(reason), "{text}: {told}");
        let (started, told) = run(&["gateway", "--config", &configured.file()]);
        assert!(!started && told.contains(reason), "{text}: {told}");
    }
}

#[test]
fn check_refuses_a_token_that_can_be_guessed() {
    let text = "[[tokens]]\nname = \"t\"\nrole = \"reader\"\nsecret_env = \"SHORT\"";
    let configured = Configured::with(text);
    let check = std::process::Command::new(env!("CARGO_BIN_EXE_onceward"))
        .args(["config", "check", &configured.file()])
        .env("SHORT", "0123456789")
        .output()
        .unwrap();
    let told = String::from_utf8(check.stderr).unwrap();
    assert!(!check.status.success() && told.contains("at least 16 characters"), "{told}");
}

#[test]
fn check_leaves_the_store_alone() {
    let configured = Configured::with("");
    let (fine, told) = configured.check(&[]);
    assert!(fine, "{told}");
    assert!(!configured.directory.path().join("records").exists());
}

/// A typo in the address: the service answers, and is no resolver.
#[test]
fn check_and_start_probe_the_resolver_and_say_what_is_wrong() {
    let book = Book::open();
    let resolver = |address: &str| {
        Configured::with(&format!("[resolver.http]\nurl = \"http://{address}/typo/{{operation}}\""))
    };
    let wrong = resolver(&book.address.to_string());
    let (fine, told) = wrong.check(&[]);
    assert!(!fine, "{told}");
    let told_so = |told: &str| {
        told.contains("resolver.http.url: GET http://")
            && told.contains("201 Created; expected 200 with a JSON body with `outcome`")
    };
    assert!(told_so(&told), "{told}");
    assert!(wrong.check(&["--offline"]).0);
    let logs = wrong.directory.path().join("logs");
    let file = wrong.file();
    let arguments = ["gateway", "--config", &*file, "--single-tenant"];
    let to = fs::File::create(&logs).unwrap();
    let _gateway = Program::start_logging(&arguments, "→", to.into());
    let end = Instant::now() + Duration::from_secs(30);
    while !told_so(&fs::read_to_string(&logs).unwrap()) {
        assert!(Instant::now() < end, "{}", fs::read_to_string(&logs).unwrap());
        thread::sleep(Duration::from_millis(20));
    }

    // One that is not up yet is no mistake.
    let down = resolver(&format!("127.0.0.1:{}", crate::process::free_port()));
    let (fine, told) = down.check(&[]);
    assert!(fine && told.contains("warning: resolver.http.url"), "{told}");
    assert!(!down.check(&["--deny-warnings"]).0);
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
