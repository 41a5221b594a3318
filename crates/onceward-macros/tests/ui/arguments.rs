use onceward::{Engine, Refused, idempotent};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Failed;

impl From<Refused> for Failed {
    fn from(_: Refused) -> Self {
        Self
    }
}

struct Database;

#[idempotent(operation = "charge", key = key, single_tenant)]
async fn not_serialize(engine: &Engine, key: &str, cents: u32, db: &Database) -> Result<u32, Failed> {
    Ok(cents)
}

#[idempotent(operation = "charge", key = key, single_tenant)]
async fn not_serialize_in_a_pattern(
    engine: &Engine,
    key: &str,
    Database: Database,
) -> Result<u32, Failed> {
    Ok(1)
}

#[idempotent(operation = "charge", key = cents, single_tenant)]
async fn not_a_key(engine: &Engine, cents: f64) -> Result<u32, Failed> {
    Ok(1)
}

#[idempotent(operation = "charge", key = key, tenant = tenant)]
async fn not_a_tenant(engine: &Engine, key: &str, tenant: u64) -> Result<u32, Failed> {
    Ok(1)
}

#[idempotent(operation = "charge", key = key, single_tenant)]
async fn two_grants(
    engine: &Engine,
    key: &str,
    #[grant] one: onceward::Grant,
    #[grant] two: onceward::Grant,
) -> Result<u32, Failed> {
    Ok(1)
}

fn main() {}
