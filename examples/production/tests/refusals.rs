//! Stores that are wrong, unreachable or unsafe: the program ends with an error that names the
//! variable and shows no password.

use std::process::Command;

/// Part of each password in this file.
const SECRET: &str = "canary";

/// Runs the program until it ends with exit code 1, and returns its error.
fn refused(variables: &[(&str, &str)]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_example-production"));
    let output = program.env_clear().env("PORT", "0").envs(variables.iter().copied()).output();
    let output = output.unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(output.stdout.is_empty(), "it listens: {error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(!error.contains(SECRET), "{error}");
    error
}

#[track_caller]
fn assert_refused(store: &str, why: &str) {
    let error = refused(&[("ONCEWARD_STORE", store)]);
    assert!(error.starts_with("ONCEWARD_STORE: ") && error.contains(why), "{error}");
}

#[test]
fn a_wrong_url_is_refused() {
    assert_refused("", "must begin with a scheme");
    assert_refused("mysql://root:canary@localhost/orders", "the scheme `mysql:` is unknown");
    assert_refused("user:canary@localhost", "the scheme `user:` is unknown");
    assert_refused("memory:?canary@localhost", "written `%3F`");
}

#[test]
fn a_key_prefix_for_memory_is_refused() {
    let error = refused(&[("ONCEWARD_KEY_PREFIX", "order:")]);
    assert!(error.starts_with("ONCEWARD_KEY_PREFIX is set, but"), "{error}");
}

#[cfg(feature = "embedded")]
#[test]
fn a_key_prefix_for_a_directory_is_refused() {
    let variables = [("ONCEWARD_STORE", "file:./data"), ("ONCEWARD_KEY_PREFIX", "order:")];
    assert!(refused(&variables).starts_with("ONCEWARD_KEY_PREFIX is set, but"));
}

#[cfg(feature = "embedded")]
#[test]
fn the_directory_of_another_instance_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}/store", directory.path().display());
    let variables = [("PORT", "0"), ("ONCEWARD_STORE", url.as_str())];
    let program = env!("CARGO_BIN_EXE_example-production");
    let first = example_walk::Program::start(program, &variables);
    first.address();
    assert_refused(&url, "is open in another process");
}

#[cfg(feature = "redis")]
mod redis {
    use onceward_services::{Redis, ask, or_skip};

    use super::*;

    #[test]
    fn a_wrong_url_is_refused() {
        assert_refused("redis:canary", "the host (after `//`)");
        assert_refused("redis://:canary@localhost:many", "cannot be used");
        assert_refused("redis://:canary?canary@localhost", "written `%3F`");
        assert_refused("redis://:canary@localhost?timeout=1", "the option `timeout`");
    }

    #[test]
    fn an_unreachable_server_is_refused() {
        assert_refused("redis://:canary@127.0.0.1:1", "Connection refused");
    }

    #[test]
    fn a_wrong_password_is_refused() {
        let Some(server) = onceward_services::redis() else { return };
        ask(&server, &["CONFIG", "SET", "requirepass", "right"]).unwrap();
        let url = format!("redis://:canary@127.0.0.1:{}", server.port());
        assert_refused(&url, "the Redis server cannot be used");
    }

    #[test]
    fn a_server_that_would_lose_records_is_refused() {
        let forgetting = Redis::default().persistent(false);
        let evicting = Redis::default().setting("maxmemory-policy", "allkeys-lru");
        for (redis, why) in [(forgetting, "appendonly yes"), (evicting, "noeviction")] {
            let Some(server) = or_skip(redis.start()) else { return };
            assert_refused(server.url(), why);
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::*;

    #[test]
    fn a_wrong_url_is_refused() {
        assert_refused("postgres://orders:canary@localhost:many/orders", "option `port`");
        assert_refused("postgres://orders:canary?canary@localhost", "written `%3F`");
        assert_refused("postgres://orders:canary@localhost/orders?schema=A", "the option `schema`");
    }

    #[test]
    fn an_unreachable_server_is_refused() {
        assert_refused("postgres://orders:canary@127.0.0.1:1/orders", "Connection refused");
    }

    #[test]
    fn a_database_that_does_not_exist_is_refused() {
        let Some(server) = onceward_services::postgres() else { return };
        let url = format!("postgres://postgres:canary@{}/missing", server.address());
        assert_refused(&url, "database \"missing\" does not exist");
    }

    /// The README recommends `migrate=false` against instances with another schema.
    #[test]
    fn a_schema_without_tables_is_refused_where_they_are_not_created() {
        let Some(server) = onceward_services::postgres() else { return };
        let url = format!("{}?schema=typo&migrate=false", server.url());
        assert_refused(&url, "the schema `typo` has version 0");
    }

    #[test]
    fn a_key_prefix_is_refused_with_what_to_set_instead() {
        let store = ("ONCEWARD_STORE", "postgres://orders:canary@localhost/orders");
        let error = refused(&[store, ("ONCEWARD_KEY_PREFIX", "order:")]);
        assert!(error.starts_with("ONCEWARD_KEY_PREFIX is set, but"), "{error}");
        assert!(error.contains("the option `schema`"), "{error}");
    }
}
