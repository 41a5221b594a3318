//! What PostgreSQL said last about the cache and the time, and how long that is gone by.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{StoreError, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::postgres::{Generation, PostgresStore};

/// The last word of the authority.
pub(super) struct Trust {
    lasts: Duration,
    word: Mutex<Word>,
    /// Held while asking, so that many callers ask once.
    asking: tokio::sync::Mutex<()>,
}

/// What was last known.
pub(super) struct Last {
    pub(super) generation: Arc<Generation>,
    /// No later than what the authority's clock shows.
    pub(super) earliest: Timestamp,
}

#[derive(Clone)]
struct Word {
    generation: Arc<Generation>,
    asked: Instant,
    answered: Instant,
}

impl Trust {
    pub(super) async fn begin(
        authority: &PostgresStore,
        lasts: Duration,
    ) -> Result<Self, StoreError> {
        let word = Mutex::new(Word::ask(authority).await?);
        Ok(Self { lasts, word, asking: tokio::sync::Mutex::default() })
    }

    /// The generation and the latest that the authority's clock can show, no older than trust
    /// lasts; asked for, if there is none.
    pub(super) async fn confirmed(
        &self,
        authority: &PostgresStore,
    ) -> Result<(Arc<Generation>, Timestamp), StoreError> {
        if self.lasts.is_zero() {
            let word = Word::ask(authority).await?;
            *self.word.lock() = word.clone();
            // The clock was read after the entry was: that is when it was found valid.
            return Ok((Arc::clone(&word.generation), word.generation.now));
        }
        if let Some(fresh) = self.fresh() {
            return Ok(fresh);
        }
        let _asking = self.asking.lock().await;
        if let Some(fresh) = self.fresh() {
            return Ok(fresh);
        }
        let word = Word::ask(authority).await?;
        let told = (Arc::clone(&word.generation), word.latest());
        *self.word.lock() = word;
        Ok(told)
    }

    fn fresh(&self) -> Option<(Arc<Generation>, Timestamp)> {
        let word = self.word.lock();
        let fresh = word.asked.elapsed() < self.lasts;
        fresh.then(|| (Arc::clone(&word.generation), word.latest()))
    }

    /// What was last known, however long ago.
    pub(super) fn last(&self) -> Last {
        let word = self.word.lock();
        let earliest = word.generation.now + word.answered.elapsed();
        Last { generation: Arc::clone(&word.generation), earliest }
    }

    /// What was said before counts no more.
    pub(super) fn doubt(&self) {
        let mut word = self.word.lock();
        word.asked = word.asked.checked_sub(self.lasts).unwrap_or(word.asked);
    }

    pub(super) fn lasts(&self) -> Duration {
        self.lasts
    }
}

impl Word {
    async fn ask(authority: &PostgresStore) -> Result<Self, StoreError> {
        let asked = Instant::now();
        let generation = Arc::new(authority.generation().await?);
        Ok(Self { generation, asked, answered: Instant::now() })
    }

    /// The clock was read after the question was sent.
    fn latest(&self) -> Timestamp {
        self.generation.now + self.asked.elapsed() + Duration::from_millis(1)
    }
}
