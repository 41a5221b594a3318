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
async fn free(key: &str) -> Result<u32, Failed> {
    Ok(1)
}

struct Cashier {
    guard: Engine,
}

impl Cashier {
    #[idempotent(operation = "charge", key = key, single_tenant)]
    async fn method(&self, key: &str) -> Result<u32, Failed> {
        Ok(1)
    }

    #[idempotent(operation = "charge", key = key, single_tenant)]
    async fn associated(key: &str) -> Result<u32, Failed> {
        Ok(1)
    }
}

fn main() {}
