//! Checks the servers regularly for what no claim would notice: that eviction was switched on, that
//! keys were evicted, that markers are missing before anything is claimed, that memory runs out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use onceward_core::{Health, StoreError};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::checks::{self, Memory, ServerReport, Unsafe};
use super::connection::Connections;
use super::key_names::{BUCKETS, Bucket, KeyNames};
use super::loss_markers::{LossMarkers, ServerMarkers};
use super::settings::Allow;

/// Longest time until a problem is noticed. A check is one `INFO` for each server, and a few
/// markers.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Markers read at each check: all of them in eight seconds, and usually some of every node.
const MARKERS_PER_LOOK: u16 = 32;

/// Checks the servers while it lives.
#[derive(Debug)]
pub(super) struct Watchdog {
    monitor: Arc<Monitor>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Monitor {
    connections: Arc<Connections>,
    names: Arc<KeyNames>,
    loss_markers: Arc<LossMarkers>,
    allow: Allow,
    /// Keys that each server had evicted at the last check.
    evicted: Mutex<HashMap<String, u64>>,
    next: AtomicU16,
}

impl Watchdog {
    /// Starts from the reports of the opening.
    pub(super) fn start(
        connections: Arc<Connections>,
        names: Arc<KeyNames>,
        loss_markers: Arc<LossMarkers>,
        allow: Allow,
        opened: &[ServerReport],
    ) -> Self {
        let evicted = opened.iter().map(|it| (it.node.clone(), it.evicted_keys)).collect();
        let (evicted, next) = (Mutex::new(evicted), AtomicU16::new(0));
        let monitor = Arc::new(Monitor { connections, names, loss_markers, allow, evicted, next });
        let task = tokio::spawn(Arc::clone(&monitor).run());
        Self { monitor, task }
    }

    /// Checks now, and returns whether claims are granted.
    pub(super) async fn health(&self) -> Result<Health, StoreError> {
        self.monitor.look().await
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Monitor {
    async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Err(error) = self.look().await {
                tracing::debug!(error = &error as &dyn std::error::Error, "the Redis server");
            }
        }
    }

    async fn look(&self) -> Result<Health, StoreError> {
        let reports = checks::look(&self.connections).await?;
        let unsafe_now = reports.iter().find_map(|it| self.eviction(it));
        self.loss_markers.set_unsafe(unsafe_now.clone());
        let evicted = self.count_evicted(&reports) > 0;
        if evicted {
            self.loss_markers.note_loss();
        }
        if let Some(fault) = unsafe_now {
            if evicted {
                self.loss_markers.finish_closing(self.markers()).await?;
                // Closed markers may be evicted next: close them again when that is over.
                self.loss_markers.note_loss();
            }
            return Ok(Health::refusing(format!("it is no longer safe for records: {fault}")));
        }
        self.loss_markers.finish_closing(self.markers()).await?;
        let closed_for = self.check_markers().await?;
        let memory: Vec<_> = reports.iter().filter_map(ServerReport::memory).collect();
        Ok(health(closed_for, &memory))
    }

    /// Reads some markers, and closes all buckets if one is missing. Returns the longest time for
    /// which those that were read stay closed.
    async fn check_markers(&self) -> Result<Duration, StoreError> {
        let first = self.next.fetch_add(MARKERS_PER_LOOK, Ordering::Relaxed) % BUCKETS;
        let buckets = || (first..BUCKETS).take(MARKERS_PER_LOOK.into()).map(Bucket);
        let mut markers = self.markers().read(buckets()).await?;
        let known = |bucket: &Bucket| self.loss_markers.known(*bucket);
        let lost = markers.iter().find(|(bucket, mark)| mark.is_of_a_loss(&known(bucket)));
        if let Some((bucket, _)) = lost {
            self.loss_markers.close(*bucket, &known(bucket), self.markers()).await?;
            markers = self.markers().read(buckets()).await?;
        }
        // Another call may be closing them: a store that is reported closed is so in all buckets.
        self.loss_markers.finish_closing(self.markers()).await?;
        Ok(markers.iter().map(|(_, mark)| mark.now.until(mark.open_at)).max().unwrap_or_default())
    }

    fn markers(&self) -> ServerMarkers<'_> {
        ServerMarkers { connections: &self.connections, names: &self.names }
    }

    fn eviction(&self, reports: &ServerReport) -> Option<Unsafe> {
        let evicts = |it: &&Unsafe| matches!(it, Unsafe::Eviction { .. }) && !self.allow.eviction;
        reports.faults.iter().find(evicts).cloned()
    }

    /// Returns how many keys were evicted since the last check. A restarted server counts from
    /// zero.
    fn count_evicted(&self, reports: &[ServerReport]) -> u64 {
        if self.allow.eviction {
            return 0;
        }
        let mut before = self.evicted.lock();
        let mut more = 0;
        for it in reports {
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
