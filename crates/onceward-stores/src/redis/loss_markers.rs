//! Loss markers: they reveal that a server lost its data, before a claim is granted because of it.
//!
//! A missing record means a new key or a lost record, and only the first may be granted. So every
//! bucket has a marker, in the same slot and thus in the same place as its records. It is lost
//! together with them: by a flush, a restart without persistence, a new disk, or a node of a
//! cluster that came back empty. A claim is granted only if the marker has the epoch that this
//! process knows. The claim's script checks that in the same step, so there is neither a gap
//! between loss and detection nor an extra round trip. One marker for the whole store would not
//! suffice: a script may use one slot only, and nodes lose their data one by one.
//!
//! The first process that finds a marker missing closes all buckets, the intact ones too: one
//! intent may have records in several, and an operator has one loss to handle. Markers that are
//! created or closed then grant nothing for the quarantine, so processes that start meanwhile learn
//! of the loss too. A process that starts before any other noticed finds no markers at all, as on a
//! new server; `setup_library` tells the two apart.
//!
//! A marker does not reveal the loss of single records: after a manual deletion, or if a promoted
//! replica lacks them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use onceward_core::{Effect, StoreError, StoreErrorKind};
use parking_lot::Mutex;
use uuid::Uuid;

use super::checks::Unsafe;
use super::connection::{Connections, Replication};
use super::error::{OpenError, Quarantined, store_error};
use super::key_names::{BUCKETS, Bucket, KeyNames};
use super::reply::{Marker, ScriptReply};
use super::scripts::{MARK, READ_MARK, REOPEN};
use super::settings::{OnEmpty, Settings};
use super::setup_library::SetupLibrary;

/// Buckets that are visited concurrently.
pub(super) const AT_ONCE: usize = 128;
/// Another process may be setting up the store, which then has only some markers for milliseconds.
const SETUP_POLLS: usize = 20;
const SETUP_POLL_EVERY: Duration = Duration::from_millis(100);

/// The epochs of all markers, as this process knows them.
pub(super) struct LossMarkers {
    known: Box<[Mutex<Arc<str>>]>,
    quarantine: Duration,
    /// Held while all buckets are closed, so that many calls close them once.
    closing: tokio::sync::Mutex<()>,
    /// True from the detection of a loss until all buckets are closed.
    unfinished: AtomicBool,
    /// Why this process asks for no grants at present, whatever the markers say.
    unsafe_now: Mutex<Option<Unsafe>>,
}

/// Handling of a call that found a marker of another epoch, or a closed one.
#[derive(Debug)]
pub(super) enum AfterLoss {
    /// Send it again with the epoch that is known now.
    Retry,
    /// Fail.
    Refused(StoreError),
}

impl LossMarkers {
    /// Reads all markers, and creates them if the store is new.
    pub(super) async fn open(
        connections: &Connections,
        names: &KeyNames,
        library: &SetupLibrary,
        settings: &Settings,
    ) -> Result<Self, OpenError> {
        let markers = ServerMarkers { connections, names };
        // Checked before the markers: the library is left after all markers were created, so
        // without it another process may be creating them just now.
        let was_set_up = library.is_there(connections).await;
        let mut found = markers.present().await.map_err(OpenError::Unavailable)?;
        for _ in 0..SETUP_POLLS {
            if found == 0 || found == usize::from(BUCKETS) {
                break;
            }
            tokio::time::sleep(SETUP_POLL_EVERY).await;
            found = markers.present().await.map_err(OpenError::Unavailable)?;
        }
        let state = StateAtOpen::of(found, was_set_up, settings)?;
        let (window, existing) = match state {
            StateAtOpen::New => (Duration::ZERO, ExistingMarkers::Kept),
            // All markers are there: one that has to be created was lost just now.
            StateAtOpen::Whole | StateAtOpen::Doubtful => {
                (settings.quarantine, ExistingMarkers::Kept)
            }
            StateAtOpen::Lost => {
                tracing::error!(
                    prefix = settings.prefix,
                    markers = found,
                    of = BUCKETS,
                    quarantine = ?settings.quarantine,
                    "the Redis server had this store and has lost records: no claims are granted"
                );
                (settings.quarantine, ExistingMarkers::Closed)
            }
        };
        let mut made = markers.make(window, existing).await.map_err(OpenError::Unavailable)?;
        if state == StateAtOpen::Whole && made.new > 0 {
            made = markers
                .make(window, ExistingMarkers::Closed)
                .await
                .map_err(OpenError::Unavailable)?;
        }
        let marked = made.markers;
        if state == StateAtOpen::New {
            tracing::info!(
                prefix = settings.prefix,
                "set up a new store; with `empty=refuse` in its URL from now on, a server that \
                 comes back without any data is refused"
            );
        }
        let closed = marked.iter().filter(|mark| mark.open_at > mark.now).count();
        if closed > 0 {
            tracing::error!(closed, of = BUCKETS, "records were lost: no claims are granted there");
        }
        library.leave(connections).await;
        let known = marked.into_iter().map(|mark| Mutex::new(mark.epoch.into())).collect();
        Ok(Self {
            known,
            quarantine: settings.quarantine,
            closing: tokio::sync::Mutex::default(),
            unfinished: AtomicBool::new(false),
            unsafe_now: Mutex::default(),
        })
    }

