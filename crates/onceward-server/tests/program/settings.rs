//! Configuration files: checking, starting, reloading.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::counting_service::{CountingService, post};
use crate::process::{Program, run};

#[test]
fn check_tells_mistakes_by_line_and_unwise_settings_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("onceward.toml");
    let path = file.to_str().unwrap();
    fs::write(&file, "[upstream]\nurll = \"http://a\"\n").unwrap();
    let (succeeded, output) = run(&["config", "check", path]);
    assert!(!succeeded && output.contains("line 2") && output.contains("urll"), "{output}");

    fs::write(&file, "[defaults]\nttl = \"1h\"\n").unwrap();
    let (succeeded, output) = run(&["config", "check", path]);
    assert!(succeeded && output.contains("warning: defaults.ttl"), "{output}");
    assert!(!run(&["config", "check", path, "--deny-warnings"]).0);
}

#[test]
fn the_printed_default_is_a_configuration() {
    let (succeeded, text) = run(&["config", "print-default"]);
    assert!(succeeded);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("onceward.toml");
    fs::write(&file, text).unwrap();
    let (succeeded, output) = run(&["config", "check", file.to_str().unwrap(), "--deny-warnings"]);
    assert!(succeeded, "{output}");
    let (succeeded, output) = run(&["config", "explain", "defaults.lease"]);
    assert!(succeeded && output.contains("without being renewed"), "{output}");
    assert!(!run(&["config", "explain", "nonsense"]).0);
}

#[test]
fn without_an_upstream_it_says_what_to_do() {
    let (succeeded, output) = run(&["gateway"]);
    assert!(!succeeded && output.contains("--upstream"), "{output}");
    let (succeeded, output) = run(&["gateway", "--upstream", "ftp://x"]);
    assert!(!succeeded && output.contains("http:// or https://"), "{output}");
}

#[test]
fn a_reload_changes_the_rules_and_a_bad_one_changes_nothing() {
    let service = CountingService::open();
    let directory = tempfile::tempdir().unwrap();
    let (file, pid) = (directory.path().join("onceward.toml"), directory.path().join("pid"));
    fs::write(&file, "").unwrap();
    let more = ["--config", file.to_str().unwrap(), "--pid-file", pid.to_str().unwrap()];
    let records = directory.path().join("records");
    let logs = directory.path().join("logs");
    let gateway = Program::gateway_logging(service.address, &records, &more, &logs);
    let first = post(gateway.address(), "0", "k1").unwrap();
    assert_eq!(first.status, 201);

    let reload = || run(&["reload", "--pid-file", pid.to_str().unwrap()]);
    fs::write(&file, "[defaults]\nreplay_status = \"ok\"\n").unwrap();
    let (succeeded, output) = reload();
    assert!(succeeded && output.is_empty(), "{output}");
    assert_eq!(post(gateway.address(), "0", "k1").unwrap().status, 200);
    // One that cannot be parsed, and one that needs a restart.
    for (text, why) in
        [("[defaults]\nttl = 5", "line 2"), ("[store]\nreplicas = true", "store cannot")]
    {
        fs::write(&file, text).unwrap();
        let (succeeded, output) = reload();
        assert!(!succeeded && output.contains("not reloaded") && output.contains(why), "{output}");
        assert!(fs::read_to_string(&logs).unwrap().contains(why));
        assert_eq!(post(gateway.address(), "0", "k1").unwrap().status, 200);
    }
    assert_eq!(service.effects("k1"), 1);
    fs::write(&file, "").unwrap();
    assert!(reload().0, "the reason of an earlier reload is not reported again");

    gateway.signal("-TERM");
    assert!(gateway.wait().0);
    let left = fs::read_dir(directory.path()).unwrap().flatten().map(|it| it.file_name());
    assert!(!left.into_iter().any(|it| it.to_string_lossy().starts_with("pid")));
    assert!(!reload().0, "the gateway is gone");
}

