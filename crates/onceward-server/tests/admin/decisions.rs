//! Operations after an operator's decision.

use std::fs;
use std::thread;

use crate::counting_service::{CountingService, post};
use crate::fixtures::{Gateway, OLGA, Target, ask};

fn start() -> (CountingService, Gateway, tempfile::TempDir) {
    start_with("")
}

fn start_with(tables: &str) -> (CountingService, Gateway, tempfile::TempDir) {
    let (service, directory) = (CountingService::open(), tempfile::tempdir().unwrap());
    let url = format!("file:{}", directory.path().join("data").display());
    let gateway =
        Gateway::start_with(&format!("url = \"{url}\""), tables, service.address, directory.path());
    (service, gateway, directory)
}

/// Id and fence of the only record in this state.
fn only(target: &Target, state: &str) -> (String, u64) {
    let listed = target.ok(&["records", "list", "--json", "--state", state]).json();
    let record = &listed["records"][0];
    (record["operation_id"].as_str().unwrap().to_owned(), record["fence"].as_u64().unwrap())
}

#[test]
fn a_resolved_reply_is_replayed_byte_for_byte() {
    let (service, gateway, directory) = start();
    let target = Target::Admin(gateway.admin);
    assert_eq!(post(gateway.address, "close-before", "k").unwrap().status, 502);
    let (id, _) = only(&target, "unknown");
    let body = "{\"charge\": \"ch_17\",\r\n \"ü\": [1,  2]}\n";
    let file = directory.path().join("reply.json");
    fs::write(&file, body).unwrap();
    let resolve = ["records", "resolve", &id, "--happened", "--status", "202", "--yes"];
    let reply =
        ["--body-file", file.to_str().unwrap(), "--header", "content-type: application/json"];
    let more = ["--header", "X-Receipt: 7", "--header", "link: <a>", "--header", "link: <b>"];
    let reason = ["--reason", "seen"];
    target.ok(&[&resolve[..], &reply, &more, &reason].concat());
    for _ in 0..2 {
        let replayed = post(gateway.address, "close-before", "k").unwrap();
        assert_eq!((replayed.status, replayed.body.as_str()), (202, body));
        assert!(replayed.is_replay());
        let head = replayed.head.to_lowercase();
        for line in ["content-type: application/json", "x-receipt: 7", "link: <a>", "link: <b>"] {
            assert!(head.contains(&format!("\r\n{line}\r\n")), "{head}");
        }
    }
    assert_eq!(service.effects("k"), 1);
    let shown = target.ok(&["records", "show", &id, "--outcome"]).out;
    assert!(shown.ends_with(&format!("\n\n{body}")), "{shown}");
}

#[test]
fn of_an_operation_without_stored_bodies_an_operator_resolves_only_the_head() {
    let (service, gateway, directory) = start_with("[defaults]\nresponse_body = \"omit\"\n");
    let target = Target::Admin(gateway.admin);
    post(gateway.address, "close-before", "k").unwrap();
    let (id, _) = only(&target, "unknown");
    let file = directory.path().join("reply.json");
    fs::write(&file, "{\"pin\": 4711}").unwrap();
    let resolve = ["records", "resolve", &id, "--happened", "--status", "201", "--yes"];
    let header = ["--header", "location: /cards/7", "--reason", "seen"];
    let body = ["--body-file", file.to_str().unwrap()];
    let refused = target.fails(&[&resolve[..], &header, &body].concat());
    assert!(refused.contains("response_body = \"omit\""), "{refused}");
    assert_eq!(target.ok(&["operations", "trail"]).out, "no decisions\n");
    target.ok(&[&resolve[..], &header].concat());
    let retry = post(gateway.address, "close-before", "k").unwrap();
    assert_eq!(retry.status, 409);
    let head = retry.head.to_lowercase();
    assert!(head.contains("\r\nlocation: /cards/7\r\n"), "{head}");
    assert!(retry.body.contains("IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE"), "{}", retry.body);
    assert_eq!(service.effects("k"), 1);
}

#[test]
fn a_released_operation_runs_again_once() {
    let (service, gateway, _directory) = start();
    let target = Target::Admin(gateway.admin);
    post(gateway.address, "close-before", "k").unwrap();
    let (id, _) = only(&target, "unknown");
    assert_eq!(post(gateway.address, "close-before", "k").unwrap().status, 409);
    target.ok(&["records", "resolve", &id, "--did-not-happen", "--reason", "voided", "--yes"]);
    assert_eq!(post(gateway.address, "close-before", "k").unwrap().status, 502, "it ran again");
    assert_eq!(service.effects("k"), 2);
    let shown = target.ok(&["records", "show", &id, "--json"]).json();
    assert_eq!(shown["record"]["attempts"], 2);
    assert_eq!(shown["decisions"].as_array().unwrap().len(), 1);
}

#[test]
fn a_live_lease_is_refused_with_its_end_and_nothing_is_written_down() {
    let (service, gateway, _directory) = start();
    let (target, address) = (Target::Admin(gateway.admin), gateway.address);
    let sending = thread::spawn(move || post(address, "4000", "k"));
    service.wait_for("k");
    let (id, _) = only(&target, "running");
    let refused = target.fails(&["records", "release", &id, "--reason", "impatient", "--yes"]);
    assert!(refused.contains("Its lease lasts until 20"), "{refused}");
    assert_eq!(target.ok(&["operations", "trail"]).out, "no decisions\n");
    assert_eq!(sending.join().unwrap().unwrap().status, 201);
    assert_eq!(service.effects("k"), 1);
}

#[test]
fn a_decision_about_what_has_moved_on_is_refused() {
    let (_book, gateway, _directory) = start();
    let target = Target::Admin(gateway.admin);
    post(gateway.address, "close-before", "k").unwrap();
    let (id, fence) = only(&target, "unknown");
    let order = format!("{{\"fence\":{},\"reason\":\"old news\"}}", fence - 1);
    let path = format!("/v1/records/{id}/release");
    let (status, body) = ask(gateway.admin, "POST", &path, Some(OLGA), &order);
    assert_eq!(status, 409);
    assert!(body.contains("FENCE_MOVED") && body.contains(&fence.to_string()), "{body}");
    assert_eq!(target.ok(&["operations", "trail"]).out, "no decisions\n");
}
