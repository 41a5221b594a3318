//! Listing, purging and counting, for operators and background tasks.
//!
//! Every bucket has an index: a sorted set of its ids by state, then by due time. The scripts that
//! change a record update it in the same step: one `ZADD` for a claim, one for its settlement, and
//! 50 to 120 bytes for each record. `SCAN` would cost calls nothing, but it knows neither order nor
//! due times: every round of the sweeper, every page and every search for unknown outcomes would
//! read all records. With the index, a purge without due records is a thousand small look-ups, a
//! page reads one or two buckets, and counting reads only the leases of running records. The index
//! is only a hint: whether a record exists is decided by its own key.

use futures_util::StreamExt as _;
use futures_util::stream;
use onceward_core::{
    Page, Purged, Query, Record, RecordId, StateName, Stats, StoreError, StoreErrorKind, Timestamp,
};
use redis::Value;

use super::RedisStore;
use super::codec;
use super::connection::Replication;
use super::error::unexpected;
use super::key_names::Bucket;
use super::loss_markers::AT_ONCE;
use super::reply::{ScriptReply, unreadable};
use super::scripts::{INDEX, SWEEP};

/// Records whose size is measured to estimate the size of all.
const SAMPLES: usize = 64;

/// The reply of `index.lua` for a bucket.
struct IndexReport {
    bucket: Bucket,
    by_state: [u64; StateName::ALL.len()],
    due: Vec<RecordId>,
    sample: Option<RecordId>,
    /// Running and unknown records, if they were asked for.
    open: Vec<RecordId>,
}

/// Parts of a bucket's index.
#[derive(Clone, Copy)]
enum IndexPart {
    /// At most this many records that are due.
    Due(usize),
    /// Running and unknown records.
    Open,
}

/// The result of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Swept {
    Removed,
    Tombstoned,
    /// Nothing: it is not due any more, or cannot be read.
    Left,
}

pub(super) async fn get(store: &RedisStore, id: &RecordId) -> Result<Option<Record>, StoreError> {
    let mut command = redis::cmd("HGETALL");
    command.arg(store.names.record(id));
    let value = store.connections.call(&command).await?;
    codec::decode(id, value).map_err(unreadable)
}

pub(super) async fn list(store: &RedisStore, query: &Query) -> Result<Page, StoreError> {
    let now = time(store).await?;
    let first = query.after.map_or(Bucket(0), |after| Bucket::of(&after));
    let mut buckets = stream::iter(Bucket::all().filter(|bucket| *bucket >= first))
        .map(|bucket| ids(store, bucket, query))
        .buffered(AT_ONCE);
    let mut listing = Listing { query, now, page: Page::default(), last: None };
    while let Some(ids) = buckets.next().await {
        let mut records =
            stream::iter(ids?).map(async |id| (id, get(store, &id).await)).buffered(AT_ONCE);
        while let Some((id, found)) = records.next().await {
            if !listing.take(id, found)? {
                return Ok(listing.page);
            }
        }
    }
    Ok(listing.page)
}

struct Listing<'a> {
    query: &'a Query,
    now: Timestamp,
    page: Page,
    last: Option<RecordId>,
}

impl Listing<'_> {
    /// Adds a record if it matches. Returns false if the page is full and there are more records.
    fn take(
        &mut self,
        id: RecordId,
        found: Result<Option<Record>, StoreError>,
    ) -> Result<bool, StoreError> {
        let wanted = match &found {
            Ok(Some(record)) => self.query.matches(record, self.now),
            Ok(None) => false,
            Err(error) if error.kind == StoreErrorKind::Undecodable => true,
            Err(_) => return found.map(|_| true),
        };
        if !wanted {
            return Ok(true);
        }
        if self.page.records.len() + self.page.undecodable.len() == self.query.page_size() {
            self.page.next = self.last;
            return Ok(false);
        }
        self.last = Some(id);
        match found {
            Ok(record) => self.page.records.extend(record),
            Err(_) => self.page.undecodable.push(id),
        }
        Ok(true)
    }
}

