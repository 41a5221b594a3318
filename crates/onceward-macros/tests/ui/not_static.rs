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
async fn charge<T: Serialize + Send>(engine: Engine, key: String, what: T) -> Result<u32, Failed> {
    drop(what);
    Ok(1)
}

fn main() {}
