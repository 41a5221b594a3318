//! Charges a card once, however often it is asked to.

use std::sync::Arc;

use onceward::{Engine, Failure, Fingerprint, Grant, Intent, Key, MemoryStore, Scope};

/// Charges a card. Hands the provider a key that is the same on every attempt.
async fn charge(cents: u32, grant: Grant) -> Result<String, Failure<String>> {
    if cents == 0 {
        return Err(Failure::Keep("nothing to charge".into())); // every retry gets this
    }
    println!("charging {cents} cents, provider key {}", grant.downstream_key());
    Ok(format!("receipt for {cents} cents"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::new(Arc::new(MemoryStore::new()));
    let intent = |cents: u32| -> Result<Intent, Box<dyn std::error::Error>> {
        Ok(Intent::new(
            Scope::new("acme", "checkout", "payments.create")?, // whose key, for what
            Key::new("order-1017")?,                            // the client's name for it
            Fingerprint::of_value(&cents)?,                     // what exactly was asked for
        ))
    };

    let first = engine.run(&intent(4200)?, |grant| charge(4200, grant)).await?;
    let retry = engine.run(&intent(4200)?, |grant| charge(4200, grant)).await?;
    assert_eq!((first.replayed, retry.replayed), (false, true));
    assert_eq!(first.value, retry.value); // one charge, one receipt

    if let Err(refused) = engine.run(&intent(9900)?, |grant| charge(9900, grant)).await {
        println!("same key, other amount: {refused}");
    }
    Ok(())
}
