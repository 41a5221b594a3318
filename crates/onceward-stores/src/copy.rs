//! Copying all records of one store into another, and comparing two stores.

use std::sync::Arc;

use onceward_core::{
    Imported, Page, Query, Record, RecordId, Scope, State, StoreAdmin, StoreError, StoreErrorKind,
};
use tokio::task::JoinSet;

/// Records in one page.
const PAGE: usize = 256;
/// Records in flight: enough that stores can write them in batches.
const AT_ONCE: usize = 32;
/// How often two records that differ are compared again: a call may have changed one of them
/// between the two reads.
const COMPARISONS: usize = 5;

/// The progress of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// Records that the target lacked, or had in an earlier state.
    pub written: u64,
    /// Records that the target had already, in this state or a later one.
    pub kept: u64,
    /// Records that the source cannot read: they are not copied.
    pub undecodable: Vec<RecordId>,
    /// Records that the target has and cannot read: they are not overwritten.
    pub blocked: Vec<RecordId>,
}

impl Copied {
    /// True if every record of the source is in the target.
    pub fn is_whole(&self) -> bool {
        self.undecodable.is_empty() && self.blocked.is_empty()
    }
}

/// Copies all records that count at the source's time. Leases and retention are copied as they
/// are, so they are kept only as exactly as the clocks of both stores agree.
///
/// Calls `progress` after every page. Both stores may be in use meanwhile: a later state in the
/// target stays. Idempotent: after an error or a crash, copy again.
pub async fn copy<S, T>(
    from: &Arc<S>,
    to: &Arc<T>,
    mut progress: impl FnMut(&Copied) + Send,
) -> Result<Copied, StoreError>
where
    S: StoreAdmin + ?Sized,
    T: StoreAdmin + ?Sized,
{
    let mut copied = Copied::default();
    let mut pages = Pages::of(from);
    while let Some(page) = pages.next().await? {
        copied.undecodable.extend(page.undecodable);
        let imports = at_once(page.records, |record| {
            let to = Arc::clone(to);
            async move { (record.id, to.import(&record).await) }
        });
        for (id, imported) in imports.await {
            match imported {
                Ok(Imported::Written) => copied.written += 1,
                Ok(Imported::Kept) => copied.kept += 1,
                Err(error) if error.kind == StoreErrorKind::Undecodable => copied.blocked.push(id),
                Err(error) => return Err(error),
            }
        }
        progress(&copied);
    }
    Ok(copied)
}

/// The result of comparing two stores.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Records that are the same in both.
    pub equal: u64,
    /// Records that differ.
    pub differences: Vec<RecordDifference>,
    /// Records that the source cannot read.
    pub undecodable: Vec<RecordId>,
}

impl Verified {
    /// True if every record of the source is the same in the target.
    pub fn is_clean(&self) -> bool {
        self.differences.is_empty() && self.undecodable.is_empty()
    }
}

/// A record that differs between source and target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordDifference {
    /// The record's id.
    pub id: RecordId,
    /// How it differs.
    pub kind: DifferenceKind,
}

/// How a record of the target differs from that of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The target does not have it.
    Missing,
    /// The target cannot read it.
    Undecodable,
    /// These properties differ.
    Properties(Vec<&'static str>),
}

/// Compares every record that counts at the source's time with the target's: scope, grant, state,
/// outcome and times. Changes nothing.
///
/// Records that differ are compared again, so both stores may be in use where one follows the
/// other.
pub async fn verify<S, T>(
    from: &Arc<S>,
    to: &Arc<T>,
    mut progress: impl FnMut(&Verified) + Send,
) -> Result<Verified, StoreError>
where
    S: StoreAdmin + ?Sized,
    T: StoreAdmin + ?Sized,
{
    let mut verified = Verified::default();
    let mut pages = Pages::of(from);
    while let Some(page) = pages.next().await? {
        verified.undecodable.extend(page.undecodable);
        let comparisons = at_once(page.records, |record| {
            let (from, to) = (Arc::clone(from), Arc::clone(to));
            async move { (record.id, compare(&*from, &*to, record).await) }
        });
        for (id, found) in comparisons.await {
            match found? {
                None => verified.equal += 1,
                Some(kind) => verified.differences.push(RecordDifference { id, kind }),
            }
        }
        progress(&verified);
    }
    Ok(verified)
}

/// Pages of all records, without those that a move keeps for itself.
struct Pages<'a, S: ?Sized> {
    store: &'a S,
    query: Option<Query>,
}

