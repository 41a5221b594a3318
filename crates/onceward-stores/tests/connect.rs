//! Opening stores by their URL, and the errors of wrong URLs.

use std::error::Error;

use onceward_stores::{Connect, ConnectError, SharedStore, connect};

async fn refused(url: &str) -> String {
    match connect(url).await {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error.to_string(),
    }
}

/// Checks that a store decides, through an engine.
async fn works(store: &SharedStore) {
    use onceward_core::{Begin, Engine, Fingerprint, Intent, Key, Outcome, Scope, Settled};
    let engine = Engine::new(store.clone());
    let scope = Scope::new("tenant", "caller", "operation").unwrap();
    let intent = Intent::new(scope, Key::new("k").unwrap(), Fingerprint::of_parts(&[]));
    let Begin::Execute(permit) = engine.begin(&intent).await.unwrap() else { panic!() };
    assert_eq!(permit.complete(Outcome::json("done").unwrap()).await, Settled::Durable);
    let Begin::Replay(replay) = engine.begin(&intent).await.unwrap() else { panic!() };
    assert_eq!(replay.outcome.read_json::<String>().unwrap(), "done");
    assert_eq!(store.stats().await.unwrap().records, 1);
}

/// The part of an error that lists the schemes of this build.
fn known() -> String {
    let others = [
        (cfg!(feature = "embedded"), "embedded", "file:./data"),
        (cfg!(feature = "redis"), "redis", "redis://localhost"),
        (cfg!(feature = "postgres"), "postgres", "postgres://localhost"),
    ];
    let mut known = "this build knows `memory:`".to_owned();
    for (_, _, example) in others.iter().filter(|(built, ..)| *built) {
        known += &format!(", `{example}`");
    }
    for (_, feature, example) in others.iter().filter(|(built, ..)| !*built) {
        known += &format!(", and with the feature `{feature}` it would `{example}`");
    }
    known
}

#[tokio::test]
async fn memory_is_a_store_in_this_process() {
    works(&connect("memory:").await.unwrap()).await;
    works(&connect("MEMORY:?records_max=10&bytes_max=64MiB").await.unwrap()).await;
}

#[tokio::test]
async fn the_options_of_memory_limit_it() {
    let store = connect("memory:?records_max=0").await.unwrap();
    let engine = onceward_core::Engine::new(store);
    let scope = onceward_core::Scope::new("tenant", "caller", "operation").unwrap();
    let fingerprint = onceward_core::Fingerprint::of_parts(&[]);
    let key = onceward_core::Key::new("k").unwrap();
    let error = engine.begin(&onceward_core::Intent::new(scope, key, fingerprint)).await;
    assert!(error.unwrap_err().source().unwrap().to_string().contains("full"));
}

#[tokio::test]
async fn a_url_without_a_scheme_is_told_which_there_are() {
    let text = "a store's URL must begin with a scheme and a colon: ";
    for url in ["", "./data", "memory", ":memory", "./da:ta", "my data:"] {
        assert_eq!(refused(url).await, format!("{text}{}", known()), "{url}");
    }
}

#[tokio::test]
async fn an_unknown_scheme_is_named_and_told_which_there_are() {
    let text = format!("the scheme `mysql:` is unknown: {}", known());
    assert_eq!(refused("mysql://root:secret@db/once").await, text);
}

/// A `?` in a password makes the rest of it look like an option, which errors name.
#[tokio::test]
async fn an_option_that_may_be_a_password_is_not_shown() {
    let text = "the query (after `?`) of a `memory:` URL has an unknown option; a `?` in a \
                password is written `%3F`";
    for url in ["memory:?secret@host", "memory:?secret=x@host", "memory:?secret&secret&@host"] {
        assert_eq!(refused(url).await, text, "{url}");
    }
}

#[cfg(not(feature = "redis"))]
#[tokio::test]
async fn every_redis_scheme_that_was_left_out_names_its_feature() {
    for scheme in ["redis", "rediss", "redis-cluster", "rediss-cluster"] {
        let text = format!(
            "`{scheme}:` stores are not in this build: turn on the feature `redis` of \
             onceward-stores (or of onceward)"
        );
        assert_eq!(refused(&format!("{scheme}://localhost")).await, text);
    }
}

