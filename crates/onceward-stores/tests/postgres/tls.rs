//! TLS, to a server that refuses connections without it. Its certificates are made for the test.

use onceward_services::{Postgres, Server, or_skip};
use onceward_stores::postgres::{OpenError, PostgresStore, Settings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::NamedTempFile;

use super::common::{complete, replay, small};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn server(authority: &Authority, name: &str) -> Option<Server> {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([name.to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, authority).unwrap();
    or_skip(Postgres::default().only_tls(&certificate.pem(), &key.serialize_pem()).start())
}

/// A file with an authority's certificate, and settings that trust it.
fn trusting(authority: &Authority) -> (NamedTempFile, Settings) {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority.pem()).unwrap();
    let root_certificates = Some(file.path().to_owned());
    (file, Settings { root_certificates, ..small() })
}

async fn refused(url: &str, settings: Settings) -> String {
    match PostgresStore::open(url, settings).await {
        Err(error @ OpenError::Unreachable { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_store_speaks_tls_to_whom_its_authority_vouches_for() {
    let authority = authority();
    let Some(server) = server(&authority, "127.0.0.1") else { return };
    let (_file, settings) = trusting(&authority);
    let url = format!("{}?sslmode=require", server.url());
    let store = PostgresStore::open(&url, settings.clone()).await.unwrap();
    complete(&store, "key", "done").await;
    assert_eq!(replay(&store, "key").await, "done");
    // All of its connections use TLS 1.2 or later.
    let (_file, plain) = trusting(&authority);
    let again = PostgresStore::open(&url, Settings { schema: settings.schema, ..plain }).await;
    assert_eq!(replay(&again.unwrap(), "key").await, "done");
}

#[tokio::test]
async fn a_server_that_another_authority_vouches_for_is_refused() {
    let Some(server) = server(&authority(), "127.0.0.1") else { return };
    let url = format!("{}?sslmode=require", server.url());
    let (_file, settings) = trusting(&authority());
    let why = refused(&url, settings).await;
    assert!(why.contains("certificate"), "{why}");
    // The system does not know that authority.
    let why = refused(&url, small()).await;
    assert!(why.contains("UnknownIssuer"), "{why}");
}

#[tokio::test]
async fn a_server_by_another_name_is_refused() {
    let authority = authority();
    let Some(server) = server(&authority, "db.example") else { return };
    let (_file, settings) = trusting(&authority);
    let why = refused(&format!("{}?sslmode=require", server.url()), settings).await;
    assert!(why.contains("not valid for name"), "{why}");
}

#[tokio::test]
async fn without_tls_such_a_server_refuses_us_and_says_why() {
    let Some(server) = server(&authority(), "127.0.0.1") else { return };
    let why = refused(&format!("{}?sslmode=disable", server.url()), small()).await;
    assert!(why.contains("no encryption"), "{why}");
}
