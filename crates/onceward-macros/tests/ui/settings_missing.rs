use onceward::{Engine, Refused, idempotent};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Failed;

impl From<Refused> for Failed {
    fn from(_: Refused) -> Self {
        Self
    }
}

#[idempotent]
async fn nothing(engine: &Engine, key: &str) -> Result<u32, Failed> {
    Ok(1)
}

#[idempotent(operation = "charge", key = key)]
async fn no_tenant(engine: &Engine, key: &str) -> Result<u32, Failed> {
    Ok(1)
}

async fn a_caller_has_no_error_of_its_own(engine: &Engine) -> Result<u32, Failed> {
    nothing(engine, "k").await
}

fn main() {}
