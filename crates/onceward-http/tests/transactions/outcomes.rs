//! The rows of a handler, by its response or the lack of one.

use std::time::Duration;

use onceward_core::{ReplayCheck, StateName};
use onceward_http::{InProgress, Rules, TransactionEnded};
use onceward_stores::postgres::Settings;
use tokio::time::timeout;

use super::shop::{Shop, eventually, settings, shared};

#[tokio::test]
async fn rows_and_reply_are_committed_together_and_replayed() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    let first = shop.order("a", "").await;
    assert_eq!((first.status, first.replayed, &*first.body), (201, false, &b"ordered a"[..]));
    assert!(shop.together("a").await);
    let again = shop.order("a", "").await;
    assert_eq!((again.status, again.replayed, &again.body), (201, true, &first.body));
    assert!(shop.together("a").await);
}

/// Seed 001: the row of an operation is deleted in a correction of data, and its record still has
/// the reply.
#[tokio::test]
async fn a_reply_whose_rows_were_deleted_is_not_replayed_if_that_is_checked() {
    let Some(server) = shared() else { return };
    let rules = Rules { replay_check: Some(ReplayCheck::Resolver), ..Rules::default() };
    let shop = Shop::with(server.url(), server.url(), settings(), rules).await;
    assert_eq!(shop.order("a", "").await.status, 201);
    assert!(shop.order("a", "").await.replayed);
    shop.client.batch_execute(&format!("DELETE FROM {}", shop.table)).await.unwrap();
    let refused = shop.order("a", "").await;
    assert_eq!((refused.status, &*refused.code()), (409, "IDEMPOTENCY_OUTCOME_CONTRADICTED"));
    assert_eq!((shop.rows("a").await, shop.state("a").await), (0, Some(StateName::Completed)));
    let restore = format!("INSERT INTO {} VALUES ('a')", shop.table);
    shop.client.batch_execute(&restore).await.unwrap();
    assert!(shop.order("a", "").await.replayed);
}

#[tokio::test]
async fn a_stored_error_is_replayed_without_its_rows() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    for status in [404, 409, 422] {
        let (key, how) = (format!("k{status}"), format!("status={status}"));
        for replayed in [false, true] {
            let answer = shop.order(&key, &how).await;
            assert_eq!((answer.status, answer.replayed), (status, replayed));
            assert_eq!(shop.rows(&key).await, 0);
            assert_eq!(shop.state(&key).await, Some(StateName::Failed));
        }
    }
}

/// Released by a rule or by the handler. *Unknown* is released too: after the rollback it is known
/// that nothing happened.
#[tokio::test]
async fn a_reply_that_is_not_stored_is_rolled_back() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    for how in ["status=429", "status=401", "status=500", "outcome=release", "outcome=unknown"] {
        let answer = shop.order(how, how).await;
        assert!(answer.status >= 400 && !answer.replayed, "{how}: {answer:?}");
        assert!(!shop.together(how).await, "{how}");
        assert_eq!(shop.order(how, "").await.status, 201, "{how}");
        assert!(shop.together(how).await, "{how}");
    }
}

#[tokio::test]
async fn a_panic_or_an_incomplete_response_is_rolled_back() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    for how in ["panic=", "break="] {
        let answer = shop.order(how, how).await;
        assert_eq!((answer.status, &*answer.code()), (500, "IDEMPOTENCY_ROLLED_BACK"));
        assert!(!shop.together(how).await);
        assert_eq!(shop.order(how, "").await.status, 201);
        assert!(shop.together(how).await);
    }
    shop.nothing_is_open().await;
}

/// PostgreSQL refuses all statements after a failed one. The success of a handler that ignored the
/// failure must not be stored.
#[tokio::test]
async fn a_success_after_a_failed_statement_is_rolled_back() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    let answer = shop.order("a", "sql=SELECT 1/0").await;
    assert_eq!((answer.status, &*answer.code()), (503, "IDEMPOTENCY_ROLLED_BACK"));
    assert!(!shop.together("a").await);
    assert_eq!(shop.order("a", "").await.status, 201);
}

