//! Expired records are archived before they are removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use onceward_core::{Outcome, Record, Retained, State, Tag, Timestamp};
use serde_json::Value;

use crate::counting_service::{CountingService, post};
use crate::fixtures::{Finished, Gateway, OLGA, Target, ask, fill, finish, onceward, record};

const KEYS: &str = "old:q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=";

/// A completed operation that expired a minute ago.
fn expired(key: &str, text: &'static str) -> Record {
    record("acme", key, |now| {
        let until = Timestamp::from_millis(now.as_millis() - 60_000);
        let outcome = Outcome::whole(Tag::from_static("text/v1"), text).with_status(201);
        State::Completed { outcome, retained: Retained { until, tombstone_until: until } }
    })
}

/// A store with expired records, an archive, and a configuration with both.
struct Place {
    directory: tempfile::TempDir,
    url: String,
    archive: PathBuf,
}

impl Place {
    fn new(records: &[Record]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file:{}", directory.path().join("data").display());
        fill(&url, records);
        let archive = directory.path().join("archive");
        Self { directory, url, archive }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a command with a configuration that has these lines in the section of the store.
    fn run(&self, arguments: &[&str], lines: &str) -> Finished {
        let config = self.path().join("command.toml");
        fs::write(&config, format!("[store]\nurl = \"{}\"\n{lines}", self.url)).unwrap();
        finish(onceward(arguments).args(["--config", config.to_str().unwrap()]))
    }

    fn setting(&self) -> String {
        format!("archive = \"file:{}\"\n", self.archive.display())
    }

    fn gateway(&self, service: &CountingService, sections: &str) -> Gateway {
        let store = format!("url = \"{}\"\n{}", self.url, self.setting());
        Gateway::start_with(&store, sections, service.address, self.path())
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> =
            fs::read_dir(&self.archive).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    fn text(&self) -> String {
        self.files().iter().map(|file| fs::read_to_string(file).unwrap()).collect()
    }

    fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn records_in(done: &Finished) -> u64 {
    done.json()["records"].as_u64().unwrap()
}

#[test]
fn what_a_purge_removes_is_in_the_archive_as_an_export_has_it() {
    let place = Place::new(&[expired("a", "paid"), expired("b", "paid")]);
    let purged = place.run(&["records", "purge"], &place.setting());
    assert_eq!(purged.out, "2 records removed, 0 reduced to tombstones\n", "{purged:?}");
    let lines = place.lines();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert_eq!((&line["tenant"], &line["state"]), (&"acme".into(), &"completed".into()));
        assert_eq!(line["outcome"]["raw_base64"], "cGFpZA==");
        assert!(line["record"].is_string() && line["fence"].is_u64(), "{line}");
    }
    assert!(!place.text().contains("canary"), "no keys");
    // Only the mark that the store is archived is left.
    let stats = place.run(&["store", "stats", "--json"], &place.setting());
    assert_eq!(records_in(&stats), 1);
}

#[test]
fn responses_are_left_out_if_the_setting_says_so() {
    let place = Place::new(&[expired("a", "paid")]);
    let setting = format!("archive = \"file:{}?outcomes=false\"\n", place.archive.display());
    assert_eq!(place.run(&["records", "purge"], &setting).code, Some(0));
    let [line] = &place.lines()[..] else { panic!("one line") };
    assert_eq!((&line["outcome"]["status"], &line["outcome"]["bytes"]), (&201.into(), &4.into()));
    assert!(!place.text().contains("cGFpZA"), "{line}");
}

#[test]
fn sealed_responses_stay_sealed_in_the_archive() {
    let place = Place::new(&[]);
    let keys = place.path().join("sealing.keys");
    fs::write(&keys, KEYS).unwrap();
    let sealing = format!("sealing_keys_file = \"{}\"\n", keys.display());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let keys = onceward_stores::sealed::Keys::parse(KEYS).unwrap();
        let store = onceward_stores::Connect::new(&place.url).sealed(keys).open().await.unwrap();
        let _written = store.import(&expired("a", "paid")).await.unwrap();
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    let purged = place.run(&["records", "purge"], &format!("{sealing}{}", place.setting()));
    assert_eq!(purged.code, Some(0), "{purged:?}");
    let [line] = &place.lines()[..] else { panic!("one line") };
    assert_eq!(line["outcome"]["codec"], "sealed/v1");
    assert!(line["outcome"]["raw_base64"].is_string() && !place.text().contains("cGFpZA"));
    // Keys that are gone later do not stop the cleanup: the mark is not sealed.
    let other = "new:EjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCrze8=";
    fs::write(&keys, other).unwrap();
    let purged = place.run(&["records", "purge"], &format!("{sealing}{}", place.setting()));
    assert_eq!(purged.code, Some(0), "{purged:?}");
}

/// The setting is missing, as it is on the command line. Nothing must be removed silently.
#[test]
fn a_purge_without_the_archive_of_the_store_removes_nothing() {
    let place = Place::new(&[]);
    assert_eq!(place.run(&["records", "purge"], &place.setting()).code, Some(0));
    fill(&place.url, &[expired("a", "paid")]);
    let refused = Target::Store(place.url.clone()).fails(&["records", "purge"]);
    assert!(
        refused.contains("No archive is set") && refused.contains("store.archive"),
        "{refused}"
    );
    let stats = place.run(&["store", "stats", "--json"], "");
    assert_eq!(records_in(&stats), 2, "the record and the mark");
    // The operator says so.
    let purged = place.run(&["records", "purge"], "archive = \"off\"\n");
    assert_eq!(purged.out, "1 records removed, 0 reduced to tombstones\n", "{purged:?}");
    assert!(!place.archive.exists(), "nothing was archived");
    fill(&place.url, &[expired("b", "paid")]);
    let purged = Target::Store(place.url.clone()).ok(&["records", "purge"]);
    assert_eq!(purged.out, "1 records removed, 0 reduced to tombstones\n", "from then on");
}

#[test]
fn a_gateway_whose_archive_fails_removes_nothing_and_runs_nothing_twice() {
    let (service, place) = (CountingService::open(), Place::new(&[expired("a", "paid")]));
    let gateway = place.gateway(&service, "[defaults]\nttl = \"1s\"\nlease = \"1s\"\n");
    let target = Target::Admin(gateway.admin);
    fs::remove_dir_all(&place.archive).unwrap();
    assert_eq!(post(gateway.address, "0", "k").unwrap().status, 201);
    let refused = target.fails(&["records", "purge"]);
    assert!(refused.contains("The archive cannot be written"), "{refused}");
    assert!(refused.contains("Nothing was removed") && refused.contains("archive"), "{refused}");
    assert_eq!(records_in(&target.ok(&["store", "stats", "--json"])), 3);

    // Its retention ends, and no request takes the place of the record.
    let deadline = Instant::now() + Duration::from_secs(30);
    let late = loop {
        let answer = post(gateway.address, "0", "k").unwrap();
        if !answer.is_replay() {
            break answer;
        }
        assert!(Instant::now() < deadline, "it expires");
    };
    assert_eq!(late.code(), Some("IDEMPOTENCY_KEY_EXPIRED"), "{late:?}");
    assert_eq!(service.effects("k"), 1);

    fs::create_dir(&place.archive).unwrap();
    target.ok(&["records", "purge"]);
    let archived: Vec<_> = place.lines().iter().map(|it| it["tenant"].clone()).collect();
    assert_eq!(archived.len(), 2, "{archived:?}");
    assert_eq!(post(gateway.address, "0", "k").unwrap().status, 201, "the key is new");
    assert_eq!(service.effects("k"), 2);
    let (_, metrics) = ask(gateway.admin, "GET", "/metrics", Some(OLGA), "");
    assert!(metrics.contains("\nonceward_archived_total 2\n"), "{metrics}");
}

#[test]
fn a_place_that_cannot_be_written_is_refused_at_the_start_and_by_a_check() {
    let place = Place::new(&[]);
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    let config = place.path().join("gateway.toml");
    for (archive, why) in [
        (place.path().join("none/archive"), "its parent directory does not exist"),
        (file, "it is not a directory"),
        (place.path().join("data/archive"), "belongs to the store alone"),
    ] {
        let text = format!(
            "[scope]\nsingle_tenant = true\n[[listeners]]\naddress = \"127.0.0.1:0\"\n\
             [store]\nurl = \"{}\"\narchive = \"file:{}\"\n",
            place.url,
            archive.display()
        );
        fs::write(&config, text).unwrap();
        let config = config.to_str().unwrap();
        for arguments in [&["config", "check", config][..], &["gateway", "--config", config]] {
            let done = finish(&mut onceward(arguments));
            assert_eq!(done.code, Some(1), "{done:?}");
            assert!(done.err.contains("store.archive: ") && done.err.contains(why), "{done:?}");
        }
    }
    let started = "[store]\nurl = \"redis://127.0.0.1:1\"\narchive = \"file:./archive\"\n";
    fs::write(&config, started).unwrap();
    let done = finish(&mut onceward(&["gateway", "--config", config.to_str().unwrap()]));
    assert!(done.err.contains("store.archive: a redis: store"), "{done:?}");
}

#[test]
fn gateways_on_one_postgres_share_a_directory() {
    let Some(server) = onceward_services::postgres() else { return };
    let (service, place) = (CountingService::open(), Place::new(&[]));
    let records: Vec<_> = (0..40).map(|key| expired(&key.to_string(), "paid")).collect();
    fill(server.url(), &records);
    let store = format!("url = \"{}\"\n{}", server.url(), place.setting());
    let gateways = ["one", "other"].map(|name| {
        let directory = place.path().join(name);
        fs::create_dir(&directory).unwrap();
        Gateway::start_with(&store, "", service.address, &directory)
    });
    let purge = ["records", "purge", "--json"];
    let purging = gateways.each_ref().map(|gateway| {
        let target = Target::Admin(gateway.admin);
        std::thread::spawn(move || target.ok(&purge).json())
    });
    let removed = purging.map(|it| it.join().unwrap()["removed"].as_u64().unwrap());
    assert_eq!(removed.iter().sum::<u64>(), 40, "each is removed once");
    let mut lines = place.text().lines().map(str::to_owned).collect::<Vec<_>>();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 40, "and archived at least once, with equal lines");

    // A gateway that lacks the setting removes nothing.
    fill(server.url(), &[expired("later", "paid")]);
    let without = Gateway::start(server.url(), service.address, place.path());
    let refused = Target::Admin(without.admin).fails(&["records", "purge"]);
    assert!(refused.contains("No archive is set"), "{refused}");
    assert_eq!(Target::Admin(gateways[0].admin).ok(&purge).json()["removed"], 1);
}

/// The commands of docs/operating.md that read an archive.
#[test]
fn the_documented_commands_read_an_archive() {
    if Command::new("jq").arg("--version").output().is_err() {
        eprintln!("skipped: jq is not installed");
        return;
    }
    let place = Place::new(&[expired("a", "paid"), expired("b", "paid")]);
    assert_eq!(place.run(&["records", "purge"], &place.setting()).code, Some(0));
    let id = place.lines()[1]["operation_id"].as_str().unwrap().to_owned();
    // Two processes archived the first record, and one was killed while it wrote another.
    let first = place.text().lines().next().unwrap().to_owned();
    let file = place.archive.join("expired-2026-11-16-00.jsonl");
    fs::write(&file, format!("{first}\n{}", &first[..40])).unwrap();
    let docs = include_str!("../../../../docs/operating.md");
    let section = docs.split("## Archiving").nth(1).unwrap();
    let script = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let script = script.replace("/var/lib/onceward/archive", place.archive.to_str().unwrap());
    let script = script.replace("01a1e44f-147e-7a7d-8c2a-68cc410c670f", &id);
    let done = Command::new("sh").args(["-ec", &script]).output().unwrap();
    let out = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(out.contains("\"tenant\":\"acme\"") && out.contains(&id), "{out}");
    assert!(out.lines().any(|line| line == "paid"), "the response of the operation: {out}");
    assert!(out.lines().any(|line| line.trim() == "2 acme pay completed"), "each once: {out}");
}
