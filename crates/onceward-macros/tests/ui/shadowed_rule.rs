use onceward::{Engine, Refused, idempotent};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Failed;

impl From<Refused> for Failed {
    fn from(_: Refused) -> Self {
        Self
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum Error {
    Busy,
    Refused,
}

impl From<Refused> for Error {
    fn from(_: Refused) -> Self {
        Self::Refused
    }
}

#[deny(unreachable_patterns)]
#[idempotent(
    operation = "charge",
    key = key,
    single_tenant,
    release(Error::Busy),
    unknown(Error::Busy | Error::Refused)
)]
async fn charge(engine: &Engine, key: &str) -> Result<u32, Error> {
    Err(Error::Busy)
}

fn main() {}
