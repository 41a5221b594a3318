use onceward::{Engine, Refused, idempotent};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Failed;

impl From<Refused> for Failed {
    fn from(_: Refused) -> Self {
        Self
    }
}

#[idempotent(operation = "charge", key = key, single_tenant, retention = "24h")]
async fn unknown_name(engine: &Engine, key: &str) -> Result<u32, Failed> {
    Ok(1)
}

#[idempotent(operation = "charge", key = key, key = key, single_tenant)]
async fn twice(engine: &Engine, key: &str) -> Result<u32, Failed> {
    Ok(1)
}

#[idempotent(operation = "charge", key = key, single_tenant, tenant = "acme")]
async fn two_tenants(engine: &Engine, key: &str) -> Result<u32, Failed> {
    Ok(1)
}

#[idempotent(operation = "", key = key, single_tenant)]
async fn nameless(engine: &Engine, key: &str) -> Result<u32, Failed> {
    Ok(1)
}

#[idempotent(operation = "charge", key = key, single_tenant, skip(clock))]
async fn skips_nothing(engine: &Engine, key: &str) -> Result<u32, Failed> {
    Ok(1)
}

#[idempotent(operation = "charge", key = key, single_tenant, release())]
async fn releases_nothing(engine: &Engine, key: &str) -> Result<u32, Failed> {
    Ok(1)
}

fn main() {}
