//! The fields of a request's record for operators: causes, statuses and error codes.

mod common;

use std::convert::Infallible;
use std::future::ready;

use bytes::Bytes;
use common::*;
use http::Response;
use http_body_util::{BodyExt, Full};
use onceward_core::{
    ErrorCode, Outcome, Query, Record, State, StateName, StoreAdmin as _, UnknownCause,
};
use onceward_http::{Fate, OUTCOME_HEADER, Onceward, Operation, Outcomes, Rules};
use tower::ServiceExt;
use tower_layer::Layer;

/// The only record of a store.
async fn record(bench: &Bench) -> Record {
    let mut page = bench.store.list(&Query::default()).await.unwrap();
    assert_eq!(page.records.len(), 1);
    page.records.remove(0)
}

async fn cause(bench: &Bench) -> String {
    match record(bench).await.state {
        State::Unknown { cause } => cause.to_string(),
        other => panic!("{other:?}"),
    }
}

/// The state after a handler that gave this response.
async fn answered(response: http::response::Builder, body: &'static str, rules: Rules) -> Bench {
    let bench = Bench::new();
    let response = ok(response, body);
    send(&bench.layer(rules), move |_| ready(response.clone()), post("k", "{}")).await;
    bench
}

#[tokio::test]
async fn an_unknown_response_is_kept_with_its_status_or_with_the_handlers_word() {
    let builder = |status: u16| Response::builder().status(status);
    let bank = UnknownCause::reported("no answer from the bank");
    for (response, expected) in [
        (builder(502), "status 502"),
        (builder(200).extension(Fate::Unknown), "reported"),
        (builder(500).header(OUTCOME_HEADER, "unknown"), "reported"),
        (builder(504).extension(UnknownCause::Timeout), "timeout"),
        (
            builder(200).extension(Fate::Unknown).extension(bank),
            "reported: no answer from the bank",
        ),
    ] {
        let bench = answered(response, "", Rules::default()).await;
        assert_eq!(cause(&bench).await, expected);
    }
}

#[tokio::test]
async fn a_panic_an_error_and_a_cut_response_are_causes() {
    let bench = Bench::new();
    let panicking = |_| async { panic!("as planned") };
    send(&bench.layer(Rules::default()), panicking, post("k", "{}")).await;
    assert_eq!(cause(&bench).await, "panicked");

    let bench = Bench::new();
    let failing = bench.layer(Rules::default()).layer(tower::service_fn(
        |_: http::Request<onceward_http::Body<Full<Bytes>>>| async {
            Err::<Response<Full<Bytes>>, _>("broken pipe")
        },
    ));
    assert_eq!(failing.oneshot(post("k", "{}")).await.unwrap_err(), "broken pipe");
    assert_eq!(cause(&bench).await, "error");

    for (kind, expected) in
        [(std::io::ErrorKind::ConnectionReset, "cut"), (std::io::ErrorKind::TimedOut, "timeout")]
    {
        let bench = Bench::new();
        let cut = bench.layer(Rules::default()).layer(tower::service_fn(
            move |_: http::Request<onceward_http::Body<Full<Bytes>>>| async move {
                let frames = [Ok(http_body::Frame::data(Bytes::from("half"))), Err(kind)];
                let frames = frames.map(|frame| frame.map_err(std::io::Error::from));
                let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
                Ok::<_, Infallible>(Response::new(body))
            },
        ));
        let response = cut.oneshot(post("k", "{}")).await.unwrap();
        let _refusal = response.into_body().collect().await.unwrap();
        assert_eq!(cause(&bench).await, expected);
    }
}

async fn stored(bench: &Bench) -> (StateName, Outcome) {
    let state = record(bench).await.state;
    (state.name(), state.outcome().expect("an outcome").clone())
}

#[tokio::test]
async fn a_stored_response_has_its_status_and_error_code_beside_it() {
    let problem = r#"{"title":"No","code":"card_declined"}"#;
    let builder = |status: u16| Response::builder().status(status);
    let json = |status: u16| builder(status).header("content-type", "application/problem+json");
    let stripe = Rules { outcomes: Outcomes::StripeV1, ..Rules::default() };
    let own = ErrorCode::new("own").unwrap();
    for (response, body, rules, status, code) in [
        (builder(201), "{}", Rules::default(), 201, None),
        (json(402), problem, Rules::default(), 402, Some("card_declined")),
        (json(402).extension(own), problem, Rules::default(), 402, Some("own")),
        (json(500), r#"{"error":{"code":"no_luck"}}"#, stripe, 500, Some("no_luck")),
        (builder(404), problem, Rules::default(), 404, None),
    ] {
        let (name, outcome) = stored(&answered(response, body, rules).await).await;
        let failed = status >= 400;
        assert_eq!(name, if failed { StateName::Failed } else { StateName::Completed });
        assert_eq!(outcome.status, Some(status));
        assert_eq!(outcome.error_code.as_ref().map(ErrorCode::as_str), code, "{status}");
    }
}

#[tokio::test]
async fn a_response_that_is_too_large_to_keep_still_has_its_status() {
    let small = Rules { response_max_bytes: 4, ..Rules::default() };
    let bench = answered(Response::builder().status(201), "too large", small).await;
    assert_eq!(stored(&bench).await.1.status, Some(201));
}

/// The route of the operation is `/orders` or `/orders/{id}`, or it has none.
#[tokio::test]
async fn the_path_is_kept_where_the_operation_does_not_tell_it() {
    let kept = async |route: Option<&str>, path: &str, rules: Rules| {
        let bench = Bench::new();
        let builder = Onceward::layer(bench.engine()).single_tenant();
        let layer = match route {
            Some(route) => builder.operation(Operation::post(route).rules(rules)),
            None => builder.others(rules),
        };
        let handler = |_| ready(ok(Response::builder(), ""));
        send(&layer.build().unwrap(), handler, post_to(path, "k", "{}")).await;
        record(&bench).await.path.map(|path| path.to_string())
    };
    let path = |path: &str| Some(path.to_owned());
    let rules = Rules::default;
    assert_eq!(
        kept(Some("/orders/{id}"), "/orders/42?token=canary", rules()).await,
        path("/orders/42")
    );
    assert_eq!(kept(None, "/orders/42?token=canary", rules()).await, path("/orders/42"));
    assert_eq!(kept(Some("/orders"), "/orders", rules()).await, None);
    let without = Rules { record_path: false, ..rules() };
    assert_eq!(kept(None, "/reset/secret", without).await, None);
}
