//! Status pages of operations, and business references.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::*;
use http::{HeaderName, Request, Response};
use http_body_util::Full;
use onceward_core::KnownReference;
use onceward_http::{
    Fate, InProgress, Onceward, OncewardLayer, ReferenceRules, Rules, Sensitive, Source,
};
use tokio::time::sleep;

/// A layer with callers from a header.
fn by_caller(bench: &Bench, rules: Rules) -> OncewardLayer {
    let caller = Source::header(HeaderName::from_static("x-caller"));
    Onceward::layer(bench.engine()).caller(caller).others(rules).build().unwrap()
}

fn from(caller: &str, mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    request.headers_mut().insert("x-caller", caller.parse().unwrap());
    request
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).body(Full::default()).unwrap()
}

async fn unreachable(_: Request<onceward_http::Body<Full<Bytes>>>) -> Handled {
    panic!("the handler was asked for a status page")
}

async fn look(layer: &OncewardLayer, caller: &str, path: &str) -> Answer {
    send(layer, unreachable, from(caller, get(path))).await
}

/// Returns the status page that a duplicate of a slow request gets, and the responses.
async fn accepted(layer: &OncewardLayer) -> (String, Answer, Answer) {
    let slow = |_| async {
        sleep(Duration::from_secs(2)).await;
        let response = Response::builder().status(201).header("location", "/orders/7");
        ok(response.header("content-type", "text/plain"), "seven")
    };
    let duplicate = async {
        sleep(Duration::from_millis(10)).await;
        let told = send(layer, slow, from("a", post("k", "{}"))).await;
        assert_eq!(told.status(), 202);
        let page = told.headers()["location"].to_str().unwrap().to_owned();
        let seen = look(layer, "a", &page).await;
        (page, seen)
    };
    let (first, (page, seen)) =
        tokio::join!(send(layer, slow, from("a", post("k", "{}"))), duplicate);
    (page, seen, first)
}

fn accepting() -> Rules {
    Rules { in_progress: InProgress::Accepted, ..Rules::default() }
}

#[tokio::test(start_paused = true)]
async fn a_status_page_shows_the_state_and_links_the_response() {
    let bench = Bench::new();
    let layer = by_caller(&bench, accepting());
    let (page, seen, first) = accepted(&layer).await;
    let running = json(&seen);
    assert_eq!((seen.status().as_u16(), running["state"].as_str()), (200, Some("running")));
    assert_eq!(running["attempts"], 1);
    assert!(seen.headers().contains_key("retry-after"));
    assert_eq!(seen.headers()["cache-control"], "no-store");

    let done = json(&look(&layer, "a", &page).await);
    assert_eq!(done["state"], "completed");
    assert_eq!(done["operation"], "POST *");
    assert!(page.ends_with(done["operation_id"].as_str().unwrap()));
    assert_eq!(done["result"]["status"], 201);
    assert_eq!(done["result"]["location"], "/orders/7");
    assert!(done["created_at"].as_str().unwrap().ends_with('Z'), "{done}");

    let result = look(&layer, "a", done["result"]["href"].as_str().unwrap()).await;
    assert_eq!((result.status(), result.body()), (first.status(), first.body()));
    assert!(is_replay(&result));
}

#[tokio::test(start_paused = true)]
async fn another_callers_operation_looks_like_one_that_does_not_exist() {
    let bench = Bench::new();
    let layer = by_caller(&bench, accepting());
    let (page, _, _) = accepted(&layer).await;
    let nobodys = "/onceward/operations/01935d2a-7c3b-7aaa-8bbb-0123456789ab";
    for (caller, path) in [
        ("b", page.clone()),
        ("b", format!("{page}/result")),
        ("a", nobodys.into()),
        ("a", "/onceward/operations/7".into()),
        ("a", "/onceward/operations/".into()),
    ] {
        let answer = look(&layer, caller, &path).await;
        assert_eq!((answer.status().as_u16(), code(&answer)), (404, "OPERATION_NOT_FOUND".into()));
    }
    let anonymous = send(&layer, unreachable, get(&page)).await;
    assert_eq!(anonymous.status(), 400, "who is asking?");
}

#[tokio::test]
async fn a_page_of_the_service_tells_its_callers_apart_as_the_layer_does() {
    let layer = by_caller(&Bench::new(), accepting());
    let scope_of =
        |request: Request<Full<Bytes>>| layer.scope_of(&request.into_parts().0, "orders.create");
    let page = "/orders/bulk/7";
    let told = async |request: Request<onceward_http::Body<Full<Bytes>>>| {
        let execution = onceward_http::Execution::of(request.extensions()).unwrap();
        ok(Response::builder(), execution.scope().caller().to_owned())
    };
    let caller = send(&layer, told, from("a", post("k", "{}"))).await;
    let scope = scope_of(from("a", get(page))).unwrap();
    assert_eq!(caller.body(), scope.caller());
    assert_eq!(scope.operation(), "orders.create");
    assert_ne!(scope_of(from("b", get(page))).unwrap().caller(), scope.caller());
    assert_eq!(scope_of(get(page)).unwrap_err().code(), onceward_http::Code::InvalidCaller);
}

#[tokio::test(start_paused = true)]
async fn a_status_page_accepts_only_get_and_head() {
    let bench = Bench::new();
    let layer = by_caller(&bench, accepting());
    let (page, _, _) = accepted(&layer).await;
    let answer = send(&layer, unreachable, from("a", post_to(&page, "k2", "{}"))).await;
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["allow"]),
        (405, &"GET, HEAD".parse().unwrap())
    );
}