#[cfg(not(feature = "embedded"))]
#[tokio::test]
async fn a_scheme_that_was_left_out_names_its_feature() {
    let text = "`file:` stores are not in this build: turn on the feature `embedded` of \
                onceward-stores (or of onceward)";
    assert_eq!(refused("file:./data").await, text);
}

#[tokio::test]
async fn the_wrong_part_of_a_memory_url_is_named() {
    let path = "the path of a `memory:` URL must be empty: all of it is in this process";
    assert_eq!(refused("memory:data").await, path);
    assert_eq!(refused("memory://").await, path);
    let fragment = "the fragment (after `#`) of a `memory:` URL has no meaning: a `#` in a name \
                    is written `%23`";
    assert_eq!(refused("memory:#top").await, fragment);
}

#[tokio::test]
async fn a_wrong_option_is_named_with_those_that_there_are() {
    let unknown = "`memory:` stores have no option `size`; theirs are `records_max`, `bytes_max`";
    assert_eq!(refused("memory:?size=7").await, unknown);
    let twice = "the option `bytes_max` of a `memory:` URL is given twice";
    assert_eq!(refused("memory:?bytes_max=1&bytes_max=1").await, twice);
    let number = "the option `bytes_max` of a `memory:` URL must be a whole number, such as \
                  `65536` or `64KiB` (KiB, MiB or GiB)";
    for value in ["", "=", "=many", "=-1", "=+1", "=1.5GiB", "=MiB", "=1MB", "=1 MiB"] {
        assert_eq!(refused(&format!("memory:?bytes_max{value}")).await, number, "{value}");
    }
    let large = "the option `bytes_max` of a `memory:` URL is too large";
    for value in ["18446744073709551616", "18446744073709551615KiB"] {
        assert_eq!(refused(&format!("memory:?bytes_max={value}")).await, large, "{value}");
    }
}

#[tokio::test]
async fn neither_errors_nor_debug_show_a_password() {
    for url in [
        "redis://:canary@host.invalid",
        "redis://canary@:x",
        "mysql://u:canary@host",
        "memory:canary@",
        "file://canary@h/",
    ] {
        let error: ConnectError = connect(url).await.err().expect(url);
        let shown = format!("{error} {error:?} {:?}", Connect::new(url));
        assert!(!shown.contains("canary"), "{shown}");
    }
}

#[cfg(feature = "embedded")]
mod embedded {
    use super::*;

    #[tokio::test]
    async fn a_file_url_is_a_directory_with_its_options() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        let options = "cache_bytes=1MiB&memtable_bytes=1MiB&segment_bytes=256KiB&\
                       reserve_bytes=0&batch_calls_max=10&batch_bytes_max=1000000";
        for (url, there) in [
            (format!("file:{path}/one%20%3F?{options}"), "one ?"),
            (format!("file://{path}/two?{options}"), "two"),
        ] {
            works(&connect(&url).await.unwrap()).await;
            assert!(directory.path().join(there).join("format").is_file(), "{there}");
        }
    }

    #[tokio::test]
    async fn the_wrong_part_of_a_file_url_is_named() {
        let path = "the path of a `file:` URL is missing: name a directory, as in `file:./data`";
        assert_eq!(refused("file:").await, path);
        assert_eq!(refused("file:?cache_bytes=1").await, path);
        let host = "the host (after `//`) of a `file:` URL must be empty: write `file:./data` or \
                    `file:///var/lib/data`";
        for url in ["file://data", "file://", "file://host/data"] {
            assert_eq!(refused(url).await, host);
        }
        let percent = "the path of a `file:` URL has a `%` without two hexadecimal digits: write \
                       `%25` for it";
        for url in ["file:./100%", "file:./100%2", "file:./100%zz"] {
            assert_eq!(refused(url).await, percent);
        }
        let text = "the path of a `file:` URL is not UTF-8 when its `%` escapes are decoded";
        assert_eq!(refused("file:./%ff").await, text);
        let option = "`file:` stores have no option `durability`; theirs are `cache_bytes`, \
                      `memtable_bytes`, `segment_bytes`, `reserve_bytes`, `batch_calls_max`, \
                      `batch_bytes_max`";
        assert_eq!(refused("file:./data?durability=none").await, option);
        assert!(!std::path::Path::new("./data").exists(), "nothing was made");
    }

    #[tokio::test]
    async fn a_directory_that_does_not_open_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file:{}", directory.path().display());
        let _open = connect(&url).await.unwrap();
        let error = connect(&url).await.err().expect("it is locked");
        assert!(error.to_string().contains("is open in another process"), "{error}");
    }
}

