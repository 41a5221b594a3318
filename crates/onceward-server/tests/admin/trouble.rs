//! What operators are told when something is wrong.

use crate::book::Book;
use crate::world::{Door, Gateway, fill, finish, onceward, record};
use onceward_core::State;

const NOBODY: &str = "019a8c3e-77f0-7a01-b1c2-d3e4f5a6b7c8";

#[test]
fn a_store_that_is_down_is_named_with_what_to_do() {
    let Some(server) = onceward_services::postgres() else { return };
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(server.url(), Book::open().address, directory.path());
    server.stop().unwrap();
    let told = Door::Store(server.url().to_owned()).fails(&["records", "list"]);
    assert!(told.contains("check that the server runs"), "{told}");
    let told = Door::Admin(gateway.admin).fails(&["records", "list"]);
    assert!(told.contains("The store is unavailable"), "{told}");
    drop(gateway);
}

#[test]
fn a_gateway_that_is_down_is_named_with_what_to_do() {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let told = Door::Admin(address).fails(&["store", "stats"]);
    assert!(told.contains("http://127.0.0.1:1") && told.contains("see that it runs"), "{told}");
}

#[test]
fn a_directory_that_a_gateway_has_open_is_asked_for_at_the_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("data").display());
    let gateway = Gateway::start(&url, Book::open().address, directory.path());
    for command in [&["records", "list"][..], &["store", "verify"], &["operations", "unknown"]] {
        let told = Door::Store(url.clone()).fails(command);
        assert!(told.contains("--admin"), "{told}");
    }
    let mut wrong = Door::Admin(gateway.admin).command(&["records", "list"]);
    let told = finish(wrong.env("ONCEWARD_TOKEN", "guessed-0123456789")).err;
    assert!(told.contains("A token is required"), "{told}");
    let told = finish(wrong.env_remove("ONCEWARD_TOKEN")).err;
    assert!(told.contains("ONCEWARD_TOKEN") && told.contains("[[tokens]]"), "{told}");
}

#[test]
fn looking_at_a_directory_never_makes_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let none = directory.path().join("none");
    let door = Door::Store(format!("file:{}", none.display()));
    for command in [&["records", "list"][..], &["store", "verify"], &["store", "compact"]] {
        assert!(door.fails(command).contains("there is no store in"));
    }
    assert!(!none.exists());
    assert!(Door::Store("memory:".into()).fails(&["records", "list"]).contains("--admin"));
    let told = finish(&mut onceward(&["records", "list"])).err;
    assert!(told.contains("--config FILE, --store URL or --admin URL"), "{told}");
}

#[test]
fn a_wrong_id_and_a_wrong_order_are_told_with_what_would_be_right() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("data").display());
    let lost = record("acme", "lost", |_| State::Unknown);
    fill(&url, std::slice::from_ref(&lost));
    let (door, id) = (Door::Store(url), lost.operation.to_string());
    let done = door.run(&["records", "show", "17"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("64 hexadecimal digits"), "{done:?}");
    assert!(door.fails(&["records", "show", NOBODY]).contains(NOBODY));
    assert!(door.fails(&["operations", "trail", NOBODY]).contains(NOBODY));
    let resolve = ["records", "resolve", &id, "--happened", "--reason", "seen", "--yes"];
    for (more, told) in [
        (&["--status", "99"][..], "99 is not 200 to 599"),
        (&["--status", "201", "--header", "set-cookie: a"], "set-cookie is never kept"),
        (&["--status", "201", "--body-file", "/none"], "/none"),
        (&["--status", "201", "--reason", " "], "reason"),
    ] {
        let mut arguments = resolve.to_vec();
        if more.contains(&"--reason") {
            arguments.retain(|it| !["--reason", "seen"].contains(it));
        }
        arguments.extend(more);
        let said = door.fails(&arguments);
        assert!(said.contains(told), "{more:?}: {said}");
    }
    // Without a verdict, or with half of one, nothing is begun.
    let done = door.run(&["records", "resolve", &id, "--reason", "seen", "--yes"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert_eq!(door.run(&resolve).code, Some(2), "no status");
    assert_eq!(door.ok(&["operations", "trail"]).out, "nothing was decided\n");
    assert!(door.ok(&["records", "show", &id]).out.contains("unknown"));
}

#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("data").display());
    let many: Vec<_> =
        (0..400).map(|key| record("acme", &key.to_string(), |_| State::Unknown)).collect();
    fill(&url, &many);
    let mut child = Door::Store(url)
        .command(&["records", "list", "--all"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
