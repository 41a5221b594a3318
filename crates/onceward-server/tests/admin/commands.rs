//! Every command about records and operations, on every kind of target.

use onceward_core::DownstreamKey;
use serde_json::Value;

use crate::counting_service::CountingService;
use crate::fixtures::{
    CANARY, Finished, Gateway, OLGA, Target, completed, expired, fill, finish, onceward, record,
    unknown,
};

/// Runs every command about records on a target without decisions.
fn everything(target: &Target, records: &[onceward_core::Record], by: &str) {
    let [done, lost, missed, foreign, _gone] = records else { panic!("five records") };
    let [lost_id, missed_id] = [lost, missed].map(|it| it.operation.to_string());

    let list = |more: &[&str]| {
        let listed = target.ok(&[&["records", "list", "--json"], more].concat());
        assert!(!listed.out.contains(CANARY), "{}", listed.out);
        let ids = |value: &Value| value["operation_id"].as_str().unwrap().to_owned();
        let mut ids: Vec<_> =
            listed.json()["records"].as_array().unwrap().iter().map(ids).collect();
        ids.sort();
        ids
    };
    let sorted = |records: &[&onceward_core::Record]| {
        let mut ids: Vec<_> = records.iter().map(|it| it.operation.to_string()).collect();
        ids.sort();
        ids
    };
    assert_eq!(list(&["--all"]), sorted(&[done, lost, missed, foreign]));
    assert_eq!(list(&["--state", "unknown"]), sorted(&[lost, missed, foreign]));
    assert_eq!(list(&["--tenant", "globex"]), sorted(&[foreign]));
    assert_eq!(list(&["--operation", "refund"]), sorted(&[]));
    assert_eq!(list(&["--older-than", "5m"]), sorted(&[done, lost, missed, foreign]));
    assert_eq!(list(&["--older-than", "5h"]), sorted(&[]));
    assert_eq!(list(&["--limit", "2"]).len(), 2);
    let table = target.ok(&["records", "list"]).out;
    assert!(table.starts_with("OPERATION") && table.lines().count() == 5, "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");

    let shown = target.ok(&["records", "show", &done.id.to_string()]).out;
    assert!(shown.contains("completed") && shown.contains("4 bytes"), "{shown}");
    assert!(shown.contains("decisions    none") && !shown.contains("paid"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let shown = target.ok(&["operations", "show", &done.operation.to_string(), "--json"]).json();
    assert_eq!(shown["record"]["outcome"]["bytes"], 4);
    assert_eq!(shown["record"]["outcome"].get("raw_base64"), None);
    let with_bytes = ["records", "show", &done.operation.to_string(), "--outcome", "--json"];
    assert_eq!(target.ok(&with_bytes).json()["record"]["outcome"]["raw_base64"], "cGFpZA==");

    assert_eq!(list(&["--caller", "shop"]), sorted(&[done, lost, missed, foreign]));
    assert_eq!(list(&["--caller", "nobody"]), sorted(&[]));
    let callers = target.ok(&["records", "callers", "--top", "1", "--json"]).json();
    let top = serde_json::json!({ "tenant": "acme", "caller": "shop", "records": 3, "unknown": 2 });
    assert_eq!(callers, serde_json::json!([top]));
    let callers = target.ok(&["records", "callers"]).out;
    assert!(callers.contains("TENANT, CALLER") && callers.contains("globex, shop"), "{callers}");

    let find = ["records", "find", "--tenant", "acme", "--caller", "shop", "--operation", "pay"];
    let found = target.ok(&[&find[..], &["--key", "lost"]].concat()).out;
    let downstream = DownstreamKey::of(&lost.operation).to_string();
    for shown in [&*lost_id, "cause        status 502", &*downstream] {
        assert!(found.contains(shown), "{shown}: {found}");
    }
    let found = target.ok(&[&find[..], &["--key", "lost", "--json"]].concat()).json();
    assert_eq!(found["record"]["unknown_cause"], "status 502");
    assert_eq!(found["record"]["downstream_key"], downstream);
    let none = target.fails(&[&find[..], &["--key", CANARY]].concat());
    assert!(none.contains("no record of this key") && !none.contains(CANARY), "{none}");

    let unknown = target.ok(&["operations", "unknown", "--json"]).json();
    assert_eq!(unknown["records"].as_array().unwrap().len(), 3);
    assert_eq!(target.ok(&["operations", "trail"]).out, "no decisions\n");

    let release = ["records", "release", &lost_id, "--reason", "voided, ticket 4711"];
    assert!(target.fails(&release).contains("--yes"), "it needs a confirmation");
    let out = target.ok(&[&release[..], &["--yes"]].concat()).out;
    assert_eq!(out, format!("{lost_id} is now released\n"));
    let resolve = ["records", "resolve", &missed_id, "--happened", "--status", "204"];
    let reason = ["--reason", "seen at the provider", "--yes", "--json"];
    let resolved = target.ok(&[&resolve[..], &reason].concat()).json();
    assert_eq!(resolved["record"]["state"], "completed");
    assert_eq!(resolved["record"]["outcome"]["status"], 204);

    // A repeated decision changes nothing; a different one is refused.
    target.ok(&[&release[..], &["--yes"]].concat());
    target.ok(&[&resolve[..], &reason].concat());
    let again = ["records", "release", &missed_id, "--reason", "no", "--yes"];
    assert!(target.fails(&again).contains("The outcome is not unknown"));
    let trail = target.ok(&["operations", "trail", "--json"]).json();
    let output: Vec<_> = trail.as_array().unwrap().iter().map(decision).collect();
    let evidence = output[1][3].clone();
    assert!(evidence.starts_with("seen at the provider (reply 204, 0 bytes, sha256 "));
    assert_eq!(output[0], [lost_id.as_str(), "did_not_happen", by, "voided, ticket 4711"]);
    assert_eq!(output[1], [missed_id.as_str(), "happened", by, &evidence]);
    let one = target.ok(&["operations", "trail", &lost_id]).out;
    assert!(one.contains("did not happen  by ") && one.contains("ticket 4711"), "{one}");

    // Decisions are internal records: listed only with --internal, and never decided about.
    assert_eq!(list(&["--all"]).len(), 4);
    let ours = target.ok(&["records", "list", "--all", "--internal", "--json"]).json();
    let ours = ours["records"].as_array().unwrap().iter();
    let ours: Vec<_> = ours.filter(|it| it["tenant"] == "onceward:internal").collect();
    assert_eq!(ours.len(), 2);
    let id = ours[0]["operation_id"].as_str().unwrap();
    let refused = target.fails(&["records", "release", id, "--reason", "no", "--yes"]);
    assert!(refused.contains("Not found"), "{refused}");

    stored(target, foreign);
}

fn decision(value: &Value) -> [String; 4] {
    ["operation_id", "decided", "by", "evidence"].map(|it| value[it].as_str().unwrap().to_owned())
}

/// Commands about the store as a whole.
fn stored(target: &Target, foreign: &onceward_core::Record) {
    let foreign = ["records", "show", &foreign.operation.to_string(), "--json"];
    let foreign = target.ok(&foreign).json();
    let stats = target.ok(&["store", "stats", "--json"]).json();
    assert_eq!(stats["records"], 7, "four, one that is expired, and two decisions");
    assert_eq!(stats["oldest_unknown"], foreign["record"]["updated_at"]);
    let verified = target.ok(&["store", "verify"]).out;
    assert!(verified.contains("6 records read"), "{verified}");
    let due = target.ok(&["records", "purge", "--dry-run"]).out;
    assert_eq!(due, "1 records would be removed, 0 would be reduced to tombstones\n");
    target.ok(&["records", "purge"]);
    assert_eq!(target.ok(&["store", "stats", "--json"]).json()["records"], 6);
    assert_eq!(target.ok(&["operations", "trail", "--json"]).json().as_array().unwrap().len(), 2);

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("records.jsonl");
    let export = ["records", "export", "--to", file.to_str().unwrap()];
    target.ok(&export);
    assert!(target.fails(&export).contains("--force"));
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 4);
    assert!(!text.contains(CANARY) && !text.contains("cGFpZA"), "{text}");
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    let whole = target.ok(&["records", "export", "--to", "-", "--outcomes"]).out;
    assert!(whole.contains("cGFpZA==") && !whole.contains(CANARY), "{whole}");
}

fn records() -> [onceward_core::Record; 5] {
    [
        record("acme", "done", completed("paid")),
        record("acme", "lost", |_| unknown()),
        record("acme", "missed", |_| unknown()),
        record("globex", "foreign", |_| unknown()),
        record("acme", "gone", expired),
    ]
}

#[test]
fn at_a_directory() {
    let (directory, records) = (tempfile::tempdir().unwrap(), records());
    let url = format!("file:{}", directory.path().join("data").display());
    fill(&url, &records);
    everything(&Target::Store(url), &records, "cli:otto");
}

#[test]
fn at_a_postgres() {
    let Some(server) = onceward_services::postgres() else { return };
    let records = records();
    fill(server.url(), &records);
    everything(&Target::Store(server.url().to_owned()), &records, "cli:otto");
}

#[test]
fn at_a_redis() {
    let Some(server) = onceward_services::redis() else { return };
    let [done, lost, missed, foreign, _] = records();
    // Redis itself removes expired records.
    fill(server.url(), &[done.clone(), lost.clone()]);
    let target = Target::Store(server.url().to_owned());
    fill(server.url(), &[missed, foreign]);
    assert_eq!(target.ok(&["store", "stats", "--json"]).json()["records"], 4);
    let id = lost.operation.to_string();
    target.ok(&["records", "release", &id, "--reason", "voided", "--yes"]);
    assert!(target.ok(&["operations", "trail", &id]).out.contains("by cli:otto"));
    assert!(target.ok(&["records", "show", &id]).out.contains("released"));
}

#[test]
fn at_a_running_gateway() {
    let (directory, records) = (tempfile::tempdir().unwrap(), records());
    let url = format!("file:{}", directory.path().join("data").display());
    fill(&url, &records);
    let gateway = Gateway::start(&url, CountingService::open().address, directory.path());
    everything(&Target::Admin(gateway.admin), &records, "olga");
}

#[test]
fn the_gateway_is_found_by_its_configuration_or_by_the_environment() {
    let (directory, records) = (tempfile::tempdir().unwrap(), records());
    let url = format!("file:{}", directory.path().join("data").display());
    fill(&url, &records);
    let gateway = Gateway::start(&url, CountingService::open().address, directory.path());
    let admin = format!("http://{}", gateway.admin);
    let list = |arguments: &[&str], admin: Option<&str>| {
        let mut command = onceward(&[&["records", "list", "--json"], arguments].concat());
        command.env("ONCEWARD_TOKEN", OLGA).env_remove("ONCEWARD_ADMIN");
        command.envs(admin.map(|admin| ("ONCEWARD_ADMIN", admin)));
        finish(&mut command)
    };
    let listed = |done: &Finished| done.json()["records"].as_array().unwrap().len();
    assert_eq!(listed(&list(&[], Some(&admin))), 4);
    let none = list(&[], None);
    assert!(none.code == Some(1) && none.err.contains("ONCEWARD_ADMIN"), "{none:?}");
    let wrong = list(&[], Some("not a URL"));
    assert!(wrong.err.contains("ONCEWARD_ADMIN: "), "{wrong:?}");

    // The running gateway holds the directory, so it is asked at the address of the file.
    let config = directory.path().join("commands.toml");
    let text = format!("[store]\nurl = \"{url}\"\n[admin]\naddress = \"{}\"\n", gateway.admin);
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    assert_eq!(listed(&list(&["--config", config], Some("http://127.0.0.1:1"))), 4);
    drop(gateway);
    assert_eq!(listed(&list(&["--config", config], None)), 4, "the store itself");
}
