//! Looking after stores: space, tables, seals, plans.

use std::fs;
use std::path::Path;

use crate::world::{Door, completed, finish, onceward, record};
use onceward_stores::Connect;
use onceward_stores::sealed::Keys;

#[test]
fn a_directory_is_compacted_and_others_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("data").display());
    crate::world::fill(&url, &[record("acme", "done", completed("paid"))]);
    let told = Door::Store(url).ok(&["store", "compact"]).out;
    assert!(told.contains("the files take"), "{told}");
    let told = Door::Store("postgres://h/d".into()).fails(&["store", "compact"]);
    assert!(told.contains("VACUUM"), "{told}");
    assert!(Door::Store("redis://h".into()).fails(&["store", "compact"]).contains("Redis"));
}

#[test]
fn tables_are_planned_then_made_then_up_to_date() {
    let Some(server) = onceward_services::postgres() else { return };
    let door = Door::Store(server.url().to_owned());
    let plan = door.ok(&["store", "migrate", "--dry-run"]).out;
    assert!(plan.contains("CREATE TABLE") && plan.trim_end().ends_with("COMMIT;"), "{plan}");
    assert_eq!(door.ok(&["store", "migrate", "--dry-run"]).out, plan, "nothing was run");
    assert!(door.ok(&["store", "migrate"]).out.contains("migrations were applied"));
    assert_eq!(door.ok(&["store", "migrate"]).out, "the tables were up to date\n");
    assert!(door.ok(&["store", "migrate", "--dry-run"]).out.contains("up to date"));
    let told = Door::Store("redis://h".into()).fails(&["store", "migrate"]);
    assert!(told.contains("only postgres:"), "{told}");
}

const OLD: &str = "old:q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=";
const NEW: &str = "new:EjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCrze8=";

fn sealed(directory: &Path, url: &str, keys: &str) -> String {
    let (file, config) = (directory.join("sealing.keys"), directory.join("onceward.toml"));
    fs::write(&file, keys).unwrap();
    let text = format!("[store]\nurl = \"{url}\"\nsealing_keys_file = \"{}\"\n", file.display());
    fs::write(&config, text).unwrap();
    config.to_str().unwrap().to_owned()
}

#[test]
fn what_is_sealed_anew_needs_the_old_key_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("data").display());
    let done = record("acme", "done", completed("paid"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let keys = Keys::parse(OLD).unwrap();
        let store = Connect::new(&url).sealed(keys).open().await.unwrap();
        let _written = store.import(&done).await.unwrap();
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(5));
    let run = |keys: &str, arguments: &[&str]| {
        let config = sealed(directory.path(), &url, keys);
        finish(onceward(arguments).args(["--config", &config]))
    };
    let told = run(NEW, &["store", "verify"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(told.out.contains(&format!("unreadable  {}", done.id)), "{told:?}");
    let id = done.operation.to_string();
    assert!(run(NEW, &["records", "show", &done.id.to_string()]).err.contains("cannot be read"));

    let both = format!("{NEW}\n{OLD}");
    let told = run(&both, &["store", "reseal"]);
    assert_eq!((told.code, &*told.out), (Some(0), "1 of 1 records were sealed anew\n"));
    assert_eq!(run(&both, &["store", "reseal"]).out, "0 of 1 records were sealed anew\n");
    assert_eq!(run(NEW, &["store", "verify"]).code, Some(0));
    let shown = run(NEW, &["records", "show", &id, "--outcome", "--json"]);
    assert!(shown.out.contains("cGFpZA=="), "{shown:?}");
    // Without any keys nothing is decided: gateways could not read it.
    let lost = record("acme", "lost", |_| onceward_core::State::Unknown);
    crate::world::fill(&url, std::slice::from_ref(&lost));
    let (door, id) = (Door::Store(url.clone()), lost.operation.to_string());
    let release = ["records", "release", &id, "--reason", "voided", "--yes"];
    assert!(door.fails(&release).contains("The store is sealed"));
    assert_eq!(run(NEW, &release).code, Some(0));
    assert!(run(NEW, &["operations", "trail", &id]).out.contains("voided"));
    let none = Door::Store(url.clone()).fails(&["store", "reseal"]);
    assert!(none.contains("nothing is sealed"), "{none}");
}

#[test]
fn a_plan_shows_its_numbers_and_warns_of_short_retention() {
    let plan = |more: &[&str]| {
        let load = ["plan", "--rate", "200/s", "--ttl", "24h", "--record", "1.5KiB"];
        finish(&mut onceward(&[&load[..], more].concat()))
    };
    let told = plan(&["--retry-horizon", "3d"]).out;
    for part in ["200/s x 86,400 s = 17,280,000", "(1,536 + 901) B", "warning: retention (1day)"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
    let redis = plan(&["--store", "redis", "--json"]).json();
    assert_eq!(redis["needs"].as_array().unwrap().len(), 1);
    assert_eq!(redis["needs"][0]["bytes"], 17_280_000_u64 * (1_536 + 457 + 128));
    assert!(redis["warnings"].as_array().unwrap().is_empty());
    let known = plan(&["--retry-horizon", "3d", "--tombstone", "2d"]).out;
    assert!(known.contains("refused as expired"), "{known}");
    let done = finish(&mut onceward(&["plan", "--rate", "many", "--ttl", "1h", "--record", "1"]));
    assert!(done.code == Some(2) && done.err.contains("200/s"), "{done:?}");
}

#[test]
fn every_command_explains_itself_with_examples() {
    for command in [
        &["records", "list"][..],
        &["records", "show"],
        &["records", "resolve"],
        &["records", "release"],
        &["records", "purge"],
        &["records", "export"],
        &["operations", "show"],
        &["operations", "trail"],
        &["operations", "unknown"],
        &["store", "stats"],
        &["store", "verify"],
        &["store", "compact"],
        &["store", "migrate"],
        &["store", "copy"],
        &["store", "reseal"],
        &["plan"],
    ] {
        let help = finish(&mut onceward(&[command, &["--help"]].concat()));
        assert!(help.out.contains("Examples:"), "{command:?}: {help:?}");
    }
}
