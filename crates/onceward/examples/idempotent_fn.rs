//! A function that charges once, even if it is called several times.

use std::sync::Arc;

use onceward::{Engine, Grant, MemoryStore, Refused, idempotent};
use serde::{Deserialize, Serialize};

/// Error of a charge. Stored errors are replayed, so the type implements serde's traits.
#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
enum PaymentError {
    #[error("the card was declined")]
    Declined,
    #[error("the provider is busy")]
    Busy,
    #[error(transparent)]
    #[serde(skip)]
    Refused(#[from] Refused),
}

struct Cashier {
    engine: Engine,
}

impl Cashier {
    /// Charges a card. A retry with the same arguments gets the first result.
    #[idempotent(
        operation = "payments.create",
        key = order,
        tenant = shop,
        ttl = "7d",
        release(PaymentError::Busy)
    )]
    async fn charge(
        &self,
        shop: &str,
        order: &str,
        cents: u32,
        #[grant] grant: Grant,
    ) -> Result<String, PaymentError> {
        println!("charging {cents} cents, provider key {}", grant.downstream_key());
        match cents {
            0 => Err(PaymentError::Declined),
            _ => Ok(format!("receipt for {cents} cents")),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), PaymentError> {
    let cashier = Cashier { engine: Engine::new(Arc::new(MemoryStore::new())) };
    let first = cashier.charge("acme", "order-1017", 4200).await?;
    let retry = cashier.charge("acme", "order-1017", 4200).await?;
    assert_eq!(first, retry); // one charge, one receipt

    if let Err(refused) = cashier.charge("acme", "order-1017", 9900).await {
        println!("same key, other amount: {refused}");
    }
    Ok(())
}
