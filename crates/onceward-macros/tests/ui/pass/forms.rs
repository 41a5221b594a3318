//! Visibility, docs, generics and trait defaults come through as they are.

#![deny(warnings, missing_docs)]

use std::future::Future;

use onceward::{Engine, Grant, Refused, idempotent};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// An error without details.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failed;

impl From<Refused> for Failed {
    fn from(_: Refused) -> Self {
        Self
    }
}

pub mod inner {
    //! Visible where it says.

    use super::{Engine, Failed, idempotent};

    /// Documented.
    #[inline]
    #[idempotent(operation = "visible", key = key, single_tenant)]
    pub(crate) async fn visible(engine: &Engine, key: &str) -> Result<u32, Failed> {
        Ok(1)
    }
}

/// Has a method that is written once for all.
pub trait Cashier: Sync {
    /// Where the engine is.
    fn engine(&self) -> &Engine;

    /// Charges.
    fn charge<T>(&self, key: &str, what: T) -> impl Future<Output = Result<T, Failed>> + Send
    where
        T: Serialize + DeserializeOwned + Send + Sync;
}

struct Till<'a>(&'a Engine);

impl Cashier for Till<'_> {
    fn engine(&self) -> &Engine {
        self.0
    }

    #[idempotent(operation = "charge", key = key, single_tenant, engine = self.engine())]
    async fn charge<T>(&self, key: &str, what: T, #[grant] mut grant: Grant) -> Result<T, Failed>
    where
        T: Serialize + DeserializeOwned + Send + Sync,
    {
        tokio::select! {
            _ = grant.lost() => Err(Failed),
            () = std::future::ready(()) => Ok(what),
        }
    }
}

/// `?` in the key, and an error that another turns into.
#[idempotent(operation = "question", key = text.get(..3).ok_or(Failed)?, single_tenant)]
pub async fn question_mark(engine: &Engine, text: &str) -> Result<u32, Failed> {
    let number: u32 = text.parse().map_err(|_| Failed)?;
    let doubled = async { Ok::<_, Failed>(number * 2) }.await?;
    Ok(doubled)
}

fn is_send<T: Send>(future: T) -> T {
    future
}

fn main() {
    let engine = Engine::new(std::sync::Arc::new(onceward::MemoryStore::new()));
    drop(is_send(inner::visible(&engine, "k")));
    drop(is_send(Till(&engine).charge("k", 1)));
    drop(is_send(question_mark(&engine, "123")));
}
