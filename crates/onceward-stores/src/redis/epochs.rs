//! Noticing that a server lost its data, before a claim is granted because of it.
//!
//! A record that is not there is a new key or a lost one, and only one of them may be granted.
//! So every bucket has a mark, in the same slot and so in the same place as its records: it is
//! gone when they are, by a flush, by a restart without persistence, by a new disk, by one node
//! of a cluster that came back empty. A claim is granted only where the mark is the one that this
//! process knows, which the claim's script looks at in the same step: there is no moment between
//! the loss and its notice, and no round trip for it. One mark for all would not do: scripts may
//! touch one slot only, and nodes lose their data one by one.
//!
//! The first process that finds a mark missing closes all buckets, the whole ones too: one intent
//! may have records in several, and an operator has one loss to look at. Marks that are made or
//! closed then grant nothing for the quarantine, so that processes that start meanwhile know of
//! the loss too. A process that starts before any other noticed finds no marks at all, as on a
//! new server; see `witness.rs` for how it tells the two apart.
//!
//! What a mark cannot tell: that single records are gone, because somebody deleted them, or a
//! replica was promoted that had not got them yet.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use onceward_core::{Effect, StoreError, StoreErrorKind};
use parking_lot::Mutex;
use uuid::Uuid;

use super::answer::{Answer, Mark};
use super::checks::Unsafe;
use super::error::{OpenError, Quarantined, store_error};
use super::link::{Link, Replication};
use super::names::{BUCKETS, Bucket, Names};
use super::scripts::{MARK, READ_MARK, REOPEN};
use super::settings::{OnEmpty, Settings};
use super::witness::Witness;

/// How many buckets are looked at side by side.
pub(super) const AT_ONCE: usize = 128;
/// Others may be at it: a store that is being set up has some of its marks for milliseconds.
const SETUP_LOOKS: usize = 20;
const SETUP_REST: Duration = Duration::from_millis(100);

/// The marks that this process knows, by bucket.
pub(super) struct Epochs {
    known: Box<[Mutex<Arc<str>>]>,
    quarantine: Duration,
    /// Held while all buckets are closed, so that many calls close them once.
    closing: tokio::sync::Mutex<()>,
    /// A loss was seen, and not all buckets are known to be closed yet.
    unfinished: AtomicBool,
    /// Why this process asks for no grants at present, whatever the marks say.
    unsafe_now: Mutex<Option<Unsafe>>,
}

/// What becomes of a claim that found another mark than was known.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The quarantine is over: claim again.
    Again,
    /// Refused.
    Refused(StoreError),
}

