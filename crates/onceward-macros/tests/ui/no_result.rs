use onceward::{Engine, Refused, idempotent};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Failed;

impl From<Refused> for Failed {
    fn from(_: Refused) -> Self {
        Self
    }
}

#[idempotent(operation = "charge", key = key, single_tenant)]
async fn returns_nothing(engine: &Engine, key: &str) {}

#[idempotent(operation = "charge", key = key, single_tenant)]
async fn returns_a_number(engine: &Engine, key: &str) -> u32 {
    1
}

fn main() {}
