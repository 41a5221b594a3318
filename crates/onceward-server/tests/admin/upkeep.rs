//! Maintenance of stores: compaction, migrations, resealing, planning.

use std::fs;
use std::path::Path;

use crate::fixtures::{Target, completed, finish, onceward, record, unknown};
use onceward_stores::Connect;
use onceward_stores::sealed::Keys;

#[test]
fn a_directory_is_compacted_and_others_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("data").display());
    crate::fixtures::fill(&url, &[record("acme", "done", completed("paid"))]);
    let output = Target::Store(url).ok(&["store", "compact"]).out;
    assert!(output.contains("the files now take"), "{output}");
    let output = Target::Store("postgres://h/d".into()).fails(&["store", "compact"]);
    assert!(output.contains("VACUUM"), "{output}");
    assert!(Target::Store("redis://h".into()).fails(&["store", "compact"]).contains("Redis"));
}

#[test]
fn tables_are_planned_then_made_then_up_to_date() {
    let Some(server) = onceward_services::postgres() else { return };
    let target = Target::Store(server.url().to_owned());
    let plan = target.ok(&["store", "migrate", "--dry-run"]).out;
    assert!(plan.contains("CREATE TABLE") && plan.trim_end().ends_with("COMMIT;"), "{plan}");
    assert_eq!(target.ok(&["store", "migrate", "--dry-run"]).out, plan, "nothing was run");
    assert!(target.ok(&["store", "migrate"]).out.contains("migrations applied"));
    assert_eq!(target.ok(&["store", "migrate"]).out, "the tables are up to date\n");
    assert!(target.ok(&["store", "migrate", "--dry-run"]).out.contains("up to date"));
    let output = Target::Store("redis://h".into()).fails(&["store", "migrate"]);
    assert!(output.contains("only postgres:"), "{output}");
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
    let output = run(NEW, &["store", "verify"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.out.contains(&format!("unreadable  {}", done.id)), "{output:?}");
    let id = done.operation.to_string();
    assert!(run(NEW, &["records", "show", &done.id.to_string()]).err.contains("cannot be read"));

    let both = format!("{NEW}\n{OLD}");
    let output = run(&both, &["store", "reseal"]);
    assert_eq!((output.code, &*output.out), (Some(0), "1 of 1 records resealed\n"));
    assert_eq!(run(&both, &["store", "reseal"]).out, "0 of 1 records resealed\n");
    assert_eq!(run(NEW, &["store", "verify"]).code, Some(0));
    let shown = run(NEW, &["records", "show", &id, "--outcome", "--json"]);
    assert!(shown.out.contains("cGFpZA=="), "{shown:?}");
    // Without keys no decision is written: gateways could not read it.
    let lost = record("acme", "lost", |_| unknown());
    crate::fixtures::fill(&url, std::slice::from_ref(&lost));
    let (target, id) = (Target::Store(url.clone()), lost.operation.to_string());
    let release = ["records", "release", &id, "--reason", "voided", "--yes"];
    assert!(target.fails(&release).contains("The store is sealed"));
    assert_eq!(run(NEW, &release).code, Some(0));
    assert!(run(NEW, &["operations", "trail", &id]).out.contains("voided"));
    let none = Target::Store(url.clone()).fails(&["store", "reseal"]);
    assert!(none.contains("no sealing keys"), "{none}");
}

#[test]
fn a_plan_shows_its_numbers_and_warns_of_short_retention() {
    let plan = |more: &[&str]| {
        let load = ["plan", "--rate", "200/s", "--ttl", "24h", "--record", "1.5KiB"];
        finish(&mut onceward(&[&load[..], more].concat()))
    };
    let output = plan(&["--retry-horizon", "3d"]).out;
    for part in ["200/s x 86,400 s = 17,280,000", "(1,536 + 901) B", "warning: retention (1day)"] {
        assert!(output.contains(part), "{part}: {output}");
    }
    assert!(output.lines().all(|line| line.chars().count() <= 80), "{output}");
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
        &["records", "invalidate"],
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
        &["store", "invalidate"],
        &["store", "reseal"],
        &["plan"],
    ] {
        let help = finish(&mut onceward(&[command, &["--help"]].concat()));
        assert!(help.out.contains("Examples:"), "{command:?}: {help:?}");
    }
}