/// The rows exist and the reply does not: the request must not run again, and no response may say that
/// nothing happened.
#[tokio::test]
async fn a_handler_that_commits_by_itself_is_unknown() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    for (key, sql) in [("a", "COMMIT"), ("b", "COMMIT; BEGIN")] {
        let answer = shop.order(key, &format!("sql={sql}")).await;
        assert_eq!((answer.status, &*answer.code()), (500, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
        assert_eq!(shop.order(key, "").await.status, 409);
        assert_eq!(shop.rows(key).await, 1);
    }
}

#[tokio::test]
async fn a_disconnect_does_not_cancel_the_handler() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    let asking = shop.clone();
    let asking = tokio::spawn(async move { asking.order("a", "wait=").await });
    shop.begun.acquire().await.unwrap().forget();
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    assert_eq!(shop.order("a", "").await.status, 409);
    shop.go_on.add_permits(1);
    eventually("it is committed", async || shop.rows("a").await == 1).await;
    assert!(shop.order("a", "").await.replayed);
    assert!(shop.together("a").await);
}

#[tokio::test]
async fn a_transaction_handle_is_refused_after_the_response() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    assert_eq!(shop.order("a", "keep=").await.status, 201);
    let kept = shop.kept.lock().unwrap().take().unwrap();
    assert_eq!(kept.client().await.err(), Some(TransactionEnded));
    assert!(shop.together("a").await);
    assert_eq!(shop.order("b", "").await.status, 201);
}

/// A transaction that can still be written to is not committed.
#[tokio::test]
async fn a_connection_held_after_the_response_is_rolled_back() {
    let Some(server) = shared() else { return };
    let settings = Settings { call_timeout: Duration::from_millis(300), ..settings() };
    let shop = Shop::open(server.url(), settings).await;
    let answer = shop.order("a", "hold=").await;
    assert_eq!((answer.status, &*answer.code()), (503, "IDEMPOTENCY_ROLLED_BACK"));
    assert!(!shop.together("a").await);
    assert_eq!(shop.order("a", "").await.status, 409);
    shop.go_on.add_permits(1);
    eventually("a retry orders", async || shop.order("a", "").await.status == 201).await;
    assert!(shop.together("a").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_twenty_concurrent_requests_writes_its_row() {
    let Some(server) = shared() else { return };
    let shop = Shop::fresh(server).await;
    for key in ["a", "b", "c", "d", "e"] {
        let asking: Vec<_> = (0..20)
            .map(|_| {
                let shop = shop.clone();
                tokio::spawn(async move { shop.order(key, "").await })
            })
            .collect();
        let mut first = 0;
        for asked in asking {
            let answer = asked.await.unwrap();
            assert!(matches!(answer.status, 201 | 409), "{answer:?}");
            first += usize::from(answer.status == 201 && !answer.replayed);
        }
        assert_eq!(first, 1);
        assert!(shop.together(key).await);
    }
}

/// The slow request holds a connection; its retries hold none.
#[tokio::test]
async fn retries_of_a_slow_key_are_turned_away_at_once_and_keep_nobody_waiting() {
    let Some(server) = shared() else { return };
    let settings = Settings { transactions_max: 2, ..settings() };
    let shop = Shop::open(server.url(), settings).await;
    let slow = shop.clone();
    let slow = tokio::spawn(async move { slow.order("slow", "wait=").await });
    shop.begun.acquire().await.unwrap().forget();
    for _ in 0..20 {
        let retry = timeout(Duration::from_millis(900), shop.order("slow", "")).await.unwrap();
        assert_eq!((retry.status, &*retry.code()), (409, "IDEMPOTENCY_REQUEST_IN_PROGRESS"));
        assert!(!String::from_utf8_lossy(&retry.body).contains("0000-0000"), "{retry:?}");
    }
    assert_eq!(shop.order("quick", "").await.status, 201);
    shop.go_on.add_permits(1);
    assert_eq!(slow.await.unwrap().status, 201);
    assert!(shop.order("slow", "").await.replayed);
}

#[tokio::test]
async fn a_retry_waits_for_the_first_request_by_setting() {
    let Some(server) = shared() else { return };
    let in_progress = InProgress::Wait(Duration::from_secs(10));
    let rules = Rules { in_progress, ..Rules::default() };
    let shop = Shop::with(server.url(), server.url(), settings(), rules).await;
    let slow = shop.clone();
    let slow = tokio::spawn(async move { slow.order("a", "wait=").await });
    shop.begun.acquire().await.unwrap().forget();
    let retry = shop.clone();
    let retry = tokio::spawn(async move { retry.order("a", "").await });
    shop.go_on.add_permits(1);
    let (first, retry) = (slow.await.unwrap(), retry.await.unwrap());
    assert_eq!((retry.status, retry.replayed, retry.body), (201, true, first.body));
}
