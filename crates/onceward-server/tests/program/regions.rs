//! Home regions: gateway processes, each with a service and a store of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;

use crate::counting_service::{CountingService, Response, post};
use crate::kills::{End, end_of};
use crate::process::{Program, run};

/// Attempts at each key, at both gateways at once.
const ATTEMPTS: usize = 20;
const KEYS: usize = 20;

/// A region with its service, its configuration and its records.
struct Region {
    service: CountingService,
    address: SocketAddr,
    directory: tempfile::TempDir,
}

impl Region {
    /// Writes the configurations of two regions.
    fn pair(lines: &str) -> [Self; 2] {
        let [eu, us] = [(); 2].map(|()| Self {
            service: CountingService::open(),
            address: onceward_services::own_address(),
            directory: tempfile::tempdir().unwrap(),
        });
        eu.configure("eu", lines, &format!("us = \"http://{}\"", us.address));
        us.configure("us", lines, &format!("eu = \"http://{}\"", eu.address));
        [eu, us]
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn configure(&self, name: &str, lines: &str, gateways: &str) {
        let (address, upstream) = (self.address, self.service.address);
        let text = format!(
            "[[listeners]]\naddress = \"{address}\"\n[upstream]\nurl = \"http://{upstream}\"\n\
             [store]\nurl = \"file:{}\"\n[scope]\nsingle_tenant = true\n\
             [telemetry]\nlog = \"info,onceward=debug\"\n\
             [region]\nname = \"{name}\"\nof_key = {{ prefix_before = \"_\" }}\n{lines}\n\
             [region.gateways]\n{gateways}\n",
            self.file("records").display()
        );
        fs::write(self.file("onceward.toml"), text).unwrap();
    }

    fn start(&self) -> Program {
        let logs = fs::File::options().create(true).append(true).open(self.file("logs")).unwrap();
        let config = self.file("onceward.toml");
        let pid = self.file("pid");
        let arguments =
            ["gateway", "--config", config.to_str().unwrap(), "--pid-file", pid.to_str().unwrap()];
        Program::start_logging(&arguments, "→", logs.into())
    }

    fn logs(&self) -> String {
        fs::read_to_string(self.file("logs")).unwrap()
    }
}

const FORWARD: &str = "others = \"forward\"";

/// Sends a key to both gateways at once.
fn at_once(nodes: [SocketAddr; 2], key: &str) -> Vec<Response> {
    thread::scope(|scope| {
        let send = |number: usize| scope.spawn(move || post(nodes[number % 2], "5", key).unwrap());
        let attempts: Vec<_> = (0..ATTEMPTS).map(send).collect();
        attempts.into_iter().map(|attempt| attempt.join().unwrap()).collect()
    })
}

#[test]
fn a_key_that_both_gateways_get_at_once_has_one_effect_and_that_at_home() {
    let [eu, us] = Region::pair(FORWARD);
    let (_eu, _us) = (eu.start(), us.start());
    for number in 0..KEYS {
        let key = format!("{}_{number}", if number % 2 == 0 { "eu" } else { "us" });
        let answers = at_once([eu.address, us.address], &key);
        let executed = answers.iter().filter(|it| it.status == 201 && !it.is_replay()).count();
        let refused = answers.iter().filter(|it| it.status != 201);
        for answer in refused {
            assert_eq!(answer.code(), Some("IDEMPOTENCY_REQUEST_IN_PROGRESS"), "{answer:?}");
        }
        let (home, other) = if number % 2 == 0 { (&eu, &us) } else { (&us, &eu) };
        let effects = (home.service.effects(&key), other.service.effects(&key));
        assert_eq!((executed, effects), (1, (1, 0)), "{key}");
        let replayed = post(other.address, "5", &key).unwrap();
        assert!(replayed.is_replay() && replayed.body == format!("{{\"done\":\"{key}\"}}"));
    }
}

#[test]
fn while_the_home_is_down_nothing_runs_and_afterwards_the_key_runs_once() {
    let [eu, us] = Region::pair(FORWARD);
    let _us = us.start();
    for _ in 0..3 {
        let refused = post(us.address, "0", "eu_1").unwrap();
        assert_eq!((refused.status, refused.code()), (502, Some("HOME_REGION_UNREACHABLE")));
        assert!(refused.body.contains("\"retryable\":true,\"same_key\":true"), "{}", refused.body);
    }
    assert_eq!((eu.service.effects("eu_1"), us.service.effects("eu_1")), (0, 0));
    let _eu = eu.start();
    let first = post(us.address, "0", "eu_1").unwrap();
    assert_eq!((first.status, first.is_replay()), (201, false));
    assert!(post(eu.address, "0", "eu_1").unwrap().is_replay());
    assert_eq!((eu.service.effects("eu_1"), us.service.effects("eu_1")), (1, 0));
    assert!(us.logs().contains("the home region did not answer"), "{}", us.logs());
}

#[test]
fn a_forwarding_gateway_that_is_killed_leaves_the_execution_to_the_home() {
    let [eu, us] = Region::pair(FORWARD);
    let (_eu, mut forwarding) = (eu.start(), us.start());
    let to = us.address;
    let attempt = thread::spawn(move || post(to, "300", "eu_1"));
    eu.service.wait_for("eu_1");
    forwarding.kill();
    assert_eq!(attempt.join().unwrap(), None, "the client's connection is broken");
    let End::Answered(answer) = end_of(eu.address, "300", "eu_1") else {
        panic!("the home has the outcome")
    };
    assert!(answer.is_replay(), "{answer:?}");
    let _us = us.start();
    assert!(post(us.address, "300", "eu_1").unwrap().is_replay());
    assert_eq!((eu.service.effects("eu_1"), us.service.effects("eu_1")), (1, 0));
}

#[test]
fn a_home_that_is_killed_leaves_the_outcome_unknown_in_all_regions() {
    let [eu, us] = Region::pair(FORWARD);
    let (mut home, _us) = (eu.start(), us.start());
    let to = us.address;
    let attempt = thread::spawn(move || post(to, "silent", "eu_1"));
    eu.service.wait_for("eu_1");
    home.kill();
    let unanswered = attempt.join().unwrap().unwrap();
    assert_eq!((unanswered.status, unanswered.code()), (502, Some("HOME_REGION_UNANSWERED")));
    let _eu = eu.start();
    for node in [us.address, eu.address] {
        let retried = post(node, "silent", "eu_1").unwrap();
        assert_eq!(retried.code(), Some("IDEMPOTENCY_OUTCOME_UNKNOWN"));
    }
    assert_eq!((eu.service.effects("eu_1"), us.service.effects("eu_1")), (1, 0));
}

#[test]
fn gateways_that_disagree_about_their_regions_execute_nothing_and_say_so() {
    let [eu, us] = Region::pair(FORWARD);
    // Both think that they are `eu`, and that the other one is `us`.
    us.configure("eu", FORWARD, &format!("us = \"http://{}\"", eu.address));
    let (_eu, _us) = (eu.start(), us.start());
    for node in [&eu, &us] {
        let refused = post(node.address, "0", "us_1").unwrap();
        assert_eq!((refused.status, refused.code()), (421, Some("REGION_MISROUTED")));
    }
    for node in [&eu, &us] {
        assert!(node.logs().contains("ERROR onceward: forwarded to the wrong region"));
    }
    assert_eq!((eu.service.effects("us_1"), us.service.effects("us_1")), (0, 0));
}

#[test]
fn each_decision_is_a_log_line_without_the_key() {
    let [eu, us] = Region::pair(FORWARD);
    let (_eu, _us) = (eu.start(), us.start());
    for key in ["eu_canary", "us_canary", "canary", "ap_canary"] {
        post(us.address, "0", key).unwrap();
    }
    let logs = us.logs();
    for line in [
        "DEBUG onceward: home region operation=\"POST *\" region=\"eu\" decision=\"forwarded\"",
        "DEBUG onceward: home region operation=\"POST *\" region=\"us\" decision=\"here\"",
        "INFO onceward: not a request of this region operation=\"POST *\" region=\"-\" decision=\"unnamed\" occurrences=1",
        "INFO onceward: not a request of this region operation=\"POST *\" region=\"-\" decision=\"unknown\" occurrences=1",
    ] {
        assert!(logs.contains(line), "{line} is not in {logs}");
    }
    assert!(!logs.contains("canary"), "{logs}");
}

#[test]
fn a_region_at_the_own_address_is_refused_at_start_and_by_check() {
    let [eu, us] = Region::pair(FORWARD);
    eu.configure("eu", FORWARD, &format!("us = \"http://{}\"", eu.address));
    let config = eu.file("onceward.toml");
    let path = config.to_str().unwrap();
    for command in [&["config", "check", path][..], &["gateway", "--config", path]] {
        let (succeeded, output) = run(command);
        assert!(!succeeded && output.contains("region.gateways.us"), "{output}");
        assert!(output.contains("that region's gateway"), "{output}");
    }
    drop(us);
}

#[test]
fn a_change_that_moves_keys_is_warned_of_by_check_and_refused_by_a_reload() {
    let [eu, us] = Region::pair("");
    let _us = us.start();
    let (config, before) = (us.file("onceward.toml"), us.file("before.toml"));
    fs::copy(&config, &before).unwrap();
    us.configure("us", "unnamed = { home = \"us\" }", &format!("eu = \"http://{}\"", eu.address));
    let check = ["config", "check", config.to_str().unwrap()];
    let (succeeded, output) = run(&check);
    assert!(succeeded && !output.contains("warning: region: "), "{output}");
    let (succeeded, output) =
        run(&[&check[..], &["--replaces", before.to_str().unwrap()]].concat());
    assert!(succeeded && output.contains("warning: region: changes"), "{output}");
    let pid = us.file("pid");
    let reload = || run(&["reload", "--pid-file", pid.to_str().unwrap()]);
    let (succeeded, output) = reload();
    assert!(
        !succeeded && output.contains("region (name, of_key, unnamed) cannot change"),
        "{output}"
    );
    let refused = post(us.address, "0", "8e03978e").unwrap();
    assert_eq!(refused.code(), Some("IDEMPOTENCY_KEY_WITHOUT_REGION"));

    // A change of the scope applies, with a warning.
    let text = fs::read_to_string(&before).unwrap();
    let scope = "single_tenant = true\napi_version = { header = \"Api-Version\", default = \"1\" }";
    fs::write(&config, text.replace("single_tenant = true", scope)).unwrap();
    let (succeeded, output) = reload();
    assert!(succeeded && output.starts_with("warning: scope.api_version: changes"), "{output}");
    assert!(us.logs().contains("scope.api_version: changes"), "{}", us.logs());
}
