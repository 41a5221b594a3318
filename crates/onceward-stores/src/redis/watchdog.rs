//! Looks at the servers now and then, for what no claim would tell: that eviction was switched on,
//! that keys were evicted, that marks are gone before anything is claimed, that memory runs out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use onceward_core::{Health, StoreError};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::checks::{self, Looked, Memory, Unsafe};
use super::epochs::{Epochs, Marks};
use super::link::Link;
use super::names::{BUCKETS, Bucket, Names};
use super::settings::Allow;

/// How long a mistake at a server goes unnoticed at most; a look is one `INFO` a server and a few
/// marks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Marks read at each look: all of them in eight seconds, and some of every node nearly always.
const MARKS_A_LOOK: u16 = 32;

/// Looks at the servers while it lives.
#[derive(Debug)]
pub(super) struct Watchdog {
    looking: Arc<Looking>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Looking {
    link: Arc<Link>,
    names: Arc<Names>,
    epochs: Arc<Epochs>,
    allow: Allow,
    /// Keys that each server had evicted at the last look.
    evicted: Mutex<HashMap<String, u64>>,
    next: AtomicU16,
}

impl Watchdog {
    /// Begins with what was found when the store was opened.
    pub(super) fn start(
        link: Arc<Link>,
        names: Arc<Names>,
        epochs: Arc<Epochs>,
        allow: Allow,
        opened: &[Looked],
    ) -> Self {
        let evicted = opened.iter().map(|it| (it.node.clone(), it.evicted_keys)).collect();
        let (evicted, next) = (Mutex::new(evicted), AtomicU16::new(0));
        let looking = Arc::new(Looking { link, names, epochs, allow, evicted, next });
        let task = tokio::spawn(Arc::clone(&looking).run());
        Self { looking, task }
    }

    /// Looks now, and says whether claims are granted.
    pub(super) async fn health(&self) -> Result<Health, StoreError> {
        self.looking.look().await
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Looking {
    async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Err(error) = self.look().await {
                tracing::debug!(error = &error as &dyn std::error::Error, "the Redis server");
            }
        }
    }

    async fn look(&self) -> Result<Health, StoreError> {
        let looked = checks::look(&self.link).await?;
        let unsafe_now = looked.iter().find_map(|it| self.eviction(it));
        self.epochs.see_unsafe(unsafe_now.clone());
        let evicted = self.count_evicted(&looked) > 0;
        if evicted {
            self.epochs.see_loss();
        }
        if let Some(fault) = unsafe_now {
            if evicted {
                self.epochs.finish_closing(self.marks()).await?;
                // Marks that are closed now may be evicted next: again when it is over.
                self.epochs.see_loss();
            }
            return Ok(Health::refusing(format!("it is not safe for records any more: {fault}")));
        }
        self.epochs.finish_closing(self.marks()).await?;
        let closed_for = self.look_at_marks().await?;
        let memory: Vec<_> = looked.iter().filter_map(Looked::memory).collect();
        Ok(health(closed_for, &memory))
    }

    /// Looks at some of the marks, and closes all if one is missing; returns for how long those
    /// that were looked at are closed.
    async fn look_at_marks(&self) -> Result<Duration, StoreError> {
        let first = self.next.fetch_add(MARKS_A_LOOK, Ordering::Relaxed) % BUCKETS;
        let buckets = || (first..BUCKETS).take(MARKS_A_LOOK.into()).map(Bucket);
        let mut marks = self.marks().read(buckets()).await?;
        let known = |bucket: &Bucket| self.epochs.known(*bucket);
        let lost = marks.iter().find(|(bucket, mark)| mark.is_of_a_loss(&known(bucket)));
        if let Some((bucket, _)) = lost {
            self.epochs.close(*bucket, &known(bucket), self.marks()).await?;
            marks = self.marks().read(buckets()).await?;
        }
        // Another call may be closing them: a store that is said to be closed is so everywhere.
        self.epochs.finish_closing(self.marks()).await?;
        Ok(marks.iter().map(|(_, mark)| mark.now.until(mark.open_at)).max().unwrap_or_default())
    }

    fn marks(&self) -> Marks<'_> {
        Marks { link: &self.link, names: &self.names }
    }

    fn eviction(&self, looked: &Looked) -> Option<Unsafe> {
        let evicts = |it: &&Unsafe| matches!(it, Unsafe::Eviction { .. }) && !self.allow.eviction;
        looked.faults.iter().find(evicts).cloned()
    }

    /// How many keys were evicted since the last look. A server that restarted counts from zero.
    fn count_evicted(&self, looked: &[Looked]) -> u64 {
        if self.allow.eviction {
            return 0;
        }
        let mut before = self.evicted.lock();
        let mut more = 0;
        for it in looked {
            let last = before.insert(it.node.clone(), it.evicted_keys).unwrap_or(it.evicted_keys);
            more += it.evicted_keys.saturating_sub(last);
        }
        more
    }
}

fn health(closed_for: Duration, memory: &[Memory]) -> Health {
    if !closed_for.is_zero() {
        return Health::refusing(format!(
            "records were lost, so no claims are granted for another {} s, or until an operator \
             runs `onceward store accept-loss`",
            closed_for.as_secs().max(1)
        ));
    }
    if let Some(full) = memory.iter().find(|it| it.is_full()) {
        return Health::refusing(format!("its memory is full: {full}"));
    }
    let nearly_full = memory.iter().filter(|it| it.is_nearly_full());
    Health::warning(nearly_full.map(|it| format!("memory runs out: {it}")))
}
