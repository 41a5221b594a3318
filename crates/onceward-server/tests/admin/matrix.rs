//! Permissions: every admin endpoint with every kind of token.

use onceward_core::OperationId;

use crate::counting_service::CountingService;
use crate::fixtures::{Gateway, OLGA, RITA, TINA, WILL, ask, fill, record, unknown};

/// Method, path, body, and the statuses for: no token, a wrong token, a reader, a worker, an
/// operator, and an operator of the tenant acme.
type Row = (&'static str, String, String, [u16; 6]);

fn matrix(ours: &onceward_core::Record, theirs: &onceward_core::Record) -> Vec<Row> {
    let (own, foreign) = (ours.operation, theirs.operation);
    let (own_record, foreign_record) = (ours.id, theirs.id);
    let order = "{\"fence\":1,\"reason\":\"because\"}".to_owned();
    let reply = "{\"fence\":1,\"reason\":\"because\",\"reply\":{\"status\":200}}".to_owned();
    let none = String::new;
    let scope = |tenant: &str, key: &str| {
        let (caller, operation) = ("shop", "pay");
        serde_json::json!({ "tenant": tenant, "caller": caller, "operation": operation, "key": key })
    };
    let find = |tenant: &str, key: &str| scope(tenant, key).to_string();
    let mut with_outcome = scope("acme", "ours");
    with_outcome["outcome"] = true.into();
    let with_outcome = with_outcome.to_string();
    let all = "{\"reason\":\"because\"}".to_owned();
    let of = |id: OperationId| format!("{{\"reason\":\"because\",\"records\":[\"{id}\"]}}");
    let none_such = record("acme", "none", |_| unknown()).operation;
    let get = |path: String, answers| ("GET", path, none(), answers);
    let post = |path: String, body: &str, answers| ("POST", path, body.to_owned(), answers);
    // The fence is checked last: a 409 means that access was allowed.
    vec![
        get("/v1/records".into(), [401, 401, 200, 200, 200, 200]),
        get("/v1/records?outcomes=true".into(), [401, 401, 403, 403, 200, 200]),
        get(format!("/v1/records/{own}"), [401, 401, 200, 200, 200, 200]),
        get(format!("/v1/records/{own_record}"), [401, 401, 200, 200, 200, 200]),
        get(format!("/v1/records/{own}?outcome=true"), [401, 401, 403, 403, 200, 200]),
        get(format!("/v1/records/{foreign}"), [401, 401, 200, 200, 200, 404]),
        get(format!("/v1/records/{foreign_record}"), [401, 401, 200, 200, 200, 404]),
        get(format!("/v1/operations/{own}"), [401, 401, 200, 200, 200, 200]),
        get(format!("/v1/operations/{foreign}"), [401, 401, 200, 200, 200, 404]),
        get("/v1/decisions".into(), [401, 401, 200, 200, 200, 200]),
        get(format!("/v1/decisions?operation_id={own}"), [401, 401, 200, 200, 200, 200]),
        get(format!("/v1/decisions?operation_id={foreign}"), [401, 401, 200, 200, 200, 404]),
        get("/v1/stats".into(), [401, 401, 200, 200, 200, 403]),
        post("/v1/records/find".into(), &find("acme", "ours"), [401, 401, 200, 200, 200, 200]),
        post("/v1/records/find".into(), &find("globex", "theirs"), [401, 401, 200, 200, 200, 404]),
        post("/v1/records/find".into(), &find("acme", "none"), [401, 401, 404, 404, 404, 404]),
        post("/v1/records/find".into(), &with_outcome, [401, 401, 403, 403, 200, 200]),
        post("/v1/records/find".into(), &find("", "ours"), [401, 401, 400, 400, 400, 400]),
        post("/v1/verify".into(), "{}", [401, 401, 200, 200, 200, 403]),
        post("/v1/purge".into(), "{}", [401, 401, 403, 403, 200, 403]),
        post("/v1/accept-loss".into(), "{\"reason\":\"because\"}", [401, 401, 403, 403, 200, 403]),
        post(format!("/v1/records/{own}/release"), &order, [401, 401, 403, 403, 409, 409]),
        post(format!("/v1/records/{foreign}/release"), &order, [401, 401, 403, 403, 409, 404]),
        post(format!("/v1/records/{own}/resolve"), &reply, [401, 401, 403, 403, 409, 409]),
        post(format!("/v1/records/{foreign}/resolve"), &reply, [401, 401, 403, 403, 409, 404]),
        // Nothing to invalidate: the outcomes are unknown. An embedded store has no cache.
        post(format!("/v1/records/{own}/invalidate"), &order, [401, 401, 403, 403, 409, 409]),
        post(format!("/v1/records/{foreign}/invalidate"), &order, [401, 401, 403, 403, 409, 404]),
        post("/v1/invalidate-cache".into(), &all, [401, 401, 403, 403, 409, 403]),
        post("/v1/invalidate-cache".into(), &of(own), [401, 401, 403, 403, 409, 409]),
        post("/v1/invalidate-cache".into(), &of(foreign), [401, 401, 403, 403, 409, 404]),
        post("/v1/invalidate-cache".into(), &of(none_such), [401, 401, 403, 403, 409, 404]),
        get("/openapi.json".into(), [200; 6]),
        get("/live".into(), [200; 6]),
        get("/metrics".into(), [200; 6]),
        get("/v1/nothing".into(), [404; 6]),
        post("/v1/stats".into(), "{}", [405; 6]),
        ("DELETE", "/v1/decisions".into(), none(), [405; 6]),
    ]
}

#[test]
fn everybody_gets_what_their_token_allows_at_every_endpoint() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("data").display());
    let ours = record("acme", "ours", |_| unknown());
    let theirs = record("globex", "theirs", |_| unknown());
    fill(&url, &[ours.clone(), theirs.clone()]);
    let gateway = Gateway::start(&url, CountingService::open().address, directory.path());
    let wrong = format!("{OLGA}-not");
    let tokens = [None, Some(&*wrong), Some(RITA), Some(WILL), Some(OLGA), Some(TINA)];
    for (method, path, body, expected) in matrix(&ours, &theirs) {
        let got = tokens.map(|token| ask(gateway.admin, method, &path, token, &body).0);
        assert_eq!(got, expected, "{method} {path}");
    }

    // A token of one tenant does not reveal that there are others.
    let list =
        |query: &str| ask(gateway.admin, "GET", &format!("/v1/records{query}"), Some(TINA), "").1;
    for query in ["", "?limit=1", "?internal=true", "?tenant=globex", "?state=unknown"] {
        assert!(!list(query).contains("globex"), "{query}: {}", list(query));
    }
    assert!(list("").contains(&ours.operation.to_string()));
    let bodies = [theirs.operation, record("acme", "none", |_| unknown()).operation].map(|id| {
        let body = ask(gateway.admin, "GET", &format!("/v1/records/{id}"), Some(TINA), "").1;
        body.replace(&id.to_string(), "ID")
    });
    assert_eq!(bodies[0], bodies[1], "a missing and a foreign record look the same");
}