impl<'a, S: StoreAdmin + ?Sized> Pages<'a, S> {
    fn of(store: &'a Arc<S>) -> Self {
        Self { store, query: Some(Query { limit: PAGE, ..Query::default() }) }
    }

    async fn next(&mut self) -> Result<Option<Page>, StoreError> {
        let Some(query) = self.query.take() else { return Ok(None) };
        let mut page = self.store.list(&query).await?;
        page.records.retain(|record| !belongs_to_a_move(&record.scope));
        self.query = page.next.map(|next| Query { after: Some(next), ..query });
        Ok(Some(page))
    }
}

/// Tenant and caller of the records that a [`DualStore`](crate::dual::DualStore) keeps for itself.
pub(crate) const MOVING: [&str; 2] = ["onceward", "moving"];

/// True for records that a move keeps for itself: they are not copied.
pub(crate) fn belongs_to_a_move(scope: &Scope) -> bool {
    [scope.tenant(), scope.caller()] == MOVING
}

/// Does `work` with all records, [`AT_ONCE`] at a time.
async fn at_once<A, F>(records: Vec<Record>, work: impl Fn(Record) -> F) -> Vec<A>
where
    A: Send + 'static,
    F: Future<Output = A> + Send + 'static,
{
    let (mut tasks, mut done) = (JoinSet::new(), Vec::with_capacity(records.len()));
    for record in records {
        if tasks.len() == AT_ONCE {
            done.extend(joined(&mut tasks).await);
        }
        tasks.spawn(work(record));
    }
    while !tasks.is_empty() {
        done.extend(joined(&mut tasks).await);
    }
    done
}

/// The next result. A panic of a store goes on here.
async fn joined<A: 'static>(tasks: &mut JoinSet<A>) -> Option<A> {
    match tasks.join_next().await? {
        Ok(done) => Some(done),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

/// Compares a record with the target's until neither changes between the reads.
async fn compare<S, T>(
    from: &S,
    to: &T,
    mut record: Record,
) -> Result<Option<DifferenceKind>, StoreError>
where
    S: StoreAdmin + ?Sized,
    T: StoreAdmin + ?Sized,
{
    let mut found = None;
    for _ in 0..COMPARISONS {
        found = difference(&record, to.get(&record.id).await)?;
        if found.is_none() {
            break;
        }
        tokio::task::yield_now().await;
        match from.get(&record.id).await? {
            Some(again) => record = again,
            // Its retention is over by now.
            None => return Ok(None),
        }
    }
    Ok(found)
}

fn difference(
    record: &Record,
    other: Result<Option<Record>, StoreError>,
) -> Result<Option<DifferenceKind>, StoreError> {
    Ok(match other {
        Ok(None) => Some(DifferenceKind::Missing),
        Ok(Some(other)) => {
            let properties = differing_properties(record, &other);
            (!properties.is_empty()).then_some(DifferenceKind::Properties(properties))
        }
        Err(error) if error.kind == StoreErrorKind::Undecodable => {
            Some(DifferenceKind::Undecodable)
        }
        Err(error) => return Err(error),
    })
}

/// The properties in which two records differ.
fn differing_properties(one: &Record, other: &Record) -> Vec<&'static str> {
    let either_is_tombstone = is_tombstone(&one.state) != is_tombstone(&other.state)
        && one.state.retained() == other.state.retained();
    let same = [
        ("scope", one.scope == other.scope),
        ("key", one.key == other.key),
        ("operation", one.operation == other.operation),
        ("fingerprint", one.fingerprint == other.fingerprint),
        // A sweep of one store drops these four, which no answer depends on.
        ("sketch", either_is_tombstone || one.sketch == other.sketch),
        ("path", either_is_tombstone || one.path == other.path),
        ("state", either_is_tombstone || one.state.name() == other.state.name()),
        ("outcome", either_is_tombstone || one.state.outcome() == other.state.outcome()),
        ("retention", one.state.retained() == other.state.retained()),
        ("lease", lease(&one.state) == lease(&other.state)),
        ("owner", one.owner == other.owner),
        ("fence", one.fence == other.fence),
        ("attempts", one.attempts == other.attempts),
        ("taken_over", one.taken_over == other.taken_over),
        ("created_at", one.created_at == other.created_at),
        ("updated_at", one.updated_at == other.updated_at),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(property, _)| property).collect()
}

fn is_tombstone(state: &State) -> bool {
    matches!(state, State::Expired { .. })
}

fn lease(state: &State) -> Option<onceward_core::Timestamp> {
    match state {
        State::Running { lease_until } => Some(*lease_until),
        _ => None,
    }
}
