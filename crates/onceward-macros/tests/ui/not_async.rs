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
fn charge(engine: &Engine, key: &str) -> Result<u32, Failed> {
    Ok(1)
}

fn main() {}
