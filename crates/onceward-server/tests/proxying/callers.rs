//! The owner of a key: trusted headers, tokens, and external authorization.

use std::collections::HashSet;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use onceward_testkit::http::Protocol;
use onceward_testkit::http::server::Server;
use parking_lot::Mutex;
use rcgen::{KeyPair, PublicKeyData};
use serde_json::json;

use crate::service::Service;
use crate::test_gateway::{Settings, TestGateway};
use crate::tls::http2_get;

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_header_counts_only_from_a_trusted_peer() {
    let service = Service::start().await;
    let scope = "[scope]\ntenant = { header = \"x-tenant\" }\n";
    let friends =
        TestGateway::with(&service, &format!("{scope}trusted_peers = [\"127.0.0.1\"]")).await;
    let who = |tenant: &str| format!("authorization: Bearer a\r\nx-tenant: {tenant}\r\n");
    assert_eq!(friends.post("/x", "k", &who("red")).await.status, 201);
    assert!(friends.post("/x", "k", &who("red")).await.is_replay());
    assert!(!friends.post("/x", "k", &who("blue")).await.is_replay());
    let twice = friends.post("/x", "k", &(who("red") + "X-Tenant: blue\r\n")).await;
    assert_eq!(twice.problem(), (400, "INVALID_TENANT".into()));
    assert_eq!(service.runs(), 2);

    let strangers =
        TestGateway::with(&service, &format!("{scope}trusted_peers = [\"10.0.0.0/8\"]")).await;
    let refused = strangers.post("/x", "k", &who("red")).await;
    assert_eq!(refused.problem(), (400, "INVALID_TENANT".into()));
    assert_eq!(service.runs(), 2);
    let passes = "GET /x HTTP/1.1\r\nhost: shop\r\nx-tenant: red\r\n\r\n";
    assert_eq!(strangers.send(passes).await.status, 201);
    assert_eq!(service.last().header("x-tenant"), None);
}

/// A request that was replayed before is recognised by its bytes, on stores that recall outcomes.
#[tokio::test(flavor = "multi_thread")]
async fn other_credentials_get_no_reply_that_was_replayed_before() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = format!("file:{}", directory.path().join("records").display());
    for store in ["memory:", &embedded] {
        let service = Service::start().await;
        let settings = Settings { store, tables: "", ..Settings::default() };
        let gateway = settings.before(&service.base()).await;
        let under = async |credentials: &str| gateway.post("/x", "k", credentials).await;
        assert_eq!(under("authorization: Bearer a\r\n").await.status, 201);
        for _ in 0..3 {
            assert!(under("authorization: Bearer a\r\n").await.is_replay(), "{store}");
            for other in ["authorization: Bearer b\r\n", "cookie: session=b\r\n"] {
                let refused = under(other).await;
                let code = "IDEMPOTENCY_KEY_USED_WITH_OTHER_CREDENTIALS".to_owned();
                assert_eq!(refused.problem(), (403, code), "{store} {other}");
            }
        }
        assert_eq!(service.runs(), 1, "{store}");
    }
}

/// A variable that every process has: a test cannot set one only for itself.
const SECRET: &str = "PATH";

const LATER: u64 = 4_000_000_000;

