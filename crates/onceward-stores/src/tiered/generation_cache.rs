//! The generation and the time that PostgreSQL reported last, and how long they count.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::{StoreError, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::postgres::{CacheGeneration, PostgresStore};

/// The last report of PostgreSQL.
pub(super) struct GenerationCache {
    ttl: Duration,
    reply: Mutex<LastReply>,
    /// Held while PostgreSQL is asked, so that many callers ask once.
    asking: tokio::sync::Mutex<()>,
}

/// The last known generation, at a lower bound of PostgreSQL's time.
pub(super) struct KnownGeneration {
    pub(super) generation: Arc<CacheGeneration>,
    /// PostgreSQL's clock shows this time or a later one.
    pub(super) earliest: Timestamp,
}

#[derive(Clone)]
struct LastReply {
    generation: Arc<CacheGeneration>,
    asked: Instant,
    answered: Instant,
}

impl GenerationCache {
    pub(super) async fn begin(
        authority: &PostgresStore,
        ttl: Duration,
    ) -> Result<Self, StoreError> {
        let reply = Mutex::new(LastReply::ask(authority).await?);
        Ok(Self { ttl, reply, asking: tokio::sync::Mutex::default() })
    }

    /// Returns the generation, and an upper bound of PostgreSQL's time, no older than the time to
    /// live. Asks PostgreSQL if needed.
    pub(super) async fn confirmed(
        &self,
        authority: &PostgresStore,
    ) -> Result<(Arc<CacheGeneration>, Timestamp), StoreError> {
        if self.ttl.is_zero() {
            let reply = LastReply::ask(authority).await?;
            *self.reply.lock() = reply.clone();
            // The clock was read after the entry: the entry was valid at that time.
            return Ok((Arc::clone(&reply.generation), reply.generation.now));
        }
        if let Some(fresh) = self.fresh() {
            return Ok(fresh);
        }
        let _asking = self.asking.lock().await;
        if let Some(fresh) = self.fresh() {
            return Ok(fresh);
        }
        let reply = LastReply::ask(authority).await?;
        let told = (Arc::clone(&reply.generation), reply.latest());
        *self.reply.lock() = reply;
        Ok(told)
    }

    fn fresh(&self) -> Option<(Arc<CacheGeneration>, Timestamp)> {
        let reply = self.reply.lock();
        let fresh = reply.asked.elapsed() < self.ttl;
        fresh.then(|| (Arc::clone(&reply.generation), reply.latest()))
    }

    /// Returns what was last known, however long ago.
    pub(super) fn last(&self) -> KnownGeneration {
        let reply = self.reply.lock();
        let earliest = reply.generation.now + reply.answered.elapsed();
        KnownGeneration { generation: Arc::clone(&reply.generation), earliest }
    }

    /// Makes the next use ask PostgreSQL.
    pub(super) fn expire(&self) {
        let mut reply = self.reply.lock();
        reply.asked = reply.asked.checked_sub(self.ttl).unwrap_or(reply.asked);
    }

    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }
}

impl LastReply {
    async fn ask(authority: &PostgresStore) -> Result<Self, StoreError> {
        let asked = Instant::now();
        let generation = Arc::new(authority.generation().await?);
        Ok(Self { generation, asked, answered: Instant::now() })
    }

    /// An upper bound: the clock was read after the question was sent.
    fn latest(&self) -> Timestamp {
        self.generation.now + self.asked.elapsed() + Duration::from_millis(1)
    }
}