impl Epochs {
    /// Reads all marks, and makes them where the store is new.
    pub(super) async fn open(
        link: &Link,
        names: &Names,
        witness: &Witness,
        settings: &Settings,
    ) -> Result<Self, OpenError> {
        let marks = Marks { link, names };
        // Before the marks: it is left when all of them are made, so without it there may be
        // another process that is just making them.
        let witnessed = witness.is_there(link).await;
        let mut found = marks.present().await.map_err(OpenError::Unavailable)?;
        for _ in 0..SETUP_LOOKS {
            if found == 0 || found == usize::from(BUCKETS) {
                break;
            }
            tokio::time::sleep(SETUP_REST).await;
            found = marks.present().await.map_err(OpenError::Unavailable)?;
        }
        let beginning = Beginning::of(found, witnessed, settings)?;
        let (window, existing) = match beginning {
            Beginning::New => (Duration::ZERO, Existing::Kept),
            // All are there: any that has to be made was lost just now.
            Beginning::Whole | Beginning::Doubtful => (settings.quarantine, Existing::Kept),
            Beginning::Lost => {
                tracing::error!(
                    prefix = settings.prefix,
                    marks = found,
                    of = BUCKETS,
                    quarantine = ?settings.quarantine,
                    "the Redis server had this store and has lost records: no claims are granted"
                );
                (settings.quarantine, Existing::Closed)
            }
        };
        let mut made = marks.make(window, existing).await.map_err(OpenError::Unavailable)?;
        if beginning == Beginning::Whole && made.new > 0 {
            made = marks.make(window, Existing::Closed).await.map_err(OpenError::Unavailable)?;
        }
        let marked = made.marks;
        if beginning == Beginning::New {
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
        witness.leave(link).await;
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

    /// The epoch to claim with: none that any mark has while grants are not safe, so that the
    /// script replays what is stored and grants nothing.
    pub(super) async fn to_claim_with(
        &self,
        bucket: Bucket,
        marks: Marks<'_>,
    ) -> Result<Arc<str>, StoreError> {
        if self.unsafe_now.lock().is_some() {
            return Ok(Arc::from(""));
        }
        self.finish_closing(marks).await?;
        Ok(self.known(bucket))
    }

    /// Asks for no more grants while the server is not safe for records; `None` goes on.
    pub(super) fn see_unsafe(&self, fault: Option<Unsafe>) {
        let mut seen = self.unsafe_now.lock();
        match (&*seen, &fault) {
            (before, now) if before == now => {}
            (_, Some(fault)) => {
                tracing::error!(%fault, "the Redis server is not safe any more: no claims are granted");
            }
            (_, None) => tracing::info!("the Redis server is safe for records again"),
        }
        *seen = fault;
    }

    /// Why this process asks for no grants at present.
    pub(super) fn unsafe_now(&self) -> Option<Unsafe> {
        self.unsafe_now.lock().clone()
    }

    /// A call found another mark than `known`, or one that is closed.
    pub(super) async fn judge(
        &self,
        bucket: Bucket,
        known: &str,
        mark: Mark,
        marks: Marks<'_>,
    ) -> Result<Verdict, StoreError> {
        if known.is_empty() {
            let refused = |fault| Verdict::Refused(unavailable(fault));
            return Ok(self.unsafe_now().map_or(Verdict::Again, refused));
        }
        if mark.is_of_a_loss(known) {
            // What the marks say afterwards is for the next look.
            self.close(bucket, known, marks).await?;
            return Ok(Verdict::Again);
        }
        *self.known[usize::from(bucket.0)].lock() = mark.epoch.as_str().into();
        Ok(match mark.now.until(mark.open_at) {
            Duration::ZERO => Verdict::Again,
            left => Verdict::Refused(unavailable(Quarantined { until: mark.open_at, left })),
        })
    }

    /// Closes all buckets, unless another call did since `known` was looked up.
    pub(super) async fn close(
        &self,
        bucket: Bucket,
        known: &str,
        marks: Marks<'_>,
    ) -> Result<(), StoreError> {
        let _one_at_a_time = self.closing.lock().await;
        if *self.known(bucket) != *known {
            return Ok(());
        }
        self.close_all(marks).await
    }

    /// Notes that records were lost, where no mark says so. No claims are granted before all
    /// buckets are closed.
    pub(super) fn see_loss(&self) {
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

    /// An operator accepts whatever was lost so far.
    pub(super) fn accept(&self) {
        self.unfinished.store(false, Ordering::SeqCst);
    }

    /// Closes all buckets if a loss was seen and that has failed or was not tried yet.
    pub(super) async fn finish_closing(&self, marks: Marks<'_>) -> Result<(), StoreError> {
        if !self.unfinished.load(Ordering::SeqCst) {
            return Ok(());
        }
        let _one_at_a_time = self.closing.lock().await;
        match self.unfinished.load(Ordering::SeqCst) {
            true => self.close_all(marks).await,
            false => Ok(()),
        }
    }

    async fn close_all(&self, marks: Marks<'_>) -> Result<(), StoreError> {
        self.see_loss();
        let closed = marks.make(self.quarantine, Existing::Closed).await?;
        for (known, mark) in self.known.iter().zip(closed.marks) {
            *known.lock() = mark.epoch.into();
        }
        self.unfinished.store(false, Ordering::SeqCst);
        Ok(())
    }
}

impl fmt::Debug for Epochs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epochs").field("quarantine", &self.quarantine).finish_non_exhaustive()
    }
}

/// What a store is found to be at its opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beginning {
    /// All marks are there.
    Whole,
    /// There is no mark, and nothing says that there was one.
    New,
    /// The same, and the settings say not to take that for new.
    Doubtful,
    /// There were marks, and some or all of them are gone.
    Lost,
}

