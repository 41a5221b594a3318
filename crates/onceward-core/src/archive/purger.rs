//! Removal of expired records, which archives them first.

use std::fmt;
use std::sync::Arc;

use tokio::sync::OnceCell;

use super::{Archive, Archiving, PurgeError, mark};
use crate::record::{Record, RecordVersion};
use crate::store::{Due, Purged, StoreAdmin};

/// Removes expired records of a store, as its settings say. Sweepers and operators use the same.
#[derive(Clone)]
pub struct Purger {
    store: Arc<dyn StoreAdmin>,
    archiving: Archiving,
    /// Set once the store knows what this process does.
    told: Arc<OnceCell<()>>,
    on_archived: Arc<dyn Fn(u64) + Send + Sync>,
}

impl Purger {
    /// A purger of a store.
    pub fn new(store: Arc<dyn StoreAdmin>, archiving: Archiving) -> Self {
        Self { store, archiving, told: Arc::default(), on_archived: Arc::new(|_| {}) }
    }

    /// Replaces what happens to the records before they are removed.
    #[must_use]
    pub fn archiving(self, archiving: Archiving) -> Self {
        Self { archiving, told: Arc::default(), ..self }
    }

    /// Reports the number of records after each write to the archive, for metrics.
    #[must_use]
    pub fn on_archived(mut self, report: impl Fn(u64) + Send + Sync + 'static) -> Self {
        self.on_archived = Arc::new(report);
        self
    }

    /// Tells the store whether its records are archived. Before the first record is removed, it is
    /// told anyway; early, other processes stop removing records early.
    pub async fn tell(&self) -> Result<(), PurgeError> {
        let archived = match &self.archiving {
            Archiving::Unset => return Ok(()),
            Archiving::To(_) if !self.store.archives() => return Err(PurgeError::NotArchivable),
            Archiving::Off if !self.store.archives() => return Ok(()),
            Archiving::To(_) => true,
            Archiving::Off => false,
        };
        self.told.get_or_try_init(|| mark::set(&*self.store, archived)).await?;
        Ok(())
    }

    /// True if this process has an archive.
    pub const fn has_archive(&self) -> bool {
        matches!(self.archiving, Archiving::To(_))
    }

    /// Returns whether expired records stay until they are archived, by this process or another.
    /// Then no claim may replace them: see
    /// [`PolicyBuilder::keep_expired`](crate::PolicyBuilder::keep_expired).
    pub async fn keeps_expired(&self) -> Result<bool, PurgeError> {
        match &self.archiving {
            Archiving::To(_) => Ok(true),
            Archiving::Off => Ok(false),
            Archiving::Unset => self.is_archived_elsewhere().await,
        }
    }

    /// Removes at most `limit` records that are past their retention, and archives them first if
    /// that is set. Removes nothing that is not in the archive, nor a record that has changed since
    /// it was archived.
    pub async fn purge(&self, limit: usize) -> Result<Purged, PurgeError> {
        self.tell().await?;
        match &self.archiving {
            Archiving::To(archive) => self.archive_and_purge(&**archive, limit).await,
            Archiving::Unset if self.is_archived_elsewhere().await? => Err(PurgeError::NoArchive),
            Archiving::Unset | Archiving::Off => Ok(self.store.purge(limit).await?),
        }
    }

    async fn archive_and_purge(
        &self,
        archive: &dyn Archive,
        limit: usize,
    ) -> Result<Purged, PurgeError> {
        let Due { records, more } = self.store.due(limit).await?;
        if !records.is_empty() {
            archive.write(&records).await?;
            (self.on_archived)(records.len() as u64);
        }
        let versions: Vec<RecordVersion> = records.iter().map(Record::version).collect();
        // Also without records: the store skips what is not due any more.
        let purged = self.store.purge_versions(&versions).await?;
        // If nothing could be removed, the next round tries again instead of this one.
        let progress = purged.removed + purged.tombstoned > 0;
        Ok(Purged { more: more && progress, ..purged })
    }

    async fn is_archived_elsewhere(&self) -> Result<bool, PurgeError> {
        Ok(self.store.archives() && mark::is_set(&*self.store).await?)
    }
}

impl fmt::Debug for Purger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Purger").field("archiving", &self.archiving).finish_non_exhaustive()
    }
}