/// The ids of a bucket that may match a query, in order.
async fn ids(
    store: &RedisStore,
    bucket: Bucket,
    query: &Query,
) -> Result<Vec<RecordId>, StoreError> {
    let mut command = redis::cmd("ZRANGE");
    command.arg(store.names.index(bucket));
    match query.standing {
        // The index does not know whether the lease of an open record has lapsed.
        Some(StateName::Running | StateName::Unknown) => {
            command.arg("-inf").arg(format!("({}", 2 * SPAN)).arg("BYSCORE");
        }
        _ => {
            command.arg(0).arg(-1);
        }
    }
    let value = store.connections.call(&command).await?;
    let mut ids = record_ids(value)?;
    ids.retain(|id| query.after.is_none_or(|after| *id > after));
    ids.sort_unstable();
    Ok(ids)
}

/// See `SPAN` in `common.lua`.
const SPAN: u64 = 1 << 44;

pub(super) async fn purge(store: &RedisStore, limit: usize) -> Result<Purged, StoreError> {
    let mut purged = Purged::default();
    let mut reports = stream::iter(store.buckets_in_turn())
        .map(|bucket| index_report(store, bucket, IndexPart::Due(limit.saturating_add(1))))
        .buffered(AT_ONCE);
    while let Some(found) = reports.next().await {
        let due = found?.due;
        let left = limit - purged.removed - purged.tombstoned;
        purged.more |= due.len() > left;
        let mut swept = stream::iter(due.into_iter().take(left))
            .map(async |id| sweep(store, &id).await)
            .buffer_unordered(AT_ONCE);
        while let Some(swept) = swept.next().await {
            match swept? {
                Swept::Removed => purged.removed += 1,
                Swept::Tombstoned => purged.tombstoned += 1,
                Swept::Left => {}
            }
        }
        if purged.more {
            break;
        }
    }
    Ok(purged)
}

async fn sweep(store: &RedisStore, id: &RecordId) -> Result<Swept, StoreError> {
    let value = store.connections.run(&SWEEP, Replication::Ignored, |command| {
        command.arg(2).arg(store.names.record(id)).arg(store.names.index(Bucket::of(id)));
        command.arg(&id.as_bytes()[..]);
    });
    match ScriptReply::read(value.await?)?.word() {
        b"removed" => Ok(Swept::Removed),
        b"tombstoned" => Ok(Swept::Tombstoned),
        b"same" => Ok(Swept::Left),
        b"undecodable" => {
            tracing::error!(%id, "a due record cannot be read and is kept");
            Ok(Swept::Left)
        }
        _ => Err(unexpected("an unknown result of a sweep")),
    }
}

pub(super) async fn stats(store: &RedisStore) -> Result<Stats, StoreError> {
    let mut stats = Stats::default();
    let (mut samples, mut open) = (Vec::new(), Vec::new());
    let mut reports = stream::iter(Bucket::all())
        .map(|bucket| index_report(store, bucket, IndexPart::Open))
        .buffer_unordered(AT_ONCE);
    while let Some(report) = reports.next().await {
        let report = report?;
        for (sum, count) in stats.by_state.iter_mut().zip(report.by_state) {
            *sum += count;
            stats.records += count;
        }
        samples.extend(report.sample.map(|id| (report.bucket, id)));
        open.extend(report.open);
    }
    correct_open(store, &mut stats, open).await?;
    stats.bytes = stats.records * average_bytes(store, samples).await?;
    Ok(stats)
}

/// Corrects the counts by the leases of running records. The index does not have them, as a renewal
/// would have to write it.
async fn correct_open(
    store: &RedisStore,
    stats: &mut Stats,
    open: Vec<RecordId>,
) -> Result<(), StoreError> {
    if open.is_empty() {
        return Ok(());
    }
    let now = time(store).await?;
    let mut found = stream::iter(open)
        .map(async |id| {
            let mut command = redis::cmd("HMGET");
            command.arg(store.names.record(&id)).arg(&["state", "lease_until", "updated_at"]);
            store.connections.call(&command).await
        })
        .buffer_unordered(AT_ONCE);
    while let Some(value) = found.next().await {
        let fields = redis::from_redis_value::<[Option<String>; 3]>(value?);
        let Ok([state, lease_until, updated_at]) = fields else { continue };
        let time = |text: Option<String>| text?.parse().ok().map(Timestamp::from_millis);
        // A record without these fields is gone by now, or cannot be read.
        match (state.as_deref(), time(lease_until), time(updated_at)) {
            (Some("running"), until @ Some(_), Some(at)) => stats.correct_open(until, at, now),
            (Some("unknown"), _, Some(at)) => stats.correct_open(None, at, now),
            _ => {}
        }
    }
    Ok(())
}