fn token(key: &EncodingKey, algorithm: Algorithm, subject: &str, expires: u64) -> String {
    let claims = json!({ "sub": subject, "exp": expires, "iss": "login", "n": 1 });
    let token = encode(&Header::new(algorithm), &claims, key).unwrap();
    format!("authorization: Bearer {token}\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_under_a_shared_secret_name_the_caller() {
    let service = Service::start().await;
    let scope =
        format!("[scope]\ncaller = {{ claim = \"sub\" }}\njwt = {{ secret_env = \"{SECRET}\" }}");
    let gateway = TestGateway::with(&service, &scope).await;
    let key = EncodingKey::from_secret(std::env::var(SECRET).unwrap().as_bytes());
    let of = |subject, expires| token(&key, Algorithm::HS256, subject, expires);
    assert_eq!(gateway.post("/x", "k", &of("alice", LATER)).await.status, 201);
    assert!(gateway.post("/x", "k", &of("alice", LATER + 1)).await.is_replay());
    assert!(!gateway.post("/x", "k", &of("bob", LATER)).await.is_replay());
    assert_eq!(service.runs(), 2);

    let claims = URL_SAFE_NO_PAD.encode(json!({ "sub": "alice", "exp": LATER }).to_string());
    let none = URL_SAFE_NO_PAD.encode(json!({ "alg": "none", "typ": "JWT" }).to_string());
    let wrong = EncodingKey::from_secret(b"another secret");
    for headers in [
        String::new(),
        of("alice", 1_000_000_000),
        token(&wrong, Algorithm::HS256, "alice", LATER),
        token(&key, Algorithm::HS512, "alice", LATER),
        format!("authorization: Bearer {none}.{claims}.\r\n"),
        "authorization: Basic YWxpY2U6\r\n".to_owned(),
    ] {
        let refused = gateway.post("/x", "k", &headers).await;
        assert_eq!(refused.status, 401, "{headers}");
        assert!(!refused.is_replay());
    }
    assert_eq!(service.runs(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_under_a_key_set_name_the_caller_and_its_public_key_is_no_secret() {
    let service = Service::start().await;
    let pair = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let public = pair.der_bytes().to_vec();
    let set = json!({ "keys": [{
        "kty": "OKP", "crv": "Ed25519", "kid": "1", "x": URL_SAFE_NO_PAD.encode(&public),
    }] });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jwks.json");
    std::fs::write(&path, set.to_string()).unwrap();
    let scope = format!(
        "[scope]\ncaller = {{ claim = \"sub\" }}\n[scope.jwt]\njwks_file = \"{}\"\nissuer = \"login\"",
        path.display()
    );
    let gateway = TestGateway::with(&service, &scope).await;
    let key = EncodingKey::from_ed_der(&pair.serialize_der());
    let of = |subject| token(&key, Algorithm::EdDSA, subject, LATER);
    assert_eq!(gateway.post("/x", "k", &of("alice")).await.status, 201);
    assert!(gateway.post("/x", "k", &of("alice")).await.is_replay());
    assert!(!gateway.post("/x", "k", &of("bob")).await.is_replay());
    let confused = EncodingKey::from_secret(&public);
    let confused = token(&confused, Algorithm::HS256, "alice", LATER);
    assert_eq!(gateway.post("/x", "k", &confused).await.status, 401);
    let foreign = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let foreign = EncodingKey::from_ed_der(&foreign.serialize_der());
    let foreign = token(&foreign, Algorithm::EdDSA, "alice", LATER);
    assert_eq!(gateway.post("/x", "k", &foreign).await.status, 401);
    assert_eq!(service.runs(), 2);
}

/// An authorization service that knows some tokens and records its requests.
#[derive(Clone, Default)]
struct Authority {
    known: Arc<Mutex<HashSet<String>>>,
    asked: Arc<Mutex<Vec<HeaderMap>>>,
}

impl Authority {
    fn start(&self) -> Server {
        let authority = self.clone();
        let answer = move |request: Request<Incoming>| {
            let authority = authority.clone();
            async move { authority.answer(&request) }
        };
        Server::start(Protocol::Http1, answer).unwrap()
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        self.asked.lock().push(request.headers().clone());
        let token = request.headers().get("authorization").map(|it| it.to_str().unwrap());
        let status = match token {
            Some("Bearer confused") => 302,
            Some(token) if self.known.lock().contains(token) => 204,
            Some(_) => 403,
            None => 401,
        };
        let response = Response::builder().status(status).header("www-authenticate", "Bearer");
        response.header("location", "/elsewhere").body(Full::default()).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_revoked_gets_no_replay() {
    let (service, authority) = (Service::start().await, Authority::default());
    let server = authority.start();
    let tables = format!(
        "[authorization]\nurl = \"{}/check\"\n[scope]\ncaller = {{ fixed = \"all\" }}",
        server.base()
    );
    let gateway = TestGateway::with(&service, &tables).await;
    authority.known.lock().insert("Bearer alice".into());
    let alice = "authorization: Bearer alice\r\n";
    assert_eq!(gateway.post("/x", "k", alice).await.status, 201);
    assert!(gateway.post("/x", "k", alice).await.is_replay());
    authority.known.lock().clear();
    let revoked = gateway.post("/x", "k", alice).await;
    assert_eq!((revoked.status, revoked.is_replay()), (403, false));
    let anonymous = gateway.post("/x", "k", "").await;
    assert_eq!(anonymous.status, 401);
    assert_eq!(anonymous.header("www-authenticate").as_deref(), Some("Bearer"));
    // Neither allowed nor denied. A redirect is not followed.
    let confused = gateway.post("/x", "k", "authorization: Bearer confused\r\n").await;
    assert_eq!(confused.status, 503);
    assert_eq!(gateway.get("/x").await.status, 401);
    assert_eq!(service.runs(), 1);
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_asked_learns_method_and_path_and_no_lies() {
    let (service, authority) = (Service::start().await, Authority::default());
    let server = authority.start();
    authority.known.lock().insert("Bearer a".into());
    let gateway =
        TestGateway::with(&service, &format!("[authorization]\nurl = \"{}\"", server.base())).await;
    let lies = "authorization: Bearer a\r\nx-original-uri: /public\r\nx-original-method: GET\r\n\
                x-original-uri: /public\r\nx-forwarded-for: 10.0.0.1\r\nforwarded: for=10.0.0.1\r\n";
    assert_eq!(gateway.post("/orders?a=1", "k", lies).await.status, 201);
    http2_get(gateway.address(), "http://shop/orders?b=2", &[("authorization", "Bearer a")]).await;
    let asked = authority.asked.lock().clone();
    let said = |headers: &HeaderMap, name: &str| {
        let values: Vec<_> = headers.get_all(name).iter().map(|it| it.to_str().unwrap()).collect();
        values.join("|")
    };
    assert_eq!(said(&asked[0], "x-original-uri"), "/orders?a=1");
    assert_eq!(said(&asked[0], "x-original-method"), "POST");
    assert!(!said(&asked[0], "x-forwarded-for").contains("10.0.0.1"));
    assert!(!said(&asked[0], "forwarded").contains("10.0.0.1"));
    assert_eq!(said(&asked[0], "content-length"), "");
    assert_eq!(said(&asked[1], "x-original-uri"), "/orders?b=2");
}
