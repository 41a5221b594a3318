//! TLS, with certificates made for tests: `tls/` has a key without any use, and the certificate of
//! an authority whose key was deleted.

use std::net::TcpListener;

use onceward_services::{Redis, Server, or_skip};
use onceward_stores::redis::{OpenError, RedisStore, Settings, Tls};

use super::common::{complete, replay, settings};

const CA: &str = include_str!("tls/ca.pem");
const CERTIFICATE: &str = include_str!("tls/cert.pem");
const KEY: &str = include_str!("tls/key.pem");

/// A server that speaks TLS at a second port.
fn server(clients: &str) -> Option<(Server, String)> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // The server may run as another user, so the files are readable for all.
    let file = |name| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/tls/").to_owned() + name;
    let redis = Redis::default()
        .setting("tls-port", &port.to_string())
        .setting("tls-cert-file", &file("cert.pem"))
        .setting("tls-key-file", &file("key.pem"))
        .setting("tls-ca-cert-file", &file("ca.pem"))
        .setting("tls-auth-clients", clients);
    Some((or_skip(redis.start())?, format!("rediss://localhost:{port}/")))
}

fn tls(client: bool) -> Tls {
    let client = client.then(|| (CERTIFICATE.into(), KEY.into()));
    Tls { ca: Some(CA.into()), client }
}

#[tokio::test]
async fn a_store_speaks_tls_to_whom_its_authority_vouches_for() {
    let Some((_server, url)) = server("no") else { return };
    let settings = settings();
    let trusting = Settings { tls: tls(false), ..settings.clone() };
    let store = RedisStore::open(&url, trusting).await.unwrap();
    complete(&store, "key", "done").await;
    assert_eq!(replay(&store, "key").await, "done");
    // The system does not know that authority.
    let error = RedisStore::open(&url, settings).await.unwrap_err();
    assert!(matches!(error, OpenError::Unavailable(_)), "{error:?}");
}

#[tokio::test]
async fn a_server_that_asks_for_certificates_gets_ours() {
    let Some((_server, url)) = server("yes") else { return };
    let settings = settings();
    let nameless = Settings { tls: tls(false), ..settings.clone() };
    assert!(RedisStore::open(&url, nameless).await.is_err());
    let store = RedisStore::open(&url, Settings { tls: tls(true), ..settings }).await.unwrap();
    complete(&store, "key", "done").await;
}

#[tokio::test]
async fn a_url_names_the_files_of_its_certificates() {
    let Some((_server, url)) = server("yes") else { return };
    let file = |name| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/tls/").to_owned() + name;
    let (ca, cert, key) = (file("ca.pem"), file("cert.pem"), file("key.pem"));
    let url = format!("{url}?ca={ca}&cert={cert}&key={key}&timeout=10s");
    let store = onceward_stores::connect(&url).await.unwrap();
    complete(&*store, "key", "done").await;
}
