//! Each way a payment can end, and what a retry makes of it.

use std::sync::Arc;

use example_payments::{Charging, Line, Provider, app};
use example_walk::{App, Response};

struct Shop {
    app: App,
    provider: Provider,
    line: Arc<Line>,
}

impl Shop {
    async fn open() -> Self {
        let provider = Provider::default();
        let line = Line::open(&provider, 0).await.unwrap();
        let charging = Charging::at(format!("http://{}", line.address())).unwrap();
        Self { app: App::start(app(charging).await.unwrap()).await, provider, line }
    }

    async fn order(&self, key: &str, card: &str) -> Response {
        let body = format!(r#"{{"amountCents":4200,"card":"{card}"}}"#);
        self.app.post("/orders", &[("idempotency-key", key)], &body).await
    }

    /// How many charges the provider has made.
    fn charged(&self) -> usize {
        self.provider.charges().len()
    }
}

#[tokio::test]
async fn a_paid_order_is_replayed_and_charged_once() {
    let shop = Shop::open().await;
    let first = shop.order("order-1", "tok_ok").await;
    assert_eq!((first.status, first.replayed()), (201, false));
    let retry = shop.order("order-1", "tok_ok").await;
    assert_eq!((retry.status, retry.replayed(), retry.body), (201, true, first.body));
    assert_eq!(shop.charged(), 1);
    assert_eq!(shop.order("order-2", "tok_ok").await.status, 201);
    assert_eq!(shop.charged(), 2);
}

#[tokio::test]
async fn a_declined_card_stays_declined() {
    let shop = Shop::open().await;
    let first = shop.order("order-1", "tok_declined").await;
    assert_eq!((first.status, first.replayed()), (402, false));
    shop.line.cut().await;
    let retry = shop.order("order-1", "tok_declined").await;
    assert_eq!((retry.status, retry.replayed(), retry.body), (402, true, first.body));
    assert_eq!(shop.charged(), 0);
}

#[tokio::test]
async fn a_provider_out_of_reach_leaves_the_key_free() {
    let shop = Shop::open().await;
    shop.line.cut().await;
    for _ in 0..2 {
        let unreachable = shop.order("order-1", "tok_ok").await;
        assert_eq!((unreachable.status, unreachable.replayed()), (503, false));
        assert_eq!(unreachable.header("retry-after"), Some("1"));
    }
    shop.line.mend().await.unwrap();
    let retry = shop.order("order-1", "tok_ok").await;
    assert_eq!((retry.status, retry.replayed()), (201, false));
    assert_eq!(shop.charged(), 1);
}

#[tokio::test]
async fn a_lost_answer_is_found_by_the_resolver() {
    let shop = Shop::open().await;
    let lost = shop.order("order-1", "tok_lost_answer").await;
    assert_eq!((lost.status, shop.charged()), (502, 1));
    let retry = shop.order("order-1", "tok_lost_answer").await;
    assert_eq!((retry.status, retry.replayed()), (201, true));
    assert_eq!(retry.header("content-type"), Some("application/json"));
    assert_eq!(retry.json()["charge"], "ch_1");
    assert_eq!(shop.order("order-1", "tok_lost_answer").await.body, retry.body);
    assert_eq!(shop.charged(), 1);
}

#[tokio::test]
async fn a_lost_request_is_sent_again_under_the_same_key() {
    let shop = Shop::open().await;
    let lost = shop.order("order-1", "tok_lost_request").await;
    assert_eq!((lost.status, shop.charged()), (502, 0));
    // The provider loses each key's first request only, so a new key would be lost again.
    let retry = shop.order("order-1", "tok_lost_request").await;
    assert_eq!((retry.status, retry.replayed()), (201, false));
    assert_eq!(shop.charged(), 1);
}

#[tokio::test]
async fn while_nobody_can_be_asked_it_stays_unknown() {
    let shop = Shop::open().await;
    shop.order("order-1", "tok_lost_answer").await;
    shop.line.cut().await;
    for _ in 0..2 {
        let retry = shop.order("order-1", "tok_lost_answer").await;
        assert_eq!(retry.status, 409);
        assert_eq!(retry.json()["code"], "IDEMPOTENCY_OUTCOME_UNKNOWN");
    }
    shop.line.mend().await.unwrap();
    assert_eq!(shop.order("order-1", "tok_lost_answer").await.status, 201);
    assert_eq!(shop.charged(), 1);
}

#[tokio::test]
async fn the_provider_does_not_learn_the_clients_key() {
    let shop = Shop::open().await;
    shop.order("order-1", "tok_ok").await;
    let charges = shop.provider.charges();
    assert!(charges[0].key.starts_with("ow_") && !charges[0].key.contains("order-1"));
}

#[tokio::test]
async fn another_order_under_the_key_is_a_mistake_even_while_it_is_unknown() {
    let shop = Shop::open().await;
    shop.order("order-1", "tok_lost_answer").await;
    assert_eq!(shop.order("order-1", "tok_ok").await.status, 422);
    assert_eq!(shop.charged(), 1);
}
