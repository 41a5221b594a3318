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
//! Whoever finds a mark missing makes a new one that grants nothing for the quarantine, so that
//! processes that start meanwhile know of the loss too.
//!
//! What a mark cannot tell: that single records are gone, because somebody deleted them, or a
//! replica was promoted that had not got them yet.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use onceward_core::{Effect, StoreError, StoreErrorKind, Timestamp};
use parking_lot::Mutex;
use uuid::Uuid;

use super::answer::{Answer, Mark};
use super::error::{OpenError, Quarantined, store_error};
use super::link::{Link, Replication};
use super::names::{BUCKETS, Bucket, Names};
use super::scripts::{MARK, REOPEN};
use super::settings::{OnEmpty, Settings};

/// How many buckets are looked at side by side.
pub(super) const AT_ONCE: usize = 128;
/// Others may be at it: a store that is being set up has some of its marks for milliseconds.
const SETUP_LOOKS: usize = 20;
const SETUP_REST: Duration = Duration::from_millis(100);

/// The marks that this process knows, by bucket.
pub(super) struct Epochs {
    known: Box<[Mutex<Arc<str>>]>,
    quarantine: Duration,
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
        settings: &Settings,
    ) -> Result<Self, OpenError> {
        let marks = Marks { link, names };
        let mut found = marks.present().await.map_err(OpenError::Unavailable)?;
        for _ in 0..SETUP_LOOKS {
            if found == 0 || found == usize::from(BUCKETS) {
                break;
            }
            tokio::time::sleep(SETUP_REST).await;
            found = marks.present().await.map_err(OpenError::Unavailable)?;
        }
        let window = closed_for(found, settings)?;
        let marked = marks.make(window).await.map_err(OpenError::Unavailable)?;
        let closed = marked.iter().filter(|mark| mark.open_at > mark.now).count();
        if found == 0 {
            tracing::info!(prefix = settings.prefix, "set up a new store");
        }
        if closed > 0 {
            tracing::error!(closed, of = BUCKETS, "records were lost: no claims are granted there");
        }
        let known = marked.into_iter().map(|mark| Mutex::new(mark.epoch.into())).collect();
        Ok(Self { known, quarantine: settings.quarantine })
    }

    /// The epoch that claims in a bucket rely on.
    pub(super) fn known(&self, bucket: Bucket) -> Arc<str> {
        Arc::clone(&self.known[usize::from(bucket.0)].lock())
    }

    /// A call found another mark than `known`, or one that is closed.
    pub(super) async fn judge(
        &self,
        bucket: Bucket,
        known: &str,
        mark: Mark,
        marks: Marks<'_>,
    ) -> Result<Verdict, StoreError> {
        let changed = mark.epoch != known;
        // Missing, or made by somebody who took the server for a new one.
        let closing = changed && (mark.epoch.is_empty() || mark.open_at == Timestamp::default());
        let mark = if closing { self.close(bucket, &mark.epoch, marks).await? } else { mark };
        *self.known[usize::from(bucket.0)].lock() = mark.epoch.as_str().into();
        Ok(match mark.now.until(mark.open_at) {
            Duration::ZERO => Verdict::Again,
            left => Verdict::Refused(quarantined(Quarantined { until: mark.open_at, left })),
        })
    }

    async fn close(
        &self,
        bucket: Bucket,
        seen: &str,
        marks: Marks<'_>,
    ) -> Result<Mark, StoreError> {
        let quarantine = self.quarantine;
        tracing::error!(
            bucket = bucket.0,
            ?quarantine,
            "a Redis server has lost records: it grants no claims until the quarantine is over"
        );
        marks.mark(bucket, quarantine, seen).await
    }
}

impl fmt::Debug for Epochs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epochs").field("quarantine", &self.quarantine).finish_non_exhaustive()
    }
}

/// How long a store is closed at its opening, of whose marks so many were found.
fn closed_for(found: usize, settings: &Settings) -> Result<Duration, OpenError> {
    match settings.empty {
        OnEmpty::Begin if found == 0 => Ok(Duration::ZERO),
        OnEmpty::Refuse if found == 0 => Err(OpenError::Empty { prefix: settings.prefix.clone() }),
        // Also those that are missing beside others: a node came back empty.
        OnEmpty::Begin | OnEmpty::Refuse | OnEmpty::Quarantine => Ok(settings.quarantine),
    }
}

fn quarantined(cause: Quarantined) -> StoreError {
    store_error(StoreErrorKind::Unavailable, Effect::NotApplied).caused_by(cause)
}

fn new_epoch() -> String {
    Uuid::from_u128(rand::random()).simple().to_string()
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

    /// Makes those that are missing, closed for a while, and tells all.
    async fn make(self, closed_for: Duration) -> Result<Vec<Mark>, StoreError> {
        let mut made = stream::iter(Bucket::all())
            .map(|bucket| self.mark(bucket, closed_for, ""))
            .buffered(AT_ONCE);
        let mut marks = Vec::with_capacity(usize::from(BUCKETS));
        while let Some(mark) = made.next().await {
            marks.push(mark?);
        }
        Ok(marks)
    }

    /// Makes a mark where there is none, and closes it if it is the one that is not trusted.
    async fn mark(
        self,
        bucket: Bucket,
        closed_for: Duration,
        distrusted: &str,
    ) -> Result<Mark, StoreError> {
        let epoch = new_epoch();
        let value = self.link.run(&MARK, Replication::Ignored, |command| {
            command.arg(1).arg(self.names.mark(bucket)).arg(&epoch);
            command.arg(super::millis(closed_for)).arg(distrusted);
        });
        Answer::read(value.await?)?.mark(0)
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
