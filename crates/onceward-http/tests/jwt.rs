//! Scopes from verified tokens only.

mod common;

use std::time::{SystemTime, UNIX_EPOCH};

use common::*;
use http::HeaderValue;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use onceward_http::{Jwt, Onceward, OncewardLayer};
use serde_json::{Value, json};

const SECRET: &[u8] = b"a secret of the tests, 32 bytes or more";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn claims(changes: &Value) -> Value {
    let mut claims = json!({
        "sub": "alice", "tenant": 17, "iss": "login", "aud": "orders", "exp": now() + 600
    });
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn token(claims: &Value, algorithm: Algorithm, secret: &[u8]) -> String {
    encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(secret)).unwrap()
}

fn layer() -> OncewardLayer {
    let jwt = Jwt::hs256(SECRET).issuer("login").audience("orders");
    Onceward::layer(Bench::new().engine())
        .tenant(jwt.claim("tenant"))
        .caller(jwt.claim("sub"))
        .build()
        .unwrap()
}

async fn go(layer: &OncewardLayer, counter: &Counter, authorization: &str) -> Answer {
    let mut request = post("k", "{}");
    let value = HeaderValue::from_str(authorization).unwrap();
    request.headers_mut().insert("authorization", value);
    send(layer, counting(counter), request).await
}

#[tokio::test]
async fn a_new_token_of_the_same_caller_replays_and_another_caller_does_not() {
    let (layer, counter) = (layer(), Counter::default());
    let bearer = |changes| format!("Bearer {}", token(&claims(&changes), Algorithm::HS256, SECRET));
    assert!(!is_replay(&go(&layer, &counter, &bearer(json!({}))).await));
    assert!(is_replay(&go(&layer, &counter, &bearer(json!({"exp": now() + 900}))).await));
    assert!(!is_replay(&go(&layer, &counter, &bearer(json!({"sub": "bob"}))).await));
    assert!(!is_replay(&go(&layer, &counter, &bearer(json!({"tenant": 18}))).await));
    assert_eq!(counter.executions(), 3);
}

#[tokio::test]
async fn a_token_that_does_not_verify_is_401_and_nothing_runs() {
    let (layer, counter) = (layer(), Counter::default());
    let signed = |changes| token(&claims(&changes), Algorithm::HS256, SECRET);
    let good = signed(json!({}));
    go(&layer, &counter, &format!("Bearer {good}")).await;
    let unsigned = {
        let parts: Vec<&str> = good.split('.').collect();
        // {"alg":"none"}
        format!("eyJhbGciOiJub25lIn0.{}.", parts[1])
    };
    for bad in [
        String::new(),
        "Basic YTpi".into(),
        "Bearer".into(),
        "Bearer nonsense".into(),
        format!("Bearer {unsigned}"),
        format!(
            "Bearer {}",
            token(&claims(&json!({})), Algorithm::HS256, b"another secret, 32 bytes long or more")
        ),
        format!("Bearer {}", token(&claims(&json!({})), Algorithm::HS512, SECRET)),
        format!("Bearer {}", signed(json!({"exp": now() - 600}))),
        format!("Bearer {}", signed(json!({"nbf": now() + 600}))),
        format!("Bearer {}", signed(json!({"iss": "elsewhere"}))),
        format!("Bearer {}", signed(json!({"aud": "elsewhere"}))),
        format!("Bearer {}", signed(json!({"sub": null}))),
    ] {
        let refused = go(&layer, &counter, &bad).await;
        assert_eq!(refused.status(), 401, "{bad}");
        assert_eq!(code(&refused), "INVALID_CREDENTIALS");
        assert_eq!(refused.headers()["www-authenticate"], "Bearer");
    }
    assert_eq!(counter.executions(), 1);
}

#[test]
fn key_sets_are_checked_when_they_are_read() {
    let rsa = json!({"keys": [{
        "kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256", "e": "AQAB",
        "n": "yRE6rHuNR0QbHO3H3Kt2pOKGVhQqGZXInOduQNxXzuKlvQTLUTv4l4sggh5_CYYi_cvI-SXVT9kPWSKXxJXBXd_4LkvcPuUakBoAkfh-eiFVMh2VrUyWyj3MFl0HTVF9KwRXLAcwkREiS3npThHRyIxuy0ZMeZfxVL5arMhw1SRELB8HoGfG_AtH89BIE9jDBHZ9dLelK9a184zAf8LwoPLxvJb3Il5nncqPcSfKDDodMFBIMc4lQzDKL5gvmiXLXB1AGLm8KBjfE8s3L5xqi-yUod-j8MtvIj812dkS4QMiRVN_by2h3ZY8LYVGrqZXZTcgn2ujn8uKjXLZVD5TdQ"
    }]});
    assert!(Jwt::jwks(&rsa.to_string()).is_ok());
    let told = |set: Value| Jwt::jwks(&set.to_string()).unwrap_err().to_string();
    assert!(told(json!({"keys": []})).contains("no key"));
    assert!(told(json!([])).contains("not a JSON Web Key Set"));
    // A public key set that holds a shared secret would let its readers sign.
    let secret = json!({"keys": [{"kty": "oct", "kid": "s", "k": "c2VjcmV0"}]});
    assert!(told(secret).contains("shared secret"));
}