    /// The epoch that claims in a bucket rely on.
    pub(super) fn known(&self, bucket: Bucket) -> Arc<str> {
        Arc::clone(&self.known[usize::from(bucket.0)].lock())
    }

    /// The epoch to claim with. While the server is not safe it is one that no marker has, so that
    /// the script replays what is stored and grants nothing.
    pub(super) async fn to_claim_with(
        &self,
        bucket: Bucket,
        markers: ServerMarkers<'_>,
    ) -> Result<Arc<str>, StoreError> {
        if self.unsafe_now.lock().is_some() {
            return Ok(Arc::from(""));
        }
        self.finish_closing(markers).await?;
        Ok(self.known(bucket))
    }

    /// Stops asking for grants while the server is not safe for records; `None` continues.
    pub(super) fn set_unsafe(&self, fault: Option<Unsafe>) {
        let mut seen = self.unsafe_now.lock();
        match (&*seen, &fault) {
            (before, now) if before == now => {}
            (_, Some(fault)) => {
                tracing::error!(%fault, "the Redis server is no longer safe for records: no claims are granted");
            }
            (_, None) => tracing::info!("the Redis server is safe for records again"),
        }
        *seen = fault;
    }

    /// Why this process asks for no grants at present.
    pub(super) fn unsafe_now(&self) -> Option<Unsafe> {
        self.unsafe_now.lock().clone()
    }

    /// Decides about a call that found another epoch than `known`, or a closed marker.
    pub(super) async fn judge(
        &self,
        bucket: Bucket,
        known: &str,
        mark: Marker,
        markers: ServerMarkers<'_>,
    ) -> Result<AfterLoss, StoreError> {
        if known.is_empty() {
            let refused = |fault| AfterLoss::Refused(unavailable(fault));
            return Ok(self.unsafe_now().map_or(AfterLoss::Retry, refused));
        }
        if mark.is_of_a_loss(known) {
            // The next attempt sees the new state of the markers.
            self.close(bucket, known, markers).await?;
            return Ok(AfterLoss::Retry);
        }
        *self.known[usize::from(bucket.0)].lock() = mark.epoch.as_str().into();
        Ok(match mark.now.until(mark.open_at) {
            Duration::ZERO => AfterLoss::Retry,
            left => AfterLoss::Refused(unavailable(Quarantined { until: mark.open_at, left })),
        })
    }

    /// Closes all buckets, unless another call did since `known` was read.
    pub(super) async fn close(
        &self,
        bucket: Bucket,
        known: &str,
        markers: ServerMarkers<'_>,
    ) -> Result<(), StoreError> {
        let _one_at_a_time = self.closing.lock().await;
        if *self.known(bucket) != *known {
            return Ok(());
        }
        self.close_all(markers).await
    }

    /// Notes a loss that no marker shows. No claims are granted before all buckets are closed.
    pub(super) fn note_loss(&self) {
        if !self.unfinished.swap(true, Ordering::SeqCst) {
            self.log_loss();
        }
    }

    fn log_loss(&self) {
        tracing::error!(
            quarantine = ?self.quarantine,
            "a Redis server has lost records: no claims are granted until the quarantine is over, \
             or an operator runs `onceward store accept-loss`"
        );
    }

    /// Drops a noted loss, as an operator accepts whatever was lost so far.
    pub(super) fn accept(&self) {
        self.unfinished.store(false, Ordering::SeqCst);
    }

    /// Closes all buckets if a loss was noted and they are not closed yet.
    pub(super) async fn finish_closing(
        &self,
        markers: ServerMarkers<'_>,
    ) -> Result<(), StoreError> {
        if !self.unfinished.load(Ordering::SeqCst) {
            return Ok(());
        }
        let _one_at_a_time = self.closing.lock().await;
        match self.unfinished.load(Ordering::SeqCst) {
            true => self.close_all(markers).await,
            false => Ok(()),
        }
    }

    async fn close_all(&self, markers: ServerMarkers<'_>) -> Result<(), StoreError> {
        self.note_loss();
        let closed = markers.make(self.quarantine, ExistingMarkers::Closed).await?;
        for (known, mark) in self.known.iter().zip(closed.markers) {
            *known.lock() = mark.epoch.into();
        }
        self.unfinished.store(false, Ordering::SeqCst);
        Ok(())
    }
}

impl fmt::Debug for LossMarkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossMarkers").field("quarantine", &self.quarantine).finish_non_exhaustive()
    }
}

