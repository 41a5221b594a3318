//! The layer on an axum router: extractors and response parts.

mod common;

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use common::{Bench, Counter};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use onceward_http::axum::{DownstreamKey, Fence, Key, OperationId};
use onceward_http::{Execution, Fate, Onceward};
use tower::ServiceExt;

async fn answered(
    app: &Router,
    method: &str,
    uri: &str,
    key: Option<&str>,
) -> (StatusCode, Bytes, bool) {
    let mut request = Request::builder().method(method).uri(uri);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let request = request.body(Body::empty()).unwrap();
    let response: Result<Response, Infallible> = app.clone().oneshot(request).await;
    let response = response.unwrap();
    let replayed = response.headers().contains_key("idempotent-replayed");
    let status = response.status();
    (status, response.into_body().collect().await.unwrap().to_bytes(), replayed)
}

fn protected(router: Router) -> Router {
    router.layer(Onceward::layer(Bench::new().engine()).single_tenant().build().unwrap())
}

#[tokio::test]
async fn handlers_take_key_operation_fence_and_downstream_key() {
    let app = protected(Router::new().route(
        "/orders",
        post(
            |key: Key, operation: OperationId, fence: Fence, downstream: DownstreamKey| async move {
                assert_eq!(key.0.expose(), "k");
                assert!(fence.0.0 > 0);
                format!("{} {}", operation.0, downstream.0)
            },
        ),
    ));
    let (status, first, _) = answered(&app, "POST", "/orders", Some("k")).await;
    assert_eq!(status, 200);
    assert_eq!(answered(&app, "POST", "/orders", Some("k")).await, (status, first, true));
}

#[tokio::test]
async fn a_handler_that_requires_an_execution_does_not_run_without_one() {
    let app = protected(
        Router::new()
            .route("/insists", post(|_: Execution| async { "ran" }))
            .route("/asks", post(|it: Option<Execution>| async move { it.is_some().to_string() })),
    );
    assert_eq!(answered(&app, "POST", "/insists", None).await.0, 500);
    assert_eq!(answered(&app, "POST", "/asks", None).await.1, "false");
    assert_eq!(answered(&app, "POST", "/asks", Some("k")).await.1, "true");
}

/// The empty 500 was stored, and replayed after the mistake was fixed.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_forgotten_transaction_leaves_the_key_free() {
    use onceward_http::PgTransaction;
    let engine = Bench::new().engine();
    let app = |router: Router| {
        router.layer(Onceward::layer(engine.clone()).single_tenant().build().unwrap())
    };
    let forgotten = app(Router::new().route("/orders", post(|_: PgTransaction| async { "ran" })));
    for _ in 0..2 {
        let (status, _, replayed) = answered(&forgotten, "POST", "/orders", Some("k")).await;
        assert_eq!((status.as_u16(), replayed), (500, false));
    }
    let mended = app(Router::new().route("/orders", post(|| async { "ran" })));
    let (status, body, replayed) = answered(&mended, "POST", "/orders", Some("k")).await;
    assert_eq!((status.as_u16(), &*body, replayed), (200, &b"ran"[..], false));
}

#[tokio::test]
async fn a_handler_says_its_fate_as_a_part_of_its_response() {
    let counter = Counter::default();
    let app = protected(Router::new().route(
        "/orders",
        post({
            let counter = counter.clone();
            move || async move {
                counter.up();
                (Fate::NothingHappened, StatusCode::BAD_GATEWAY).into_response()
            }
        }),
    ));
    for _ in 0..2 {
        assert_eq!(answered(&app, "POST", "/orders", Some("k")).await.0, 502);
    }
    assert_eq!(counter.executions(), 2);
}

#[tokio::test]
async fn operations_are_named_after_routes_and_paths_are_compared() {
    let app = protected(
        Router::new()
            .route(
                "/orders/{id}/pay",
                post(|it: Execution| async move { it.scope().operation().to_owned() }),
            )
            .route(
                "/refunds",
                post(|it: Execution| async move { it.scope().operation().to_owned() }),
            )
            .route("/orders/{id}", get(|| async { "read" })),
    );
    let pay = answered(&app, "POST", "/orders/7/pay", Some("k")).await;
    assert_eq!(pay.1, "POST /orders/{id}/pay");
    // Another order is another request of the same operation. Another operation has its own keys.
    assert_eq!(answered(&app, "POST", "/orders/8/pay", Some("k")).await.0, 422);
    assert_eq!(answered(&app, "POST", "/refunds", Some("k")).await.1, "POST /refunds");
    assert_eq!(answered(&app, "GET", "/orders/7", Some("k")).await.1, "read");
}
