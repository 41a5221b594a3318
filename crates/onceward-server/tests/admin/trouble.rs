//! Errors that operators get.

use crate::counting_service::CountingService;
use crate::fixtures::{Gateway, Target, fill, finish, onceward, record, unknown};

const MISSING: &str = "019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8";

#[test]
fn a_store_that_is_down_is_named_with_what_to_do() {
    let Some(server) = onceward_services::postgres() else { return };
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(server.url(), CountingService::open().address, directory.path());
    server.stop().unwrap();
    let output = Target::Store(server.url().to_owned()).fails(&["records", "list"]);
    assert!(output.contains("check that the server runs"), "{output}");
    let output = Target::Admin(gateway.admin).fails(&["records", "list"]);
    assert!(output.contains("The store is unavailable"), "{output}");
    drop(gateway);
}

#[test]
fn a_gateway_that_is_down_is_named_with_what_to_do() {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let output = Target::Admin(address).fails(&["store", "stats"]);
    assert!(
        output.contains("http://127.0.0.1:1") && output.contains("check that it runs"),
        "{output}"
    );
}

#[test]
fn a_directory_that_a_gateway_has_open_is_asked_for_at_the_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("data").display());
    let gateway = Gateway::start(&url, CountingService::open().address, directory.path());
    for command in [&["records", "list"][..], &["store", "verify"], &["operations", "unknown"]] {
        let output = Target::Store(url.clone()).fails(command);
        assert!(output.contains("--admin"), "{output}");
    }
    let mut wrong = Target::Admin(gateway.admin).command(&["records", "list"]);
    let output = finish(wrong.env("ONCEWARD_TOKEN", "guessed-0123456789")).err;
    assert!(output.contains("A token is required"), "{output}");
    let output = finish(wrong.env_remove("ONCEWARD_TOKEN")).err;
    assert!(output.contains("ONCEWARD_TOKEN") && output.contains("[[tokens]]"), "{output}");
}

#[test]
fn looking_at_a_directory_never_makes_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let none = directory.path().join("none");
    let target = Target::Store(format!("file:{}", none.display()));
    for command in [&["records", "list"][..], &["store", "verify"], &["store", "compact"]] {
        assert!(target.fails(command).contains("there is no store in"));
    }
    assert!(!none.exists());
    assert!(Target::Store("memory:".into()).fails(&["records", "list"]).contains("--admin"));
    let output = finish(&mut onceward(&["records", "list"])).err;
    assert!(output.contains("--config FILE, --store URL or --admin URL"), "{output}");
}

#[test]
fn a_wrong_id_and_a_wrong_order_are_told_with_what_would_be_right() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("data").display());
    let lost = record("acme", "lost", |_| unknown());
    fill(&url, std::slice::from_ref(&lost));
    let (target, id) = (Target::Store(url), lost.operation.to_string());
    let done = target.run(&["records", "show", "17"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("64 hexadecimal digits"), "{done:?}");
    assert!(target.fails(&["records", "show", MISSING]).contains(MISSING));
    assert!(target.fails(&["operations", "trail", MISSING]).contains(MISSING));
    let resolve = ["records", "resolve", &id, "--happened", "--reason", "seen", "--yes"];
    for (more, expected) in [
        (&["--status", "99"][..], "99 is not 200 to 599"),
        (&["--status", "201", "--header", "set-cookie: a"], "set-cookie is never stored"),
        (&["--status", "201", "--body-file", "/none"], "/none"),
        (&["--status", "201", "--reason", " "], "reason"),
    ] {
        let mut arguments = resolve.to_vec();
        if more.contains(&"--reason") {
            arguments.retain(|it| !["--reason", "seen"].contains(it));
        }
        arguments.extend(more);
        let error = target.fails(&arguments);
        assert!(error.contains(expected), "{more:?}: {error}");
    }
    // Without a complete verdict, nothing happens.
    let done = target.run(&["records", "resolve", &id, "--reason", "seen", "--yes"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert_eq!(target.run(&resolve).code, Some(2), "no status");
    assert_eq!(target.ok(&["operations", "trail"]).out, "no decisions\n");
    assert!(target.ok(&["records", "show", &id]).out.contains("unknown"));
}

#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("data").display());
    let many: Vec<_> =
        (0..400).map(|key| record("acme", &key.to_string(), |_| unknown())).collect();
    fill(&url, &many);
    let mut child = Target::Store(url)
        .command(&["records", "list", "--all"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
