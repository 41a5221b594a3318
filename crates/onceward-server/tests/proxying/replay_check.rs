//! Replays that the source of truth has to confirm.

use std::time::Duration;

use onceward_core::ReplayCheck;

use crate::service::Service;
use crate::test_gateway::TestGateway;

const ONE: &str =
    "[scope]\nsingle_tenant = true\n[reconciler]\nevery = \"1h\"\npatience = \"200ms\"\n";
const CHECKED: &str = "[defaults]\nreplay_check = \"resolver\"\n";
const CONTRADICTED: (u16, &str) = (409, "IDEMPOTENCY_OUTCOME_CONTRADICTED");
const UNCONFIRMED: (u16, &str) = (503, "IDEMPOTENCY_OUTCOME_UNCONFIRMED");

fn by_http(path: &str, grace: &str) -> String {
    format!("{ONE}{CHECKED}[resolver.http]\nurl = \"{path}\"\ngrace = \"{grace}\"\n")
}

/// Number of executions.
fn runs(service: &Service) -> usize {
    service.lines().iter().filter(|line| line.starts_with("POST")).count()
}

fn told((status, code): (u16, &str)) -> (u16, String) {
    (status, code.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_retry_gets_the_stored_response_and_not_the_resolvers() {
    let service = Service::start().await;
    let gateway = TestGateway::with(&service, &by_http("/known/happened/{operation}", "1ms")).await;
    let first = gateway.post("/pay", "k", "").await;
    for _ in 0..3 {
        let again = gateway.post("/pay", "k", "").await;
        assert!(again.is_replay());
        assert_eq!((again.status, &again.body), (first.status, &first.body));
    }
    let operation = service.last().line.rsplit('/').next().unwrap().to_owned();
    let page = gateway.get(&format!("/onceward/operations/{operation}/result")).await;
    assert_eq!((page.status, page.body), (first.status, first.body));
    let questions = service.lines().iter().filter(|it| it.contains(&operation)).count();
    assert_eq!((questions, runs(&service)), (4, 1), "each retry and the page ask");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_service_does_not_know_any_more_is_not_replayed_and_not_run() {
    let service = Service::start().await;
    let gateway =
        TestGateway::with(&service, &by_http("/known/did_not_happen/{operation}", "1ms")).await;
    assert_eq!(gateway.post("/pay", "k", "").await.status, 201);
    tokio::time::sleep(Duration::from_millis(2)).await; // past its grace
    for _ in 0..3 {
        let refused = gateway.post("/pay", "k", "").await;
        assert_eq!(refused.problem(), told(CONTRADICTED));
        assert!(!refused.body.contains("\"run\""), "{}", refused.body);
    }
    assert_eq!(gateway.post("/status/402", "l", "").await.status, 402);
    assert!(gateway.post("/status/402", "l", "").await.is_replay(), "a failure had no effect");
    assert_eq!(runs(&service), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_clear_answer_a_retry_is_told_to_come_again() {
    let service = Service::start().await;
    for (path, grace) in [
        ("/known/did_not_happen/{operation}", "1h"),
        ("/known/404/{operation}", "1ms"),
        ("/known/503/{operation}", "1ms"),
        ("/known/nonsense/{operation}", "1ms"),
        ("/known/cached/{operation}", "1ms"),
        ("/known/anything/{operation}", "1ms"),
        ("/known/happened?reference={reference}", "1ms"),
        ("/silent?operation={operation}", "1ms"),
        ("http://127.0.0.1:1/{operation}", "1ms"),
    ] {
        let before = runs(&service);
        let gateway = TestGateway::with(&service, &by_http(path, grace)).await;
        assert_eq!(gateway.post("/pay", "k", "").await.status, 201);
        for _ in 0..2 {
            let refused = gateway.post("/pay", "k", "").await;
            assert_eq!(refused.problem(), told(UNCONFIRMED), "{path}");
            assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
        }
        assert_eq!(runs(&service), before + 1, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_that_dies_leaves_retries_unconfirmed() {
    let service = Service::start().await;
    let process = tokio::runtime::Runtime::new().unwrap();
    let authority = process.spawn(Service::start()).await.unwrap();
    let url = format!("{}/known/happened/{{operation}}", authority.base());
    let gateway = TestGateway::with(&service, &by_http(&url, "1ms")).await;
    gateway.post("/pay", "k", "").await;
    assert!(gateway.post("/pay", "k", "").await.is_replay());
    process.shutdown_background(); // with its open connections
    let mut refused = gateway.post("/pay", "k", "").await;
    for _ in 0..500 {
        if refused.is_replay() {
            tokio::time::sleep(Duration::from_millis(10)).await;
            refused = gateway.post("/pay", "k", "").await;
        }
    }
    assert_eq!(refused.problem(), told(UNCONFIRMED));
    assert_eq!(runs(&service), 1);
}

/// The reload holds for what was stored, and is in the replay cache, before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_switches_the_check_on() {
    let service = Service::start().await;
    let path = "/known/did_not_happen/{operation}";
    let tables = by_http(path, "1ms").replace(CHECKED, "");
    let gateway = TestGateway::with(&service, &tables).await;
    for replayed in [false, true, true, true] {
        assert_eq!(gateway.post("/pay", "k", "").await.is_replay(), replayed);
    }
    let checked = |config: &mut onceward_server::config::Config| {
        config.defaults.replay_check = Some(ReplayCheck::Resolver);
    };
    gateway.reload(checked).unwrap();
    assert_eq!(gateway.post("/pay", "k", "").await.problem(), told(CONTRADICTED));
    let resolver = gateway.reload(|config| config.resolver = None).unwrap_err();
    assert!(resolver.contains("resolver"), "{resolver}");
    assert_eq!(runs(&service), 1);
}

/// Seed 001: a row is deleted in a correction of data.
#[tokio::test(flavor = "multi_thread")]
async fn a_debit_whose_row_was_deleted_is_not_replayed() {
    let Some(server) = onceward_services::postgres() else { return };
    let sql = |sql: &str| onceward_services::query(&server, sql).unwrap();
    sql("CREATE TABLE debit (operation uuid)");
    let service = Service::start().await;
    let url = server.url();
    let query = "SELECT 201 AS status FROM debit WHERE operation = {operation}::uuid";
    let resolver = format!("url = \"{url}\"\nquery = \"{query}\"\ngrace = \"1ms\"\n");
    let tables = format!("{ONE}{CHECKED}[resolver.sql]\n{resolver}")
        .replace("patience = \"200ms\"", "patience = \"10s\"");
    let gateway = TestGateway::with(&service, &tables).await;
    let debit = async |key: &str| {
        assert_eq!(gateway.post("/debit", key, "").await.status, 201);
        let operation = service.last().header("onceward-operation").unwrap().to_owned();
        sql(&format!("INSERT INTO debit VALUES ('{operation}')"));
        operation
    };
    let (_, corrected) = (debit("kept").await, debit("corrected").await);
    for key in ["kept", "corrected"] {
        assert!(gateway.post("/debit", key, "").await.is_replay(), "{key}");
    }
    sql(&format!("DELETE FROM debit WHERE operation = '{corrected}'"));
    assert_eq!(gateway.post("/debit", "corrected", "").await.problem(), told(CONTRADICTED));
    assert!(gateway.post("/debit", "kept", "").await.is_replay());
    sql(&format!("INSERT INTO debit VALUES ('{corrected}')"));
    assert!(gateway.post("/debit", "corrected", "").await.is_replay(), "its row was restored");
    assert_eq!(runs(&service), 2);
}