#[tokio::test(start_paused = true)]
async fn the_status_page_of_an_unknown_operation_has_the_problem() {
    let bench = Bench::new();
    let layer = by_caller(&bench, Rules::default());
    let handler = |_| async {
        let response = Response::builder().status(504).extension(Fate::Unknown);
        ok(response, "")
    };
    send(&layer, handler, from("a", post("k", "{}"))).await;
    let refused = send(&layer, handler, from("a", post("k", "{}"))).await;
    let operation = json(&refused)["operation_id"].as_str().unwrap().to_owned();
    let page = format!("/onceward/operations/{operation}");
    let seen = json(&look(&layer, "a", &page).await);
    assert_eq!(seen["state"], "unknown");
    assert_eq!(seen["problem"]["code"], "IDEMPOTENCY_OUTCOME_UNKNOWN");
    let result = look(&layer, "a", &format!("{page}/result")).await;
    assert_eq!(code(&result), "IDEMPOTENCY_OUTCOME_UNKNOWN");
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_stored_is_not_linked() {
    let bench = Bench::new();
    let layer = by_caller(&bench, Rules::default());
    let handler = |_| async {
        let card = Sensitive::new("card", "card_1");
        ok(Response::builder().status(201).extension(card), "4111…")
    };
    send(&layer, handler, from("a", post("k", "{}"))).await;
    let refused = send(&layer, handler, from("a", post("k", "{}"))).await;
    let operation = json(&refused)["operation_id"].as_str().unwrap().to_owned();
    let seen = json(&look(&layer, "a", &format!("/onceward/operations/{operation}")).await);
    assert_eq!(seen["result"], serde_json::json!({ "status": 201 }));
}

// Business references -----------------------------------------------------------------------

fn referring(reference: ReferenceRules) -> Rules {
    Rules { reference: Some(reference), ..Rules::default() }
}

#[tokio::test(start_paused = true)]
async fn a_new_key_with_a_known_reference_gets_the_first_answer() {
    let (bench, counter) = (Bench::new(), Counter::default());
    let layer = bench.layer(referring(ReferenceRules::body("/payment/reference")));
    let body = r#"{"amount":100,"payment":{"reference":"RF18 5390"}}"#;
    let first = send(&layer, counting(&counter), post("k1", body)).await;
    bench.clock.jump(48 * 3600 * 1000);
    for key in ["k1", "k2", "k3"] {
        let again = send(&layer, counting(&counter), post(key, body)).await;
        assert_eq!((again.status(), again.body()), (first.status(), first.body()));
        assert!(is_replay(&again));
    }
    let other = body.replace("100", "200");
    let refused = send(&layer, counting(&counter), post("k4", &other)).await;
    assert_eq!(
        (refused.status().as_u16(), code(&refused)),
        (409, "BUSINESS_REFERENCE_TAKEN".into())
    );
    assert_eq!(json(&refused)["differs"], serde_json::json!(["body:/amount"]));
    assert!(json(&refused)["operation_id"].is_string(), "where to look");
    assert!(!format!("{refused:?}").contains("5390"));
    assert_eq!(counter.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reference_can_be_in_a_header_and_refuse_every_other_key() {
    let (bench, counter) = (Bench::new(), Counter::default());
    let mut reference = ReferenceRules::header(HeaderName::from_static("x-payment"));
    reference.known = KnownReference::Conflict;
    let layer = bench.layer(referring(reference));
    let with = |key: &str, reference: &str| {
        let mut request = post(key, "{}");
        request.headers_mut().insert("x-payment", reference.parse().unwrap());
        request
    };
    let first = send(&layer, counting(&counter), with("k1", "r1")).await;
    assert_eq!(first.status(), 201);
    let refused = send(&layer, counting(&counter), with("k2", "r1")).await;
    assert_eq!(code(&refused), "BUSINESS_REFERENCE_TAKEN");
    assert!(is_replay(&send(&layer, counting(&counter), with("k1", "r1")).await));
    let another = send(&layer, counting(&counter), with("k1", "r2")).await;
    assert_eq!(another.status(), 422, "the key belongs to the other reference");
    let without = send(&layer, counting(&counter), post("k3", "{}")).await;
    assert_eq!(without.status(), 201, "known by its key alone");
    assert_eq!(counter.executions(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_reference_is_refused_by_its_place_and_not_repeated() {
    let layer = Bench::new().layer(referring(ReferenceRules::body("/ref")));
    let counter = Counter::default();
    let long = format!(r#"{{"ref":"{}"}}"#, "x".repeat(256));
    for (body, why) in [
        (r#"{"ref":["canary"]}"#, "the member /ref of the body is not a text or a number"),
        (r#"{"ref":""}"#, "the member /ref of the body: it is empty"),
        (
            r#"{"ref":"canary\n"}"#,
            "the member /ref of the body: character 7 is not printable ASCII",
        ),
        (&long, "the member /ref of the body: it has 256 characters, 255 is most"),
    ] {
        let refused = send(&layer, counting(&counter), post("k", body)).await;
        assert_eq!(
            (refused.status().as_u16(), code(&refused)),
            (400, "INVALID_BUSINESS_REFERENCE".into())
        );
        assert_eq!(json(&refused)["detail"], why);
        assert!(!format!("{refused:?}").contains("canary"));
    }
    assert_eq!(counter.executions(), 0);
}

#[test]
fn an_invalid_reference_pointer_does_not_build() {
    let bench = Bench::new();
    let rules = referring(ReferenceRules::body("ref"));
    let built = Onceward::layer(bench.engine()).single_tenant().others(rules).build();
    assert!(built.unwrap_err().to_string().contains("ref"), "a pointer begins with a slash");
}
