//! API version, parent resource and region as parts of the scope.

mod common;

use bytes::Bytes;
use common::*;
use http::{HeaderName, Request};
use http_body_util::Full;
use onceward_core::{Engine, Identity, Key, Scope, StoreAdmin};
use onceward_http::{
    FingerprintRules, InvalidLayer, LayerBuilder, Onceward, OncewardLayer, Operation, Rules,
    Scoped, Source,
};

const VERSION: HeaderName = HeaderName::from_static("api-version");
const REGION: HeaderName = HeaderName::from_static("x-region");

fn single(engine: Engine) -> LayerBuilder<Scoped> {
    Onceward::layer(engine).single_tenant()
}

fn built(change: impl FnOnce(LayerBuilder<Scoped>) -> LayerBuilder<Scoped>) -> OncewardLayer {
    change(single(Bench::new().engine())).build().unwrap()
}

fn with(name: HeaderName, value: &str) -> Request<Full<Bytes>> {
    let mut request = post("k", "{}");
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

/// The trap: the retry of a client library that was upgraded between two attempts.
#[tokio::test]
async fn another_api_version_runs_again_in_the_scope_and_is_refused_in_the_fingerprint() {
    let (layer, counter) =
        (built(|it| it.api_version(Source::header(VERSION))), Counter::default());
    assert_eq!(send(&layer, counting(&counter), with(VERSION, "1")).await.status(), 201);
    assert!(is_replay(&send(&layer, counting(&counter), with(VERSION, "1")).await));
    assert!(!is_replay(&send(&layer, counting(&counter), with(VERSION, "2")).await));
    assert_eq!(counter.executions(), 2);

    let fingerprint = FingerprintRules { api_version: Some(VERSION), ..Default::default() };
    let rules = Rules { fingerprint, ..Rules::default() };
    let (layer, counter) = (common::layer(rules), Counter::default());
    assert_eq!(send(&layer, counting(&counter), with(VERSION, "1")).await.status(), 201);
    let refused = send(&layer, counting(&counter), with(VERSION, "2")).await;
    assert_eq!((refused.status().as_u16(), counter.executions()), (422, 1));
    assert_eq!(json(&refused)["differs"], serde_json::json!(["api-version"]));
}

#[tokio::test]
async fn a_missing_part_is_refused_or_has_its_default() {
    let counter = Counter::default();
    let version = || Source::header(VERSION);
    let strict = built(|it| it.api_version(version()));
    let refused = send(&strict, counting(&counter), post("k", "{}")).await;
    assert_eq!((refused.status().as_u16(), code(&refused)), (400, "INVALID_API_VERSION".into()));
    let mut twice = with(VERSION, "1");
    twice.headers_mut().append(VERSION, "2".parse().unwrap());
    assert_eq!(code(&send(&strict, counting(&counter), twice).await), "INVALID_API_VERSION");
    let long = send(&strict, counting(&counter), with(VERSION, &"1".repeat(256))).await;
    assert_eq!(code(&long), "INVALID_API_VERSION");
    let parent = built(|it| it.parent(version()));
    assert_eq!(code(&send(&parent, counting(&counter), post("k", "{}")).await), "INVALID_PARENT");
    let region = built(|it| it.region(version()));
    assert_eq!(code(&send(&region, counting(&counter), post("k", "{}")).await), "INVALID_REGION");
    assert_eq!(counter.executions(), 0);

    let lenient = built(|it| it.api_version(version().or("1")));
    assert_eq!(send(&lenient, counting(&counter), post("k", "{}")).await.status(), 201);
    assert!(is_replay(&send(&lenient, counting(&counter), with(VERSION, "1")).await));
}

#[tokio::test]
async fn the_same_key_under_two_carts_is_two_keys_however_their_paths_are_spelled() {
    let layer = built(|it| {
        it.parent_in_path("cart")
            .operation(Operation::post("/carts/{cart}/orders").named("orders.create"))
            .operation(Operation::post("/orders").named("orders.other"))
    });
    let counter = Counter::default();
    let to = |path: &str| send(&layer, counting(&counter), post_to(path, "k", "{}"));
    assert_eq!(to("/carts/a/orders").await.status(), 201);
    assert!(!is_replay(&to("/carts/b/orders").await));
    assert!(is_replay(&to("/carts/b/orders").await));
    // One resource in two spellings: never a second effect.
    assert_eq!(to("/carts/%61/orders").await.status(), 422);
    assert_eq!(code(&to("/carts/%ff/orders").await), "INVALID_PARENT");
    // Routes without the parameter, and requests without a named operation, have no parent.
    assert_eq!(to("/orders").await.status(), 201);
    assert_eq!(to("/elsewhere").await.status(), 201);
    assert_eq!(counter.executions(), 4);
}

/// A status page is asked for by the caller alone: its request has neither version nor cart.
#[tokio::test]
async fn a_status_page_needs_only_the_owner() {
    let bench = Bench::new();
    let caller = Source::header(HeaderName::from_static("x-caller"));
    let layer = Onceward::layer(bench.engine())
        .caller(caller)
        .api_version(Source::header(VERSION))
        .region(Source::fixed("eu"))
        .build()
        .unwrap();
    let mut first = with(VERSION, "2");
    first.headers_mut().insert("x-caller", "alice".parse().unwrap());
    send(&layer, counting(&Counter::default()), first).await;
    let scope = Scope::new("-", "alice", "POST *").unwrap();
    let scope = scope.with_api_version("2").unwrap().with_region("eu").unwrap();
    let id = Identity::unkeyed().record_id(&scope, &Key::new("k").unwrap());
    let operation = bench.store.get(&id).await.unwrap().unwrap().operation;
    let page = Request::get(format!("/onceward/operations/{operation}"));
    let page = page.header("x-caller", "alice").body(Full::default()).unwrap();
    let shown = send(&layer, counting(&Counter::default()), page).await;
    assert_eq!((shown.status().as_u16(), &json(&shown)["state"]), (200, &"completed".into()));
}

/// Records of earlier releases keep their ids.
#[tokio::test]
async fn a_scope_without_further_parts_is_that_of_earlier_releases() {
    let bench = Bench::new();
    let layer = bench.layer(Rules::default());
    send(&layer, counting(&Counter::default()), with(VERSION, "2")).await;
    let scope = Scope::new("-", "-", "POST *").unwrap();
    let id = Identity::unkeyed().record_id(&scope, &Key::new("k").unwrap());
    assert_eq!(id.to_string(), "b0f6aac664cab000ad004ba58e8b09b571b9cf364c7e86a5a78e0b928a0555a7");
    assert!(bench.store.get(&id).await.unwrap().is_some());
}

#[tokio::test]
async fn a_client_cannot_name_the_region_of_shadow_mode() {
    let (layer, counter) = (built(|it| it.region(Source::header(REGION))), Counter::default());
    let refused = send(&layer, counting(&counter), with(REGION, "onceward:shadow")).await;
    assert_eq!((code(&refused), counter.executions()), ("INVALID_REGION".into(), 0));
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let error = |layer: LayerBuilder<Scoped>| layer.build().unwrap_err();
    let engine = || Bench::new().engine();
    let fingerprint = FingerprintRules { api_version: Some(VERSION), ..Default::default() };
    let rules = Rules { fingerprint, ..Rules::default() };
    let twice = single(engine()).others(rules.clone()).api_version(Source::header(VERSION));
    let told = error(twice);
    assert!(matches!(told, InvalidLayer::ApiVersion(_)), "{told}");
    assert!(told.to_string().contains("keep fingerprint.api_version"), "{told}");
    // Two different headers are two different things.
    assert!(single(engine()).others(rules).api_version(Source::header(REGION)).build().is_ok());

    let nowhere = single(engine()).parent_in_path("cart").operation(Operation::post("/orders"));
    assert!(error(nowhere).to_string().contains("no operation's route has the parameter {cart}"));
    let rest = single(engine()).parent_in_path("rest").operation(Operation::post("/a/{*rest}"));
    assert!(rest.build().is_ok());

    let region = error(single(engine()).region(Source::credentials())).to_string();
    assert!(region.contains("name no region"), "{region}");
    let tenant = error(Onceward::layer(engine()).tenant(Source::credentials())).to_string();
    assert!(tenant.contains("name no tenant"), "{tenant}");
}