#[test]
fn every_endpoint_is_in_the_description_and_every_code_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("data").display());
    let gateway = Gateway::start(&url, CountingService::open().address, directory.path());
    let (_, text) = ask(gateway.admin, "GET", "/openapi.json", None, "");
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    for path in [
        "/v1/records",
        "/v1/records/find",
        "/v1/records/{id}",
        "/v1/records/{id}/resolve",
        "/v1/records/{id}/release",
        "/v1/records/{id}/invalidate",
        "/v1/invalidate-cache",
        "/v1/purge",
        "/v1/accept-loss",
        "/v1/operations/{id}",
        "/v1/decisions",
        "/v1/stats",
        "/v1/verify",
        "/openapi.json",
    ] {
        assert!(document["paths"].get(path).is_some(), "{path}");
    }
    let explained = include_str!("../../../../docs/errors.md");
    for code in [
        "FENCE_MOVED",
        "LEASE_LIVE",
        "ALREADY_SETTLED",
        "ALL_TENANTS_NEEDED",
        "RECORD_UNREADABLE",
        "SEALING_KEYS_NEEDED",
        "TRAIL_NOT_WRITTEN",
        "NOTHING_TO_INVALIDATE",
        "NO_CACHE",
        "ARCHIVE_NEEDED",
        "ARCHIVE_NOT_WRITTEN",
    ] {
        assert!(explained.contains(&format!("\n## {code}\n")), "{code}");
    }
}
