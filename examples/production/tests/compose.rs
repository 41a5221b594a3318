//! compose.yaml: Redis runs with its arguments and serves the example, and the rest is as the README
//! says. Docker is not needed.

#![cfg(feature = "redis")]

use std::process::Command;

use example_walk::{App, Program};
use onceward_services::{Redis, Reply, Server, ask, or_skip};
use serde_json::{Map, Value};

const README: &str = include_str!("../README.md");

fn compose() -> Value {
    parse(include_str!("../compose.yaml"))
}

/// Parses the part of YAML that the file is written in: mappings, and values on one line that are
/// JSON lists or plain text. Panics on all else. A YAML parser would be one more dependency.
fn parse(yaml: &str) -> Value {
    let is_content = |line: &&str| !matches!(line.trim_start().chars().next(), None | Some('#'));
    let lines: Vec<_> = yaml.lines().filter(is_content).collect();
    mapping(&mut &lines[..], 0)
}

/// Takes the lines of a mapping.
fn mapping(lines: &mut &[&str], indentation: usize) -> Value {
    let mut entries = Map::new();
    while let Some((line, rest)) = lines.split_first() {
        let found = line.len() - line.trim_start().len();
        if found < indentation {
            break;
        }
        assert_eq!(found, indentation, "{line:?}");
        let (name, value) = line.trim().split_once(':').unwrap_or_else(|| panic!("{line:?}"));
        *lines = rest;
        let value = match value.trim() {
            "" => mapping(lines, indentation + 2),
            list if list.starts_with('[') => serde_json::from_str(list).unwrap(),
            text if text.contains(['{', '&', '*', '!', '|', '>', '"', '\'', '#']) => {
                panic!("{line:?}: the parser in this test does not know this syntax")
            }
            text => text.into(),
        };
        assert_eq!(entries.insert(name.to_owned(), value), None, "{line:?} is there twice");
    }
    Value::Object(entries)
}

/// The texts of a list.
fn texts(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap_or_else(|| panic!("not a list: {list}"));
    list.iter().map(|text| text.as_str().unwrap()).collect()
}

/// Starts Redis with exactly the arguments of the file.
fn redis() -> Option<Server> {
    let compose = compose();
    let command = texts(&compose["services"]["redis"]["command"]);
    let (program, arguments) = command.split_first().unwrap();
    assert_eq!(*program, "redis-server");
    let redis = arguments.chunks(2).fold(Redis::unconfigured(), |redis, pair| {
        let name = pair[0].strip_prefix("--").unwrap_or_else(|| panic!("{pair:?}"));
        redis.setting(name, pair[1])
    });
    or_skip(redis.start())
}

fn config(redis: &Server, name: &str) -> Reply {
    match ask(redis, &["CONFIG", "GET", name]).unwrap() {
        Reply::List(mut pair) => pair.pop().unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn create(redis: &Server) -> (Program, (u16, bool, String)) {
    let variables = [("PORT", "0"), ("ONCEWARD_STORE", redis.url())];
    let program = Program::start(env!("CARGO_BIN_EXE_example-production"), &variables);
    let headers =
        [("x-tenant-id", "2b8de313-9c3c-4a15-a9b8-0cd1e34be3da"), ("idempotency-key", "order-1")];
    let order = r#"{"customerId":"25dfc44e-3ed7-4eb4-b412-6a6df8c6d355","amount":99.99}"#;
    let response = App::at(&program.address()).post("/api/orders", &headers, order).await;
    let replayed = response.replayed();
    (program, (response.status, replayed, response.body))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_starts_on_this_redis_and_finds_its_records_after_a_crash_of_both() {
    let Some(redis) = redis() else { return };
    assert_eq!(config(&redis, "appendfsync"), "always".into());
    assert_eq!(config(&redis, "maxmemory-policy"), "noeviction".into());
    assert_ne!(config(&redis, "maxmemory"), "0".into());
    let (mut program, (status, replayed, body)) = create(&redis).await;
    assert_eq!((status, replayed), (201, false));
    program.kill();
    redis.kill().unwrap();
    redis.start().unwrap();
    let (_program, replay) = create(&redis).await;
    assert_eq!(replay, (200, true, body));
}

#[test]
fn the_health_check_of_redis_tells_a_running_server_from_a_dead_one() {
    let Some(redis) = redis() else { return };
    let compose = compose();
    let words = texts(&compose["services"]["redis"]["healthcheck"]["test"]);
    let ["CMD", program, arguments @ ..] = &words[..] else { panic!("{words:?}") };
    let is_healthy = || {
        let port = redis.port().to_string();
        Command::new(program).args(["-p", &port]).args(arguments).output().map(|it| it.status)
    };
    let Ok(status) = is_healthy() else {
        println!("skipped: {program} is not on this machine");
        return;
    };
    assert!(status.success(), "{status}");
    redis.kill().unwrap();
    assert!(!is_healthy().unwrap().success());
}

#[test]
fn only_this_machine_can_connect_and_the_data_outlive_the_containers() {
    let compose = compose();
    for (service, port, directory) in
        [("redis", "6379", "/data"), ("postgres", "5432", "/var/lib/postgresql/data")]
    {
        let Value::Object(definition) = &compose["services"][service] else { panic!("{service}") };
        assert_eq!(texts(&definition["ports"]), [format!("127.0.0.1:{port}:{port}")]);
        let volumes = texts(&definition["volumes"]);
        let [volume] = volumes[..] else { panic!("{volumes:?}") };
        let (volume, path) = volume.split_once(':').unwrap();
        assert_eq!(path, directory);
        assert!(compose["volumes"].get(volume).is_some(), "{volume} is not declared");
    }
}

#[test]
fn the_readme_has_the_urls_of_the_servers() {
    let compose = compose();
    let postgres = &compose["services"]["postgres"];
    assert_eq!(texts(&postgres["profiles"]), ["postgres"]);
    let variable = |name: &str| postgres["environment"][name].as_str().unwrap();
    let (user, password) = (variable("POSTGRES_USER"), variable("POSTGRES_PASSWORD"));
    let url = format!("postgres://{user}:{password}@localhost/{}", variable("POSTGRES_DB"));
    for text in [&url, "ONCEWARD_STORE=redis://localhost ", "--profile postgres "] {
        assert!(README.contains(text), "{text}");
    }
}
