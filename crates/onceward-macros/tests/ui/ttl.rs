use onceward::{Engine, Refused, idempotent};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Failed;

impl From<Refused> for Failed {
    fn from(_: Refused) -> Self {
        Self
    }
}

#[idempotent(operation = "charge", key = key, single_tenant, ttl = "soon")]
async fn no_time(engine: &Engine, key: &str) -> Result<u32, Failed> {
    Ok(1)
}

#[idempotent(operation = "charge", key = key, single_tenant, ttl = "0s")]
async fn no_length(engine: &Engine, key: &str) -> Result<u32, Failed> {
    Ok(1)
}

#[idempotent(operation = "charge", key = key, single_tenant, ttl = "4000d")]
async fn too_long(engine: &Engine, key: &str) -> Result<u32, Failed> {
    Ok(1)
}

#[idempotent(operation = "charge", key = key, single_tenant, ttl = 24)]
async fn no_text(engine: &Engine, key: &str) -> Result<u32, Failed> {
    Ok(1)
}

fn main() {}