#[cfg(not(feature = "postgres"))]
#[tokio::test]
async fn postgres_that_was_left_out_names_its_feature() {
    let text = "stores are not in this build: turn on the feature `postgres` of \
                onceward-stores (or of onceward)";
    assert_eq!(refused("postgres://localhost").await, format!("`postgres:` {text}"));
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::*;

    #[tokio::test]
    async fn a_postgres_url_is_a_store_with_its_options() {
        let Some(server) = onceward_services::postgres() else { return };
        let options = "schema=paid&connections=1&transactions_max=1&batch_calls_max=10&\
                       call_timeout=5s&statement_timeout=4s&lock_timeout=500ms&\
                       connect_timeout=5s&listen=false&purge_slack_max=0s&sslmode=disable&\
                       application_name=till";
        let url = format!("{}?{options}", server.url());
        works(&connect(&url).await.unwrap()).await;
        let count = "select count(*) from paid.idempotency_record where state = 'completed'";
        assert_eq!(onceward_services::query(&server, count).unwrap(), "1");
        let other = server.url().replacen("postgres:", "postgresql:", 1);
        works(&connect(&other).await.unwrap()).await;

        let url = format!("{}?schema=missing&migrate=false", server.url());
        let text = refused(&url).await;
        let outdated = "the schema `missing` has version 0, this release needs ";
        assert!(text.starts_with(outdated) && text.ends_with(": run the migration"), "{text}");
    }

    #[tokio::test]
    async fn the_wrong_option_of_a_postgres_url_is_named() {
        for (option, problem) in [
            ("schema=A", "must be lower-case letters, digits and underscores, at most 48"),
            ("migrate=yes", "must be `true` or `false`"),
            ("lock_timeout=5", "must be a time in `ms`, `s`, `m` or `h`, such as `500ms`"),
            (
                "connections=x",
                "must be a whole number, such as `65536` or `64KiB` (KiB, MiB or GiB)",
            ),
            ("sslmode=allow", "must be `disable`, `prefer`, `require` or `verify-full`"),
            ("listen_url=%ff", "is not UTF-8 when its `%` escapes are decoded"),
        ] {
            let name = option.split('=').next().unwrap();
            let text = format!("the option `{name}` of a `postgres:` URL {problem}");
            assert_eq!(refused(&format!("postgres://localhost/x?{option}")).await, text);
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_told_and_no_password_shown() {
        let url = "postgres://user:canary@127.0.0.1:1/db";
        let error = connect(url).await.err().expect("no server listens there");
        assert!(error.to_string().contains("cannot be reached"), "{error}");
        let shown = format!("{error} {error:?} {:?}", Connect::new(url));
        assert!(!shown.contains("canary"), "{shown}");
        let url = "postgres://localhost/db?sslrootcert=/nowhere.pem&sslmode=require";
        assert!(refused(url).await.contains("certificates in `/nowhere.pem`"));
    }
}

#[cfg(feature = "redis")]
mod redis {
    use super::*;

    #[tokio::test]
    async fn a_redis_url_is_a_server_with_its_options() {
        let Some(server) = onceward_services::redis() else { return };
        let options = "prefix=one&timeout=5s&connections=2&margin=1m&quarantine=10m&\
                       empty=begin&allow=eviction,no-persistence";
        works(&connect(&format!("{}?{options}", server.url())).await.unwrap()).await;
        works(&connect(&format!("{}?prefix=two", server.url())).await.unwrap()).await;
        let keys = onceward_services::ask(&server, &["KEYS", "one:{*}:mark"]).unwrap();
        assert!(matches!(keys, onceward_services::Reply::List(keys) if keys.len() == 1024));
    }

    #[tokio::test]
    async fn a_cluster_url_names_some_of_its_nodes() {
        let Some(cluster) = onceward_services::redis_cluster() else { return };
        let nodes = [&cluster.nodes[0], &cluster.nodes[4]];
        let nodes = nodes.map(|node| format!("127.0.0.1:{}", node.port())).join(",");
        works(&connect(&format!("redis-cluster://{nodes}")).await.unwrap()).await;
    }

    #[tokio::test]
    async fn the_wrong_part_of_a_redis_url_is_named() {
        let host = "the host (after `//`) of a `redis:` URL is missing, as in `redis://localhost`";
        assert_eq!(refused("redis:").await, host);
        assert_eq!(refused("redis:localhost").await, host);
        let several = "the host (after `//`) of a `redis:` URL must be a single one: several are for \
                       `redis-cluster:`";
        assert_eq!(refused("redis://a,b").await, several);
        let database = "the host (after `//`) of a `redis-cluster:` URL must be the last part: a cluster \
                        has no databases";
        assert_eq!(refused("redis-cluster://a,b/1").await, database);
        let allow = "the option `allow` of a `redis:` URL must be `eviction`, `no-persistence`, \
                     or both with a comma";
        assert_eq!(refused("redis://localhost?allow=everything").await, allow);
        let empty =
            "the option `empty` of a `redis:` URL must be `begin`, `quarantine` or `refuse`";
        assert_eq!(refused("redis://localhost?empty=maybe").await, empty);
        let file = "the option `ca` of a `redis:` URL must name a readable file with PEM text";
        assert_eq!(refused("redis://localhost?ca=/nowhere/ca.pem").await, file);
        let prefix = "the setting `prefix` of a Redis store must not be empty, and must have no braces: \
                      they would change the hash tag";
        assert_eq!(refused("redis://localhost?prefix={a}").await, prefix);
        let unreachable = refused("redis://127.0.0.1:1").await;
        assert!(
            unreachable.starts_with("the Redis server cannot be used: redis: unavailable"),
            "{unreachable}"
        );
    }
}

#[cfg(feature = "sealed")]
mod sealed {
    use onceward_stores::sealed::Keys;

    use super::*;

    const KEY: &str = "a:q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=";

    #[tokio::test]
    async fn any_url_can_be_sealed() {
        let connect = Connect::new("memory:").sealed(Keys::parse(KEY).unwrap());
        assert!(!format!("{connect:?}").contains("q83v"), "{connect:?}");
        works(&connect.open().await.unwrap()).await;
    }

    #[cfg(feature = "embedded")]
    #[tokio::test]
    async fn what_was_sealed_is_not_read_without_its_key() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file:{}?reserve_bytes=0", directory.path().display());
        let sealed = |key: &str| Connect::new(&url).sealed(Keys::parse(key).unwrap()).open();
        works(&sealed(KEY).await.unwrap()).await;
        let other = sealed("b:EjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCrze8=").await.unwrap();
        let listed = other.list(&Default::default()).await.unwrap();
        assert_eq!((listed.records.len(), listed.undecodable.len()), (0, 1));
        drop(other);
        let listed = sealed(KEY).await.unwrap().list(&Default::default()).await.unwrap();
        assert_eq!(listed.records.len(), 1);
    }
}

#[cfg(feature = "tiered")]
mod tiered {
    use super::*;

    #[tokio::test]
    async fn a_redis_url_is_put_before_a_postgres_store() {
        let Some(postgres) = onceward_services::postgres() else { return };
        let Some(redis) = onceward_services::redis() else { return };
        let options = "prefix=once&timeout=5s&pause=1s&keep=1m&busy=500ms&trust=2s&\
                       outcome_bytes_max=1KiB&connections=2";
        let cache = format!("{}?{options}", redis.url());
        works(&Connect::new(postgres.url()).cache(cache).open().await.unwrap()).await;
        let names = onceward_services::ask(&redis, &["KEYS", "once:*"]).unwrap();
        assert!(matches!(names, onceward_services::Reply::List(names) if names.len() == 1));
    }

    #[tokio::test]
    async fn what_cannot_be_put_before_a_store_is_named() {
        for (url, cache, text) in [
            (
                "memory:",
                "redis://a",
                "`memory:` stores cannot have a cache: only `postgres:` stores can",
            ),
            ("postgres://a", "memory:", "`memory:` stores cannot be a cache: use a `redis:` URL"),
            (
                "postgres://a",
                "redis://a?trust=1",
                "the option `trust` of a `redis:` URL must be a time in `ms`, `s`, `m` or `h`, \
                 such as `500ms`",
            ),
        ] {
            let refused = Connect::new(url).cache(cache).open().await.err().unwrap();
            assert_eq!(refused.to_string(), text);
        }
        let shown = format!("{:?}", Connect::new("postgres://a:canary@b").cache("redis://canary"));
        assert!(!shown.contains("canary"), "{shown}");
    }
}
