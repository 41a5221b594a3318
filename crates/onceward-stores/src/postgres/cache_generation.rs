//! The generation of valid cache entries.

use onceward_core::{StoreError, StoreErrorKind, Timestamp};

use super::PostgresStore;
use super::error::Fault;
use super::row;

/// A generation, and when it was read.
#[derive(Clone)]
pub(crate) struct CacheGeneration {
    /// Entries of other generations are invalid.
    pub(crate) number: i64,
    /// Authenticates entries.
    pub(crate) secret: [u8; 32],
    pub(crate) now: Timestamp,
}

impl PostgresStore {
    /// Reads the current generation.
    pub(crate) async fn generation(&self) -> Result<CacheGeneration, StoreError> {
        let rows = self.admin(&self.executor.statements.generation, &[]).await?;
        let row = rows.first().ok_or_else(missing)?;
        let secret: &[u8] = row::get(row, "secret").map_err(Fault::from)?;
        Ok(CacheGeneration {
            number: row::get(row, "generation").map_err(Fault::from)?,
            secret: secret.try_into().map_err(|_| missing())?,
            now: row::timestamp(row::get(row, "now").map_err(Fault::from)?),
        })
    }

    /// Begins a new generation, which invalidates all cache entries.
    pub(crate) async fn next_generation(&self) -> Result<(), StoreError> {
        self.admin(&self.executor.statements.next_generation, &[]).await?;
        Ok(())
    }
}

fn missing() -> StoreError {
    let fault = Fault::new(StoreErrorKind::Undecodable, onceward_core::Effect::NotApplied);
    fault.into()
}