impl Beginning {
    fn of(found: usize, witness: bool, settings: &Settings) -> Result<Self, OpenError> {
        match (found, settings.empty) {
            (0, OnEmpty::Refuse) => Err(OpenError::Empty { prefix: settings.prefix.clone() }),
            (0, _) if witness => Ok(Self::Lost),
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

/// What becomes of marks that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existing {
    Kept,
    Closed,
}

/// All marks, after those that were missing were made.
struct Made {
    marks: Vec<Mark>,
    /// How many were missing.
    new: usize,
}

/// The marks on the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks<'a> {
    pub(super) link: &'a Link,
    pub(super) names: &'a Names,
}

impl Marks<'_> {
    /// How many buckets have their mark.
    async fn present(self) -> Result<usize, StoreError> {
        let mut found = stream::iter(Bucket::all())
            .map(async |bucket| {
                let mut command = redis::cmd("EXISTS");
                command.arg(self.names.mark(bucket));
                self.link.call(&command).await
            })
            .buffer_unordered(AT_ONCE);
        let mut count = 0;
        while let Some(value) = found.next().await {
            count += usize::from(value? == redis::Value::Int(1));
        }
        Ok(count)
    }

    /// Makes those that are missing, closed for a while, and returns all.
    async fn make(self, closed_for: Duration, existing: Existing) -> Result<Made, StoreError> {
        let mut made = stream::iter(Bucket::all())
            .map(|bucket| self.mark(bucket, closed_for, existing))
            .buffered(AT_ONCE);
        let (mut marks, mut new) = (Vec::with_capacity(usize::from(BUCKETS)), 0);
        while let Some(made) = made.next().await {
            let (mark, is_new) = made?;
            new += usize::from(is_new);
            marks.push(mark);
        }
        Ok(Made { marks, new })
    }

    /// A mark, and whether it was missing.
    async fn mark(
        self,
        bucket: Bucket,
        closed_for: Duration,
        existing: Existing,
    ) -> Result<(Mark, bool), StoreError> {
        let epoch = new_epoch();
        let existing = match existing {
            Existing::Kept => "",
            Existing::Closed => "close",
        };
        let value = self.link.run(&MARK, Replication::Ignored, |command| {
            command.arg(1).arg(self.names.mark(bucket)).arg(&epoch);
            command.arg(super::millis(closed_for)).arg(existing);
        });
        let mark = Answer::read(value.await?)?.mark(0)?;
        let is_new = mark.epoch == epoch;
        Ok((mark, is_new))
    }

    /// The marks of some buckets as they are, in their order.
    pub(super) async fn read(
        self,
        buckets: impl IntoIterator<Item = Bucket>,
    ) -> Result<Vec<(Bucket, Mark)>, StoreError> {
        let mut read = stream::iter(buckets)
            .map(async |bucket| {
                let value = self.link.run(&READ_MARK, Replication::Ignored, |command| {
                    command.arg(1).arg(self.names.mark(bucket));
                });
                Answer::read(value.await?)?.mark(0).map(|mark| (bucket, mark))
            })
            .buffered(AT_ONCE);
        let mut marks = Vec::new();
        while let Some(mark) = read.next().await {
            marks.push(mark?);
        }
        Ok(marks)
    }

    /// Grants claims again everywhere; tells in how many buckets they were not.
    pub(super) async fn reopen(self) -> Result<usize, StoreError> {
        let mut reopened = stream::iter(Bucket::all())
            .map(async |bucket| {
                let epoch = new_epoch();
                let value = self.link.run(&REOPEN, Replication::Ignored, |command| {
                    command.arg(1).arg(self.names.mark(bucket)).arg(&epoch);
                });
                Answer::read(value.await?).map(|it| it.word() == b"reopened")
            })
            .buffer_unordered(AT_ONCE);
        let mut count = 0;
        while let Some(it) = reopened.next().await {
            count += usize::from(it?);
        }
        Ok(count)
    }
}
