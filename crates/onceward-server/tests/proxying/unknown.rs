//! Requests with an unknown outcome, and the resolver that settles them.

use std::time::Duration;

use onceward_http::ResponseBody;
use serde_json::Value;

use crate::service::Service;
use crate::test_gateway::{Settings, TestGateway};
use crate::wire::WireResponse;

const ONE: &str = "[scope]\nsingle_tenant = true\n";
const OFTEN: &str = "[reconciler]\nevery = \"30ms\"\nbackoff = \"30ms\"\n";

fn json(answer: &WireResponse) -> Value {
    serde_json::from_str(&answer.body).unwrap()
}

/// Sends a request whose outcome becomes unknown, and returns its operation id; nothing if the
/// resolver has settled it already.
async fn unknown(gateway: &TestGateway) -> String {
    assert_eq!(gateway.post("/status/500", "k", "").await.status, 500);
    let next = gateway.post("/status/500", "k", "").await;
    let problem: Value = serde_json::from_str(&next.body).unwrap_or_default();
    problem["operation_id"].as_str().unwrap_or_default().to_owned()
}

/// Retries until the outcome is known.
async fn known(gateway: &TestGateway) -> WireResponse {
    for _ in 0..500 {
        let answer = gateway.post("/status/500", "k", "").await;
        if answer.status != 409 {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it stays unknown");
}

/// The resolver's requests, without the gateway's probe at its start.
fn questions(service: &Service) -> Vec<String> {
    let asked = |line: &String| line.contains("/known/") && !line.contains("-8000-000000000000");
    service.lines().into_iter().filter(asked).collect()
}

/// Number of executions of the operation.
fn runs(service: &Service) -> usize {
    service.lines().iter().filter(|line| line.starts_with("POST")).count()
}

/// Each retry asks the resolver before it is answered.
const RETRIES_ASK: &str = "[reconciler]\nevery = \"1h\"\n[defaults]\non_lapse = \"resolve\"\n";

fn by_http(path: &str, more: &str) -> String {
    format!("{ONE}{OFTEN}[resolver.http]\nurl = \"{path}\"\n{more}")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_upstream_knows_is_what_retries_get() {
    let service = Service::start().await;
    let path = "/known/happened?operation={operation}&key={downstream_key}&name={operation_name}";
    let gateway = TestGateway::with(&service, &by_http(path, "")).await;
    unknown(&gateway).await;
    let answer = known(&gateway).await;
    assert!(answer.is_replay());
    assert_eq!((answer.status, &*answer.body), (201, r#"{"paid":true}"#));
    assert_eq!(answer.header("location").as_deref(), Some("/payments/7"));
    assert_eq!(answer.header("content-type").as_deref(), Some("application/json"));
    let question = questions(&service)[0].clone();
    assert!(question.contains("&key=ow_") && question.ends_with("&name=POST%20%2A"), "{question}");

    let operation = question.split_once("operation=").unwrap().1.split('&').next().unwrap();
    let page = gateway.get(&format!("/onceward/operations/{operation}")).await;
    assert_eq!((page.status, json(&page)["state"].as_str()), (200, Some("completed")));
    assert_eq!(json(&page)["result"]["location"], "/payments/7");
    let result = gateway.get(json(&page)["result"]["href"].as_str().unwrap()).await;
    assert_eq!((result.status, result.body), (201, answer.body));
    assert_eq!(runs(&service), 1);
}

/// The body in a resolver's answer is the service's own, which must not be stored.
#[tokio::test(flavor = "multi_thread")]
async fn of_an_operation_without_stored_bodies_a_resolver_settles_only_the_head() {
    let service = Service::start().await;
    let path = "/known/happened?operation={operation}";
    let omit = |body| format!("{}[defaults]\nresponse_body = \"{body}\"", by_http(path, ""));
    let gateways = [
        TestGateway::with(&service, &omit("omit")).await,
        TestGateway::with(&service, &omit("store")).await,
    ];
    gateways[1].reload(|config| config.defaults.response_body = Some(ResponseBody::Omit)).unwrap();
    for gateway in gateways {
        unknown(&gateway).await;
        let mut answer = gateway.post("/status/500", "k", "").await;
        while answer.code() == "IDEMPOTENCY_OUTCOME_UNKNOWN" {
            tokio::time::sleep(Duration::from_millis(20)).await;
            answer = gateway.post("/status/500", "k", "").await;
        }
        assert_eq!(answer.problem(), (409, "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE".into()));
        assert_eq!(json(&answer)["original_status"], 201);
        assert_eq!(answer.header("location").as_deref(), Some("/payments/7"));
        let operation = json(&answer)["operation_id"].as_str().unwrap().to_owned();
        let page = gateway.get(&format!("/onceward/operations/{operation}")).await;
        assert_eq!(
            json(&page)["result"],
            serde_json::json!({"status": 201, "location": "/payments/7"})
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_upstream_says_did_not_happen_runs_again_after_its_grace() {
    let service = Service::start().await;
    let path = "/known/did_not_happen/{operation}";
    let gateway = TestGateway::with(&service, &by_http(path, "grace = \"1ms\"")).await;
    unknown(&gateway).await;
    let again = known(&gateway).await;
    assert_eq!((again.status, again.is_replay()), (500, false));
    assert!(runs(&service) >= 2);
}

/// A typo in the URL led to the framework's own 404, which counted as "did not happen": every retry
/// freed the key and ran again.
#[tokio::test(flavor = "multi_thread")]
async fn a_resolvers_bare_404_frees_no_key() {
    let service = Service::start().await;
    for path in ["/known/404/{operation}", "/known/framework/{operation}"] {
        let before = runs(&service);
        let resolver = format!("[resolver.http]\nurl = \"{path}\"\ngrace = \"1ms\"\n");
        let gateway = TestGateway::with(&service, &format!("{ONE}{RETRIES_ASK}{resolver}")).await;
        assert_eq!(gateway.post("/status/500", "k", "").await.status, 500);
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(2)).await; // past its grace
            let refused = gateway.post("/status/500", "k", "").await;
            assert_eq!(refused.problem(), (409, "IDEMPOTENCY_OUTCOME_UNKNOWN".into()), "{path}");
        }
        assert_eq!(runs(&service), before + 1, "{path}");
    }
}

/// The resolver's table has no row for operations older than its column for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_frees_no_key_that_was_claimed_before_its_time() {
    let service = Service::start().await;
    let url = "url = \"/known/did_not_happen/{operation}\"\ngrace = \"1ms\"\n";
    for (since, status) in [("2126-11-01T00:00:00Z", 409), ("2026-11-01T00:00:00Z", 500)] {
        let resolver = format!("[resolver]\nsince = \"{since}\"\n[resolver.http]\n{url}");
        let gateway = TestGateway::with(&service, &format!("{ONE}{RETRIES_ASK}{resolver}")).await;
        assert_eq!(gateway.post("/status/500", "k", "").await.status, 500);
        tokio::time::sleep(Duration::from_millis(2)).await; // past its grace
        assert_eq!(gateway.post("/status/500", "k", "").await.status, status, "{since}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_evidence_leaves_it_unknown() {
    let service = Service::start().await;
    for (path, grace) in [
        ("/known/did_not_happen/{operation}", "1h"),
        ("/known/503/{operation}", "1ms"),
        ("/known/302/{operation}", "1ms"),
        ("/known/204/{operation}", "1ms"),
        ("/known/nonsense/{operation}", "1ms"),
        ("/known/cached/{operation}", "1ms"),
        ("/known/anything/{operation}", "1ms"),
        ("/known/did_not_happen?reference={reference}", "1ms"),
        ("http://127.0.0.1:1/{operation}", "1ms"),
    ] {
        let runs = runs(&service);
        let resolver = format!("[resolver.http]\nurl = \"{path}\"\ngrace = \"{grace}\"\n");
        let gateway = TestGateway::with(&service, &format!("{ONE}{RETRIES_ASK}{resolver}")).await;
        let asked = questions(&service).len();
        let operation = unknown(&gateway).await;
        let refused = gateway.post("/status/500", "k", "").await;
        assert_eq!(refused.problem(), (409, "IDEMPOTENCY_OUTCOME_UNKNOWN".into()), "{path}");
        let unasked = ["{reference}", "//", "anything"].iter().any(|it| path.contains(it));
        let reached = if unasked { 0 } else { 2 };
        assert_eq!(questions(&service).len(), asked + reached, "{path}");
        let page = gateway.get(&format!("/onceward/operations/{operation}")).await;
        assert_eq!(json(&page)["problem"]["code"], "IDEMPOTENCY_OUTCOME_UNKNOWN");
        assert_eq!(self::runs(&service), runs + 1, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_on_lapse_resolve_the_retry_itself_asks() {
    let service = Service::start().await;
    let url = "/known/happened/{operation}";
    let tables = format!("{ONE}{RETRIES_ASK}[resolver.http]\nurl = \"{url}\"\n");
    let gateway = TestGateway::with(&service, &tables).await;
    assert_eq!(gateway.post("/status/500", "k", "").await.status, 500);
    let answer = gateway.post("/status/500", "k", "").await;
    assert_eq!((answer.status, answer.is_replay()), (201, true));
    assert_eq!(questions(&service).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_is_asked_with_its_token_and_nobody_sees_the_clients_key() {
    let service = Service::start().await;
    // A variable that every process has.
    let gateway = TestGateway::with(
        &service,
        &by_http("/known/happened/{operation}", "token_env = \"PATH\""),
    )
    .await;
    unknown(&gateway).await;
    known(&gateway).await;
    let question = service.seen().into_iter().find(|seen| seen.line.contains("/known/")).unwrap();
    let token = format!("Bearer {}", std::env::var("PATH").unwrap());
    assert_eq!(question.header("authorization"), Some(&*token));
    assert_eq!(question.header("idempotency-key"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_postgresql_are_what_retries_get() {
    let Some(server) = onceward_services::postgres() else { return };
    let sql = |sql: &str| onceward_services::query(&server, sql).unwrap();
    sql("CREATE TABLE payment (operation uuid, reply json)");
    let service = Service::start().await;
    let query = "SELECT 201 AS status, reply::text AS body FROM payment \
                 WHERE operation = {operation}::uuid";
    let tables = |grace: &str| {
        let url = server.url();
        let resolver = format!("url = \"{url}\"\nquery = \"{query}\"\ngrace = \"{grace}\"\n");
        format!("{ONE}{RETRIES_ASK}[resolver.sql]\n{resolver}")
    };
    let gateway = TestGateway::with(&service, &tables("1h")).await;
    let operation = unknown(&gateway).await;
    sql(&format!("INSERT INTO payment VALUES ('{operation}', '{{\"b\": 1, \"a\": 2}}')"));
    let answer = gateway.post("/status/500", "k", "").await;
    assert_eq!((answer.status, &*answer.body), (201, r#"{"b": 1, "a": 2}"#));
    assert_eq!(answer.header("content-type").as_deref(), Some("application/json"));
    assert_eq!(runs(&service), 1);

    let gateway = TestGateway::with(&service, &tables("1ms")).await;
    assert_eq!(gateway.post("/pay", "done", "").await.status, 201);
    let done = service.last().header("onceward-operation").map(str::to_owned);
    assert_eq!(gateway.post("/status/500", "k", "").await.status, 500);
    let stays = gateway.post("/status/500", "k", "").await;
    assert_eq!(stays.status, 409, "the query finds no row about what is completed either");
    sql(&format!("INSERT INTO payment VALUES ('{}', '{{}}')", done.unwrap()));
    // At least a millisecond passes.
    let again = known(&gateway).await;
    assert_eq!((again.status, again.is_replay()), (500, false), "no row: it runs again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_reference_is_answered_under_every_key() {
    let service = Service::start().await;
    let tables = format!(
        "{ONE}[[operations]]\nname = \"pay\"\nroute = \"/pay\"\n\
         reference = {{ header = \"x-reference\" }}\n\
         [[operations]]\nname = \"send\"\nroute = \"/send\"\nreference_known = \"conflict\"\n\
         reference = {{ body = \"/a\" }}\n"
    );
    let gateway = TestGateway::with(&service, &tables).await;
    let reference = "x-reference: RF18\r\n";
    let first = gateway.post("/pay", "k1", reference).await;
    let again = gateway.post("/pay", "k2", reference).await;
    assert_eq!((again.status, &again.body, again.is_replay()), (201, &first.body, true));
    assert!(!gateway.post("/pay", "k3", "x-reference: RF19\r\n").await.is_replay());

    assert_eq!(gateway.post("/send", "k1", "").await.status, 201);
    let taken = gateway.post("/send", "k2", "").await;
    assert_eq!(taken.problem(), (409, "BUSINESS_REFERENCE_TAKEN".into()));
    assert_eq!(service.runs(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_where_the_configuration_says_and_for_their_callers_only() {
    let service = Service::start().await;

    let accepted = "[defaults]\nin_progress = \"accepted\"";
    let at = "operations_at = \"/ops\"";
    let gateway = Settings { before: at, tables: accepted, ..Settings::default() };
    let gateway = gateway.before(&service.base()).await;
    let (a, b) = ("authorization: Bearer a\r\n", "authorization: Bearer b\r\n");
    let (path, key) = ("/silent", "k");
    let mut first = gateway.connect().await;
    first.send(&crate::test_gateway::post(path, key, a)).await;
    service.until(|seen| !seen.is_empty()).await;
    let accepted = gateway.post(path, key, a).await;
    assert_eq!(accepted.status, 202);
    let page = accepted.header("location").unwrap();
    assert!(page.starts_with("/ops/operations/"), "{page}");
    let get = |who: &str| format!("GET {page} HTTP/1.1\r\nhost: shop\r\n{who}\r\n");
    let seen = gateway.send(&get(a)).await;
    assert_eq!((seen.status, json(&seen)["state"].as_str()), (200, Some("running")));
    assert_eq!(gateway.send(&get(b)).await.problem(), (404, "OPERATION_NOT_FOUND".into()));
    assert_eq!(gateway.send(&get("")).await.problem(), (404, "OPERATION_NOT_FOUND".into()));
}