/// A configuration file to check and to start.
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
        ("[defaults]\nttl = \"100years\"", "defaults.ttl: "),
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
            "[region]\nname = \"eu\"\nof_key = { prefix_before = \"_\" }\nothers = \"forward\"\n\
             ca = \"/nowhere\"\n[region.gateways]\nus = \"https://us.example\"",
            "/nowhere",
        ),
        (
            "[scope]\ncaller = { claim = \"sub\" }\n[scope.jwt]\njwks_file = \"/nowhere\"",
            "/nowhere",
        ),
        ("[telemetry]\nlog = \"onceward=loud\"", "telemetry.log"),
    ] {
        let configured = Configured::with(text);
        let (succeeded, output) = configured.check(&[]);
        assert!(!succeeded && output.contains(reason), "{text}: {output}");
        let (started, output) = run(&["gateway", "--config", &configured.file()]);
        assert!(!started && output.contains(reason), "{text}: {output}");
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
    let output = String::from_utf8(check.stderr).unwrap();
    assert!(!check.status.success() && output.contains("fewer than 16 characters"), "{output}");
}

#[test]
fn check_leaves_the_store_alone() {
    let configured = Configured::with("");
    let (succeeded, output) = configured.check(&[]);
    assert!(succeeded, "{output}");
    assert!(!configured.directory.path().join("records").exists());
}

/// A typo in the URL: the service answers, but not as a resolver.
#[test]
fn check_and_start_probe_the_resolver_and_say_what_is_wrong() {
    let service = CountingService::open();
    let resolver = |address: &str| {
        Configured::with(&format!("[resolver.http]\nurl = \"http://{address}/typo/{{operation}}\""))
    };
    let wrong = resolver(&service.address.to_string());
    let (succeeded, output) = wrong.check(&[]);
    assert!(!succeeded, "{output}");
    let told_so = |output: &str| {
        output.contains("resolver.http.url: GET http://")
            && output.contains("201 Created; expected 200 with a JSON body with `outcome`")
    };
    assert!(told_so(&output), "{output}");
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

    // A resolver that is not up yet is only a warning.
    let down = resolver(&format!("127.0.0.1:{}", crate::process::free_port()));
    let (succeeded, output) = down.check(&[]);
    assert!(succeeded && output.contains("warning: resolver.http.url"), "{output}");
    assert!(!down.check(&["--deny-warnings"]).0);
}

#[test]
fn a_quota_that_is_hit_is_logged_once_with_its_setting() {
    let service = CountingService::open();
    let directory = tempfile::tempdir().unwrap();
    let (file, logs) = (directory.path().join("onceward.toml"), directory.path().join("logs"));
    fs::write(&file, "[quotas.total]\nlive_keys = 2\n").unwrap();
    let more = ["--config", file.to_str().unwrap()];
    let records = directory.path().join("records");
    let gateway = Program::gateway_logging(service.address, &records, &more, &logs);
    let status = |key: &str| post(gateway.address(), "0", key).unwrap().status;
    assert_eq!([status("k1"), status("k2"), status("k3"), status("k4")], [201, 201, 429, 429]);
    let end = Instant::now() + Duration::from_secs(10);
    let output = loop {
        let output = fs::read_to_string(&logs).unwrap();
        if output.contains("quotas.total.live_keys") {
            break output;
        }
        assert!(Instant::now() < end, "no line: {output}");
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(output.matches("quotas.total.live_keys").count(), 1, "{output}");
}

#[test]
fn a_second_gateway_on_the_same_records_is_refused() {
    let service = CountingService::open();
    let data = tempfile::tempdir().unwrap();
    let _first = Program::gateway(service.address, data.path(), "127.0.0.1:0", &[]);
    let (upstream, store) =
        (format!("http://{}", service.address), format!("file:{}", data.path().display()));
    let (succeeded, output) =
        run(&["gateway", "--upstream", &upstream, "--store", &store, "--listen", "127.0.0.1:0"]);
    assert!(!succeeded && output.contains("store.url"), "{output}");
}
