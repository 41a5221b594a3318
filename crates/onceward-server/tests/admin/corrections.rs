//! Corrections of data: stored responses that must not be replayed any more, and the cache.

use onceward_core::{
    BusinessReference, Engine, Fingerprint, Intent, Key, KnownReference, Outcome, Scope, Settled,
    State, Tag,
};
use serde_json::{Value, json};

use crate::counting_service::{CountingService, post};
use crate::fixtures::{
    Gateway, OLGA, Target, ask, completed, fill, finish, onceward, record, unknown,
};

/// Ids of the records in a JSON report.
fn ids(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect()
}

/// Returns the decisions about an operation in the audit log.
fn decisions(target: &Target, id: &str) -> Vec<[String; 3]> {
    let shown = target.ok(&["records", "show", id, "--json"]).json();
    let decisions = shown["decisions"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    decisions.map(|it| [text(&it["decided"]), text(&it["by"]), text(&it["evidence"])]).collect()
}

fn content(target: &Target, id: &str) -> Value {
    target.ok(&["records", "show", id, "--json"]).json()["record"]["outcome"].clone()
}

/// Runs the command in all its forms on a target.
fn everything(target: &Target, records: &[onceward_core::Record; 5], by: &str) {
    let [one, two, other, lost, foreign] = records.each_ref().map(|it| it.operation.to_string());
    let invalidate = |more: &[&str]| {
        let reason = ["records", "invalidate", "--reason", "ticket 4711"];
        [&reason[..], more].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let ok = |more: &[&str]| {
        let arguments = invalidate(more);
        target.ok(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let fails = |more: &[&str]| {
        let arguments = invalidate(more);
        target.fails(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert!(fails(&[]).contains("--tenant"), "which records?");
    assert!(fails(&[&one]).contains("--yes"), "it needs a confirmation");
    let open = fails(&[&one, &lost, "--yes"]);
    assert!(open.contains(&lost) && open.contains("records resolve"), "{open}");
    assert!(open.contains("Nothing has changed"), "{open}");
    assert_eq!(content(target, &one)["content"], "whole");

    let preview = ok(&["--tenant", "acme", "--operation", "pay", "--dry-run"]);
    assert!(preview.out.contains(&one) && preview.out.contains(&two), "{preview:?}");
    assert!(preview.out.ends_with("3 responses would be invalidated\n"), "{preview:?}");
    assert!(preview.err.contains("1 matching operations are running or unknown"), "{preview:?}");
    assert_eq!(content(target, &one)["content"], "whole", "nothing has changed");
    assert_eq!(decisions(target, &one), [[""; 3]; 0]);

    assert_eq!(ok(&[&one, "--yes"]).out, "1 responses invalidated\n");
    let gone = content(target, &one);
    assert_eq!((&gone["content"], &gone["bytes"]), (&json!("invalidated"), &json!(0)));
    assert_eq!(gone["status"], 201, "labels stay");
    let shown = target.ok(&["records", "show", &one, "--outcome"]).out;
    assert!(shown.contains("invalidated") && !shown.contains("cGFpZA"), "{shown}");
    let decision = ["invalidated", by, "ticket 4711"].map(str::to_owned);
    assert_eq!(decisions(target, &one), std::slice::from_ref(&decision));
    assert_eq!(ok(&[&one, "--yes"]).out, "0 responses invalidated, 1 were before\n");
    assert_eq!(decisions(target, &one).len(), 1, "the same decision is not made twice");

    let report = ok(&["--tenant", "acme", "--yes", "--json"]).json();
    let expected = json!({
        "dry_run": false, "invalidated": 2, "already_invalidated": 1, "open": [lost],
    });
    assert_eq!(report, expected);
    assert_eq!(ids(&report["open"]), [lost.as_str()]);
    for id in [&two, &other] {
        assert_eq!(content(target, id)["content"], "invalidated");
        assert_eq!(decisions(target, id), std::slice::from_ref(&decision));
    }
    assert_eq!(content(target, &foreign)["content"], "whole", "of another tenant");
    let trail = target.ok(&["operations", "trail", &one]).out;
    assert!(trail.contains("invalidated  by ") && trail.contains("ticket 4711"), "{trail}");
}

fn records() -> [onceward_core::Record; 5] {
    let paid = |now| match completed("paid")(now) {
        State::Completed { outcome, retained } => {
            State::Completed { outcome: outcome.with_status(201), retained }
        }
        other => other,
    };
    let failed = |now| match paid(now) {
        State::Completed { outcome, retained } => State::Failed { outcome, retained },
        other => other,
    };
    [
        record("acme", "one", paid),
        record("acme", "two", paid),
        record("acme", "other", failed),
        record("acme", "lost", |_| unknown()),
        record("globex", "foreign", paid),
    ]
}

#[test]
fn responses_are_invalidated_at_a_directory() {
    let (directory, records) = (tempfile::tempdir().unwrap(), records());
    let url = format!("file:{}", directory.path().join("data").display());
    fill(&url, &records);
    everything(&Target::Store(url), &records, "cli:otto");
}

#[test]
fn responses_are_invalidated_at_a_postgres_and_at_a_redis() {
    if let Some(server) = onceward_services::postgres() {
        let records = records();
        fill(server.url(), &records);
        everything(&Target::Store(server.url().to_owned()), &records, "cli:otto");
    }
    if let Some(server) = onceward_services::redis() {
        let records = records();
        fill(server.url(), &records);
        everything(&Target::Store(server.url().to_owned()), &records, "cli:otto");
    }
}

#[test]
fn responses_are_invalidated_at_a_running_gateway() {
    let (directory, records) = (tempfile::tempdir().unwrap(), records());
    let url = format!("file:{}", directory.path().join("data").display());
    fill(&url, &records);
    let gateway = Gateway::start(&url, CountingService::open().address, directory.path());
    everything(&Target::Admin(gateway.admin), &records, "olga");
}

/// The third request is answered by the replay cache of the gateway, the fourth must not be.
#[test]
fn an_invalidated_response_is_not_replayed_and_does_not_run_again() {
    let (service, directory) = (CountingService::open(), tempfile::tempdir().unwrap());
    let url = format!("file:{}", directory.path().join("data").display());
    let gateway = Gateway::start(&url, service.address, directory.path());
    let target = Target::Admin(gateway.admin);
    let send = || post(gateway.address, "0", "k").unwrap();
    assert_eq!(send().status, 201);
    assert!(send().is_replay() && send().is_replay());
    let listed = target.ok(&["records", "list", "--json"]).json();
    let id = listed["records"][0]["operation_id"].as_str().unwrap();
    target.ok(&["records", "invalidate", id, "--reason", "undone", "--yes"]);
    for _ in 0..2 {
        let refused = send();
        assert_eq!(refused.status, 409);
        assert_eq!(refused.code(), Some("IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE"));
        assert!(refused.body.contains("invalidated by an operator"), "{}", refused.body);
    }
    assert_eq!(service.effects("k"), 1);
}

/// Of a key with a business reference, the reference's record has the response.
#[test]
fn a_key_leads_to_the_response_of_its_business_reference() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("data").display());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let begin = |key: &str| {
        let reference = BusinessReference::new("RF18-5390", KnownReference::Replay).unwrap();
        let scope = Scope::new("acme", "shop", "pay").unwrap();
        let fingerprint = Fingerprint::of_parts(&[b"pay"]);
        let intent = Intent::new(scope, Key::new(key).unwrap(), fingerprint);
        let (intent, url) = (intent.with_reference(reference), url.clone());
        runtime.block_on(async move {
            let engine = Engine::new(onceward_stores::connect(&url).await.unwrap());
            match engine.begin(&intent).await.unwrap() {
                onceward_core::Begin::Execute(permit) => {
                    let paid = Outcome::whole(Tag::from_static("text/v1"), "paid");
                    assert_eq!(permit.complete(paid.clone()).await, Settled::Durable);
                    paid
                }
                onceward_core::Begin::Replay(replay) => replay.outcome,
                other => panic!("{other:?}"),
            }
        })
    };
    assert_eq!(begin("k1").bytes, begin("k2").bytes);
    let target = Target::Store(url.clone());
    let find = ["records", "find", "--tenant", "acme", "--caller", "shop", "--operation", "pay"];
    let found = target.ok(&[&find[..], &["--key", "k1", "--json"]].concat()).json();
    let listed = target.ok(&["records", "list", "--json"]).json();
    let of_key = |it: &&Value| it["record"] != found["record"]["record"];
    let key = listed["records"].as_array().unwrap().iter().find(of_key).unwrap();
    let id = key["operation_id"].as_str().unwrap();
    target.ok(&["records", "invalidate", id, "--reason", "undone", "--yes"]);
    assert!(begin("k1").is_invalidated() && begin("k3").is_invalidated(), "under every key");
}

/// A configuration of PostgreSQL behind Redis.
fn tiered(directory: &tempfile::TempDir, postgres: &str, redis: &str) -> String {
    let config = directory.path().join("tiered.toml");
    // Redis decides until its entries are invalid: this test is about that.
    let text = format!("[store]\nurl = \"{postgres}\"\ncache = \"{redis}?trust=300ms\"\n");
    std::fs::write(&config, text).unwrap();
    config.to_str().unwrap().to_owned()
}

#[test]
fn copies_of_records_that_were_deleted_by_hand_are_invalidated() {
    let Some(postgres) = onceward_services::postgres() else { return };
    let Some(redis) = onceward_services::redis() else { return };
    let directory = tempfile::tempdir().unwrap();
    let config = tiered(&directory, postgres.url(), redis.url());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(async {
        let cache = format!("{}?trust=300ms", redis.url());
        onceward_stores::Connect::new(postgres.url()).cache(cache).open().await.unwrap()
    });
    let engine = Engine::new(store);
    let begin = |key: &str| {
        let scope = Scope::new("acme", "shop", "pay").unwrap();
        let intent =
            Intent::new(scope, Key::new(key).unwrap(), Fingerprint::of_parts(&[key.as_bytes()]));
        runtime.block_on(async {
            match engine.begin(&intent).await.unwrap() {
                onceward_core::Begin::Execute(permit) => {
                    let operation = permit.operation().to_string();
                    let paid = Outcome::whole(Tag::from_static("text/v1"), "paid");
                    assert_eq!(permit.complete(paid).await, Settled::Durable);
                    ("executed", operation)
                }
                onceward_core::Begin::Replay(replay) => ("replayed", replay.operation.to_string()),
                other => panic!("{other:?}"),
            }
        })
    };
    let run = |arguments: &[&str]| {
        let reason = ["--reason", "row deleted, ticket 4711", "--yes"];
        let arguments = [&["store", "invalidate"], arguments, &reason].concat();
        finish(onceward(&arguments).args(["--config", &config]))
    };
    let delete = || {
        let sql = "DELETE FROM onceward.idempotency_record WHERE tenant_id = 'acme'";
        onceward_services::query(&postgres, sql).unwrap();
    };
    let (_, first) = begin("k");
    for by in [&["--all"][..], &[&first]] {
        delete();
        assert_eq!(begin("k").0, "replayed", "Redis answers");
        let done = run(by);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(begin("k").0, "executed", "{by:?}");
    }
    let dry = run(&["--tenant", "acme", "--operation", "pay", "--dry-run"]);
    assert!(dry.out.contains("the copies of 1 records in the cache would be"), "{dry:?}");
    let of_tenant = run(&["--tenant", "acme", "--json"]).json();
    assert_eq!(of_tenant, json!({ "dry_run": false, "records": 1, "missing": 0 }));
    let trail = finish(onceward(&["operations", "trail", "--json"]).args(["--config", &config]));
    let trail = trail.json();
    let evidence: Vec<_> =
        trail.as_array().unwrap().iter().map(|it| it["evidence"].as_str().unwrap()).collect();
    let ticket = "row deleted, ticket 4711";
    assert_eq!(
        evidence,
        [
            format!("{ticket} (all copies)"),
            format!("{ticket} (copies of 1 records)"),
            format!("{ticket} (tenant acme) (copies of 1 records)"),
        ]
    );
    assert!(trail.as_array().unwrap().iter().all(|it| it["decided"] == "cache_invalidated"));

    // The other door.
    let store = format!("url = \"{}\"\ncache = \"{}?trust=300ms\"", postgres.url(), redis.url());
    let service = CountingService::open().address;
    let gateway = Gateway::start_with(&store, "", service, directory.path());
    // Redis may answer or not, as the copy is made in the background.
    begin("k");
    delete();
    let all = ["store", "invalidate", "--all", "--reason", "row deleted", "--yes"];
    assert_eq!(Target::Admin(gateway.admin).ok(&all).out, "all copies in the cache are invalid\n");
    assert_eq!(begin("k").0, "executed");
    let none = "{\"reason\":\"because\",\"records\":[]}";
    let (status, body) = ask(gateway.admin, "POST", "/v1/invalidate-cache", Some(OLGA), none);
    assert!(status == 400 && body.contains("records: 0 is not 1 to 1000"), "{body}");
}

#[test]
fn a_store_without_a_cache_says_what_to_use_instead() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("data").display());
    fill(&url, &records());
    let target = Target::Store(url);
    let refused = target.fails(&["store", "invalidate", "--all", "--reason", "because", "--yes"]);
    assert!(refused.contains("The store has no cache"), "{refused}");
    assert!(refused.contains("onceward records invalidate"), "{refused}");
    assert!(target.fails(&["store", "invalidate", "--reason", "because"]).contains("--all"));
    assert_eq!(target.ok(&["operations", "trail"]).out, "no decisions\n");
}
