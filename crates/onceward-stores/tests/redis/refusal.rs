//! Servers that are not safe for records, or refuse the login.

use onceward_core::StoreErrorKind;
use onceward_services::{Redis, or_skip};
use onceward_stores::redis::{Allow, OnEmpty, OpenError, RedisStore, Settings, Unsafe};

use super::common::{complete, replay, settings, shared, tell};

async fn refused(url: &str, settings: Settings) -> OpenError {
    RedisStore::open(url, settings).await.expect_err("it was opened")
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_with_what_to_do_unless_that_is_accepted() {
    let evicting = Redis::default().setting("maxmemory-policy", "volatile-lru");
    let Some(server) = or_skip(evicting.start()) else { return };
    let error = refused(server.url(), settings()).await;
    assert!(matches!(error, OpenError::Unsafe(Unsafe::Eviction { .. })), "{error:?}");
    let said = error.to_string();
    assert!(
        said.contains("`volatile-lru`") && said.contains("CONFIG SET maxmemory-policy"),
        "{said}"
    );
    assert_eq!(tell(&server, &["DBSIZE"]), "0".into(), "nothing was changed");

    let accepted = Settings { allow: Allow { eviction: true, ..Allow::default() }, ..settings() };
    complete(&RedisStore::open(server.url(), accepted).await.unwrap(), "key", "done").await;
    tell(&server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    RedisStore::open(server.url(), settings()).await.unwrap();
}

#[tokio::test]
async fn a_server_that_forgets_is_refused_unless_that_is_accepted() {
    let Some(server) = or_skip(Redis::default().persistent(false).start()) else { return };
    let error = refused(server.url(), settings()).await;
    assert!(matches!(error, OpenError::Unsafe(Unsafe::NoPersistence { .. })), "{error:?}");
    let allow = Allow { no_persistence: true, ..Allow::default() };
    RedisStore::open(server.url(), Settings { allow, ..settings() }).await.unwrap();
}

#[tokio::test]
async fn a_replica_is_refused() {
    let Some(pair) = onceward_services::redis_with_replica() else { return };
    let error = refused(pair.replica.url(), settings()).await;
    assert!(matches!(error, OpenError::Unsafe(Unsafe::Replica { .. })), "{error:?}");
}

#[tokio::test]
async fn a_node_of_a_cluster_that_evicts_is_named() {
    let Some(cluster) = onceward_services::redis_cluster() else { return };
    tell(&cluster.nodes[1], &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let error = RedisStore::open_cluster(cluster.urls(), settings()).await.unwrap_err();
    let node = format!("{}: ", cluster.nodes[1].port());
    assert!(error.to_string().contains(&node), "{error}");
}

#[tokio::test]
async fn an_empty_server_can_be_refused() {
    let Some(server) = shared() else { return };
    let strict = Settings { empty: OnEmpty::Refuse, ..settings() };
    let error = refused(server.url(), strict.clone()).await;
    assert!(matches!(&error, OpenError::Empty { prefix } if *prefix == strict.prefix), "{error:?}");
    let once = Settings { empty: OnEmpty::Begin, ..strict.clone() };
    complete(&RedisStore::open(server.url(), once).await.unwrap(), "key", "done").await;
    let again = RedisStore::open(server.url(), strict).await.unwrap();
    assert_eq!(replay(&again, "key").await, "done");
}

#[tokio::test]
async fn users_of_the_access_list_come_in_with_their_password_only() {
    let Some(server) = onceward_services::redis() else { return };
    tell(&server, &["ACL", "SETUSER", "once", "on", ">secret", "~ours:*", "&ours:*", "+@all"]);
    tell(&server, &["ACL", "SETUSER", "default", "off"]);
    let ours = || Settings { prefix: "ours".to_owned(), ..settings() };
    let url = |login: &str| format!("redis://{login}@127.0.0.1:{}", server.port());
    for wrong in ["once:wrong", "default:secret"] {
        match refused(&url(wrong), ours()).await {
            OpenError::Unavailable(error) => {
                assert_eq!(error.kind, StoreErrorKind::Unavailable);
                assert!(!error.may_have_been_applied(), "{error:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    let store = RedisStore::open(&url("once:secret"), ours()).await.unwrap();
    complete(&store, "key", "done").await;
    assert!(!format!("{store:?}").contains("secret"));
}

#[tokio::test]
async fn two_processes_that_set_a_store_up_together_both_grant() {
    let Some(server) = shared() else { return };
    let settings = settings();
    let open = || RedisStore::open(server.url(), settings.clone());
    let (one, two) = tokio::join!(open(), open());
    let (one, two) = (one.unwrap(), two.unwrap());
    for index in 0..50 {
        complete(&one, &format!("one {index}"), "done").await;
        complete(&two, &format!("two {index}"), "done").await;
        assert_eq!(replay(&one, &format!("two {index}")).await, "done");
    }
}