/// The state in which a store was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StateAtOpen {
    /// All markers are there.
    Whole,
    /// There are no markers and no sign of earlier ones.
    New,
    /// The same, but the settings say not to take the store for new.
    Doubtful,
    /// Some markers are missing, or all of them on a server where the store was set up.
    Lost,
}

impl StateAtOpen {
    fn of(found: usize, was_set_up: bool, settings: &Settings) -> Result<Self, OpenError> {
        match (found, settings.empty) {
            (0, OnEmpty::Refuse) => Err(OpenError::Empty { prefix: settings.prefix.clone() }),
            (0, _) if was_set_up => Ok(Self::Lost),
            (0, OnEmpty::Begin) => Ok(Self::New),
            (0, OnEmpty::Quarantine) => Ok(Self::Doubtful),
            (found, _) if found == usize::from(BUCKETS) => Ok(Self::Whole),
            _ => Ok(Self::Lost),
        }
    }
}

fn unavailable(cause: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    store_error(StoreErrorKind::Unavailable, Effect::NotApplied).caused_by(cause)
}

fn new_epoch() -> String {
    Uuid::from_u128(rand::random()).simple().to_string()
}

/// Handling of existing markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExistingMarkers {
    Kept,
    Closed,
}

/// All markers, after the missing ones were created.
struct Created {
    markers: Vec<Marker>,
    /// Number of markers that were missing.
    new: usize,
}

/// The markers on the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerMarkers<'a> {
    pub(super) connections: &'a Connections,
    pub(super) names: &'a KeyNames,
}

impl ServerMarkers<'_> {
    /// Returns how many buckets have a marker.
    async fn present(self) -> Result<usize, StoreError> {
        let mut found = stream::iter(Bucket::all())
            .map(async |bucket| {
                let mut command = redis::cmd("EXISTS");
                command.arg(self.names.mark(bucket));
                self.connections.call(&command).await
            })
            .buffer_unordered(AT_ONCE);
        let mut count = 0;
        while let Some(value) = found.next().await {
            count += usize::from(value? == redis::Value::Int(1));
        }
        Ok(count)
    }

    /// Creates missing markers, closed for some time, and returns all markers.
    async fn make(
        self,
        closed_for: Duration,
        existing: ExistingMarkers,
    ) -> Result<Created, StoreError> {
        let mut made = stream::iter(Bucket::all())
            .map(|bucket| self.mark(bucket, closed_for, existing))
            .buffered(AT_ONCE);
        let (mut markers, mut new) = (Vec::with_capacity(usize::from(BUCKETS)), 0);
        while let Some(made) = made.next().await {
            let (mark, is_new) = made?;
            new += usize::from(is_new);
            markers.push(mark);
        }
        Ok(Created { markers, new })
    }

    /// Returns a marker, and whether it was missing.
    async fn mark(
        self,
        bucket: Bucket,
        closed_for: Duration,
        existing: ExistingMarkers,
    ) -> Result<(Marker, bool), StoreError> {
        let epoch = new_epoch();
        let existing = match existing {
            ExistingMarkers::Kept => "",
            ExistingMarkers::Closed => "close",
        };
        let value = self.connections.run(&MARK, Replication::Ignored, |command| {
            command.arg(1).arg(self.names.mark(bucket)).arg(&epoch);
            command.arg(super::millis(closed_for)).arg(existing);
        });
        let mark = ScriptReply::read(value.await?)?.mark(0)?;
        let is_new = mark.epoch == epoch;
        Ok((mark, is_new))
    }

    /// Reads the markers of some buckets, in the order of the buckets.
    pub(super) async fn read(
        self,
        buckets: impl IntoIterator<Item = Bucket>,
    ) -> Result<Vec<(Bucket, Marker)>, StoreError> {
        let mut read = stream::iter(buckets)
            .map(async |bucket| {
                let value = self.connections.run(&READ_MARK, Replication::Ignored, |command| {
                    command.arg(1).arg(self.names.mark(bucket));
                });
                ScriptReply::read(value.await?)?.mark(0).map(|mark| (bucket, mark))
            })
            .buffered(AT_ONCE);
        let mut markers = Vec::new();
        while let Some(mark) = read.next().await {
            markers.push(mark?);
        }
        Ok(markers)
    }

    /// Grants claims again in all buckets. Returns in how many they were refused.
    pub(super) async fn reopen(self) -> Result<usize, StoreError> {
        let mut reopened = stream::iter(Bucket::all())
            .map(async |bucket| {
                let epoch = new_epoch();
                let value = self.connections.run(&REOPEN, Replication::Ignored, |command| {
                    command.arg(1).arg(self.names.mark(bucket)).arg(&epoch);
                });
                ScriptReply::read(value.await?).map(|it| it.word() == b"reopened")
            })
            .buffer_unordered(AT_ONCE);
        let mut count = 0;
        while let Some(it) = reopened.next().await {
            count += usize::from(it?);
        }
        Ok(count)
    }
}