/// The average size of a record, measured on a few.
async fn average_bytes(
    store: &RedisStore,
    samples: Vec<(Bucket, RecordId)>,
) -> Result<u64, StoreError> {
    let step = (samples.len() / SAMPLES).max(1);
    let mut sizes = stream::iter(samples.into_iter().step_by(step))
        .map(async |(_, id)| {
            let mut command = redis::cmd("MEMORY");
            command.arg("USAGE").arg(store.names.record(&id));
            store.connections.call(&command).await
        })
        .buffer_unordered(AT_ONCE);
    let (mut bytes, mut count) = (0, 0);
    while let Some(size) = sizes.next().await {
        if let Value::Int(size) = size? {
            bytes += u64::try_from(size).unwrap_or(0);
            count += 1;
        }
    }
    Ok(bytes / count.max(1))
}

async fn index_report(
    store: &RedisStore,
    bucket: Bucket,
    part: IndexPart,
) -> Result<IndexReport, StoreError> {
    let (due, open) = match part {
        IndexPart::Due(most) => (most, ""),
        IndexPart::Open => (0, "open"),
    };
    let value = store.connections.run(&INDEX, Replication::Ignored, |command| {
        command.arg(1).arg(store.names.index(bucket)).arg(due).arg(open);
    });
    let odd = || unexpected("an unknown reply of the index");
    let Value::Array(parts) = value.await? else { return Err(odd()) };
    let [counts, due, sample, open] = <[Value; 4]>::try_from(parts).map_err(|_| odd())?;
    let counts: Vec<u64> = redis::from_redis_value(counts).map_err(|_| odd())?;
    let by_state = counts.try_into().map_err(|_| odd())?;
    let sample = match sample {
        Value::Nil => None,
        one => record_ids(Value::Array(vec![one]))?.pop(),
    };
    let (by_state, due, open) = (reordered(by_state), record_ids(due)?, record_ids(open)?);
    Ok(IndexReport { bucket, by_state, due, sample, open })
}

/// Changes from the order of `PLACES` in `common.lua` to that of [`StateName::ALL`].
fn reordered(counts: [u64; 6]) -> [u64; StateName::ALL.len()] {
    let [running, unknown, completed, failed, released, expired] = counts;
    let mut by_state = [0; StateName::ALL.len()];
    by_state[StateName::Running as usize] = running;
    by_state[StateName::Unknown as usize] = unknown;
    by_state[StateName::Completed as usize] = completed;
    by_state[StateName::Failed as usize] = failed;
    by_state[StateName::Released as usize] = released;
    by_state[StateName::Expired as usize] = expired;
    by_state
}

/// Reads ids. Members of another length were not written by a store.
fn record_ids(value: Value) -> Result<Vec<RecordId>, StoreError> {
    let members: Vec<Vec<u8>> =
        redis::from_redis_value(value).map_err(|_| unexpected("not a list of ids"))?;
    let ids = members.into_iter().filter_map(|it| <[u8; 32]>::try_from(it).ok());
    Ok(ids.map(RecordId::from_bytes).collect())
}

/// The server's time.
async fn time(store: &RedisStore) -> Result<Timestamp, StoreError> {
    let value = store.connections.call(&redis::cmd("TIME")).await?;
    let (seconds, micros): (u64, u64) =
        redis::from_redis_value(value).map_err(|_| unexpected("not a time"))?;
    Ok(Timestamp::from_millis(seconds * 1_000 + micros / 1_000))
}
