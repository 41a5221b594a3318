//! Every way in which a payment can end, and the response of a retry.

use std::sync::Arc;

use example_payments::{Provider, ProviderClient, ProviderServer, app};
use example_walk::{App, Response};

struct TestShop {
    app: App,
    provider: Provider,
    server: Arc<ProviderServer>,
}

impl TestShop {
    async fn start() -> Self {
        let provider = Provider::default();
        let server = ProviderServer::start(&provider, 0).await.unwrap();
        let client = ProviderClient::new(format!("http://{}", server.address())).unwrap();
        Self { app: App::start(app(client).await.unwrap()).await, provider, server }
    }

    async fn order(&self, key: &str, card: &str) -> Response {
        let body = format!(r#"{{"amountCents":4200,"card":"{card}"}}"#);
        self.app.post("/orders", &[("idempotency-key", key)], &body).await
    }

    /// Number of charges that the provider has made.
    fn charge_count(&self) -> usize {
        self.provider.charges().len()
    }
}

#[tokio::test]
async fn a_paid_order_is_replayed_and_charged_once() {
    let shop = TestShop::start().await;
    let first = shop.order("order-1", "tok_ok").await;
    assert_eq!((first.status, first.replayed()), (201, false));
    let retry = shop.order("order-1", "tok_ok").await;
    assert_eq!((retry.status, retry.replayed(), retry.body), (201, true, first.body));
    assert_eq!(shop.charge_count(), 1);
    assert_eq!(shop.order("order-2", "tok_ok").await.status, 201);
    assert_eq!(shop.charge_count(), 2);
}

#[tokio::test]
async fn a_declined_card_stays_declined() {
    let shop = TestShop::start().await;
    let first = shop.order("order-1", "tok_declined").await;
    assert_eq!((first.status, first.replayed()), (402, false));
    shop.server.stop().await;
    let retry = shop.order("order-1", "tok_declined").await;
    assert_eq!((retry.status, retry.replayed(), retry.body), (402, true, first.body));
    assert_eq!(shop.charge_count(), 0);
}

#[tokio::test]
async fn an_unreachable_provider_leaves_the_key_free() {
    let shop = TestShop::start().await;
    shop.server.stop().await;
    for _ in 0..2 {
        let unreachable = shop.order("order-1", "tok_ok").await;
        assert_eq!((unreachable.status, unreachable.replayed()), (503, false));
        assert_eq!(unreachable.header("retry-after"), Some("1"));
    }
    shop.server.restart().await.unwrap();
    let retry = shop.order("order-1", "tok_ok").await;
    assert_eq!((retry.status, retry.replayed()), (201, false));
    assert_eq!(shop.charge_count(), 1);
}

#[tokio::test]
async fn a_charge_whose_response_was_lost_is_found_by_the_resolver() {
    let shop = TestShop::start().await;
    let lost = shop.order("order-1", "tok_lost_answer").await;
    assert_eq!((lost.status, shop.charge_count()), (502, 1));
    let retry = shop.order("order-1", "tok_lost_answer").await;
    assert_eq!((retry.status, retry.replayed()), (201, true));
    assert_eq!(retry.header("content-type"), Some("application/json"));
    assert_eq!(retry.json()["charge"], "ch_1");
    assert_eq!(shop.order("order-1", "tok_lost_answer").await.body, retry.body);
    assert_eq!(shop.charge_count(), 1);
}

#[tokio::test]
async fn a_lost_request_is_sent_again_under_the_same_key() {
    let shop = TestShop::start().await;
    let lost = shop.order("order-1", "tok_lost_request").await;
    assert_eq!((lost.status, shop.charge_count()), (502, 0));
    // The provider loses the first request of each key, so a new key would be lost again.
    let retry = shop.order("order-1", "tok_lost_request").await;
    assert_eq!((retry.status, retry.replayed()), (201, false));
    assert_eq!(shop.charge_count(), 1);
}

#[tokio::test]
async fn the_outcome_stays_unknown_while_the_provider_is_unreachable() {
    let shop = TestShop::start().await;
    shop.order("order-1", "tok_lost_answer").await;
    shop.server.stop().await;
    for _ in 0..2 {
        let retry = shop.order("order-1", "tok_lost_answer").await;
        assert_eq!(retry.status, 409);
        assert_eq!(retry.json()["code"], "IDEMPOTENCY_OUTCOME_UNKNOWN");
    }
    shop.server.restart().await.unwrap();
    assert_eq!(shop.order("order-1", "tok_lost_answer").await.status, 201);
    assert_eq!(shop.charge_count(), 1);
}

#[tokio::test]
async fn the_provider_does_not_learn_the_clients_key() {
    let shop = TestShop::start().await;
    shop.order("order-1", "tok_ok").await;
    let charges = shop.provider.charges();
    assert!(charges[0].key.starts_with("ow_") && !charges[0].key.contains("order-1"));
}

#[tokio::test]
async fn another_order_under_the_key_is_refused_even_while_the_outcome_is_unknown() {
    let shop = TestShop::start().await;
    shop.order("order-1", "tok_lost_answer").await;
    assert_eq!(shop.order("order-1", "tok_ok").await.status, 422);
    assert_eq!(shop.charge_count(), 1);
}
