use onceward::{Engine, Refused, idempotent};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Failed;

impl From<Refused> for Failed {
    fn from(_: Refused) -> Self {
        Self
    }
}

struct Receipt;

#[idempotent(operation = "charge", key = key, single_tenant)]
async fn value_cannot_be_stored(engine: &Engine, key: &str) -> Result<Receipt, Failed> {
    Ok(Receipt)
}

#[idempotent(operation = "charge", key = key, single_tenant)]
async fn error_cannot_take_a_refusal(engine: &Engine, key: &str) -> Result<u32, String> {
    Ok(1)
}

fn main() {}
