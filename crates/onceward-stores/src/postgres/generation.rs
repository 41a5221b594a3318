//! What entries of a cache before the store are checked against.

use onceward_core::{StoreError, StoreErrorKind, Timestamp};

use super::PostgresStore;
use super::error::Fault;
use super::row;

/// As it was at a time.
#[derive(Clone)]
pub(crate) struct Generation {
    /// Entries of another one are not believed.
    pub(crate) number: i64,
    /// By which entries are authenticated.
    pub(crate) secret: [u8; 32],
    pub(crate) now: Timestamp,
}

impl PostgresStore {
    /// The generation of the caches before this store.
    pub(crate) async fn generation(&self) -> Result<Generation, StoreError> {
        let rows = self.admin(&self.steps.statements.generation, &[]).await?;
        let row = rows.first().ok_or_else(missing)?;
        let secret: &[u8] = row::get(row, "secret").map_err(Fault::from)?;
        Ok(Generation {
            number: row::get(row, "generation").map_err(Fault::from)?,
            secret: secret.try_into().map_err(|_| missing())?,
            now: row::timestamp(row::get(row, "now").map_err(Fault::from)?),
        })
    }

    /// Begins a new generation: no cache is believed in what it knew before.
    pub(crate) async fn next_generation(&self) -> Result<(), StoreError> {
        self.admin(&self.steps.statements.next_generation, &[]).await?;
        Ok(())
    }
}

fn missing() -> StoreError {
    let fault = Fault::new(StoreErrorKind::Undecodable, onceward_core::Effect::NotApplied);
    fault.into()
}
