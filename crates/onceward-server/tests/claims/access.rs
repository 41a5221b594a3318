//! Permissions: every endpoint with every kind of token.

use example_walk::Response;
use serde_json::{Value, json};

use crate::server::{
    ACME, Client, OPERATOR, OTHERS, READER, Server, WORKER, claim_of, code, granted, refused,
};

/// All endpoints: a method, a path and a valid body.
fn endpoints(grant: &Value) -> Vec<(&'static str, String, Value)> {
    let lease = &grant["lease"];
    let operation = grant["operation_id"].as_str().unwrap();
    let post = |path: &str, body: Value| ("POST", path.to_owned(), body);
    let get = |path: String| ("GET", path, Value::Null);
    vec![
        post("/v1/claims", claim_of("access")),
        post("/v1/claims/batch", json!({ "claims": [claim_of("access")] })),
        post("/v1/claims/renew", json!({ "lease": lease })),
        post("/v1/claims/unknown", json!({ "lease": lease })),
        post("/v1/claims/complete", json!({ "lease": lease, "result": 1 })),
        post("/v1/claims/fail", json!({ "lease": lease, "result": 1 })),
        post("/v1/claims/release", json!({ "lease": lease })),
        post(
            "/v1/settlements/batch",
            json!({ "settlements": [{ "action": "release", "lease": lease }] }),
        ),
        get(format!("/v1/claims/{operation}")),
        get("/v1/claims?tenant=acme&operation=charge&key=access".into()),
    ]
}

async fn ask(client: &Client, (method, path, body): &(&str, String, Value)) -> Response {
    match *method {
        "POST" => client.post(path, body).await,
        _ => client.get(path).await,
    }
}

#[tokio::test]
async fn every_endpoint_knows_who_may_use_it() {
    let (server, _directory) = Server::embedded();
    let grant = granted(&server.client(WORKER).claim(&claim_of("access")).await);
    for endpoint in endpoints(&grant) {
        let (method, path, _) = &endpoint;
        for stranger in ["", "canary-token-nobody", "canary-token-worke", "canary-token-workers"] {
            let answer = ask(&server.client(stranger), &endpoint).await;
            assert_eq!(refused(&answer), (401, "TOKEN_NEEDED".into()), "{method} {path}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
        let reader = ask(&server.client(READER), &endpoint).await;
        match *method {
            "POST" => assert_eq!(refused(&reader), (403, "ROLE_NEEDED".into()), "{path}"),
            _ => assert_eq!(reader.status, 200, "{path}"),
        }
    }
    for endpoint in endpoints(&grant) {
        for allowed in [WORKER, OPERATOR, ACME] {
            let answer = ask(&server.client(allowed), &endpoint).await;
            assert!([200, 409].contains(&answer.status), "{endpoint:?}: {answer:?}");
        }
    }
    assert_eq!(server.client("").get("/openapi.json").await.status, 200);
}

#[tokio::test]
async fn other_tenants_records_do_not_exist() {
    let (server, _directory) = Server::embedded();
    let grant = granted(&server.client(ACME).claim(&claim_of("access")).await);
    let (other, mut nothing) = (server.client(OTHERS), grant.clone());
    nothing["lease"]["record"] = "0".repeat(64).into();
    nothing["operation_id"] = "01890000-0000-7000-8000-000000000000".into();
    for (there, absent) in endpoints(&grant).into_iter().zip(endpoints(&nothing)) {
        let (answer, nowhere) = (ask(&other, &there).await, ask(&other, &absent).await);
        match (there.0, there.1.as_str()) {
            (_, "/v1/claims/batch") => {
                assert_eq!(answer.json()["answers"][0]["problem"]["code"], "TENANT_FORBIDDEN");
            }
            (_, "/v1/settlements/batch") => {
                assert_eq!(answer.json()["answers"][0]["problem"]["status"], 404);
                assert_eq!(answer.body, nowhere.body);
            }
            ("POST", "/v1/claims") => {
                assert_eq!(refused(&answer), (403, "TENANT_FORBIDDEN".into()));
            }
            _ => {
                assert_eq!(refused(&answer), (404, "NOT_FOUND".into()), "{there:?}");
                assert_eq!(answer.body, nowhere.body, "{there:?}");
            }
        }
    }
    // None of the refused requests had an effect.
    let page = format!("/v1/claims/{}", grant["operation_id"].as_str().unwrap());
    assert_eq!(server.client(ACME).get(&page).await.json()["state"], "running");
}

#[tokio::test]
async fn a_token_with_one_tenant_need_not_name_it() {
    let (server, _directory) = Server::embedded();
    let claim = json!({ "operation": "charge", "key": "mine" });
    let grant = granted(&server.client(ACME).claim(&claim).await);
    let page = format!("/v1/claims/{}", grant["operation_id"].as_str().unwrap());
    assert_eq!(server.client(WORKER).get(&page).await.json()["tenant"], "acme");
    assert_eq!(code(&server.client(OTHERS).claim(&claim).await), "TENANT_FORBIDDEN");
}

#[tokio::test]
async fn nobody_claims_what_onceward_keeps_for_itself() {
    let (server, _directory) = Server::embedded();
    let mut claim = claim_of("internal");
    claim["tenant"] = "onceward:internal".into();
    for token in [WORKER, OPERATOR] {
        let client = server.client(token);
        assert_eq!(refused(&client.claim(&claim).await), (403, "TENANT_FORBIDDEN".into()));
        let by_key = "/v1/claims?tenant=onceward:internal&operation=decision&key=k";
        assert_eq!(refused(&client.get(by_key).await), (404, "NOT_FOUND".into()));
    }
}
