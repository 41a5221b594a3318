//! Copying all records of one store into another, and comparing the two.

use std::sync::Arc;

use onceward_core::{
    Imported, Page, Query, Record, RecordId, Scope, State, StoreAdmin, StoreError, StoreErrorKind,
};
use tokio::task::JoinSet;

/// Records that are read at once.
const PAGE: usize = 256;
/// Records that are on their way at once: enough that stores can write them together.
const AT_ONCE: usize = 32;
/// How often two records are looked at that differ: in between somebody may have changed one,
/// and the other is about to follow.
const LOOKS: usize = 5;

/// How far a copy has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// Records that the target had not, or had older.
    pub written: u64,
    /// Records of which the target had this or a later one already.
    pub kept: u64,
    /// Records that the source has and cannot read: they are not copied.
    pub undecodable: Vec<RecordId>,
    /// Records of which the target has one that it cannot read: they are not overwritten.
    pub blocked: Vec<RecordId>,
}

impl Copied {
    /// Whether every record that the source has is in the target.
    pub fn is_whole(&self) -> bool {
        self.undecodable.is_empty() && self.blocked.is_empty()
    }
}

/// Copies all records that count at the source's time, its own and its holders' times included:
/// the clocks of both stores have to agree as well as leases and retention are to be kept.
///
/// `progress` hears of every page. Both stores may be in use meanwhile: what is later in the
/// target stays. After an error, or a crash, copy again: nothing is counted on.
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

/// What a comparison of two stores has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Records that are the same in both.
    pub equal: u64,
    /// Records that are not.
    pub differences: Vec<Difference>,
    /// Records that the source has and cannot read.
    pub undecodable: Vec<RecordId>,
}

impl Verified {
    /// Whether everything that the source has is in the target.
    pub fn is_clean(&self) -> bool {
        self.differences.is_empty() && self.undecodable.is_empty()
    }
}

/// A record that is not in the target as it is in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Which.
    pub id: RecordId,
    /// What about it.
    pub what: Differs,
}

/// In what a record of the target differs from that of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Differs {
    /// The target has none.
    Missing,
    /// The target has one and cannot read it.
    Undecodable,
    /// In these properties.
    In(Vec<&'static str>),
}

/// Compares every record that counts at the source's time with the target's, by all that matters:
/// whose it is, its grant, its state, its outcome and its times. Changes nothing.
///
/// What differs is looked at again, so that both stores may be in use where one follows the other.
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
        let looks = at_once(page.records, |record| {
            let (from, to) = (Arc::clone(from), Arc::clone(to));
            async move { (record.id, look(&*from, &*to, record).await) }
        });
        for (id, found) in looks.await {
            match found? {
                None => verified.equal += 1,
                Some(what) => verified.differences.push(Difference { id, what }),
            }
        }
        progress(&verified);
    }
    Ok(verified)
}

/// Pages of everything but what is only about a move.
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
        page.records.retain(|record| !is_about_moving(&record.scope));
        self.query = page.next.map(|next| Query { after: Some(next), ..query });
        Ok(Some(page))
    }
}

/// The scope of records that a [`DualStore`](crate::dual::DualStore) keeps for itself.
pub(crate) const MOVING: [&str; 2] = ["onceward", "moving"];

/// Whether a record is about the move itself, and not moved.
pub(crate) fn is_about_moving(scope: &Scope) -> bool {
    [scope.tenant(), scope.caller()] == MOVING
}

/// Does something with many records, some of them at once.
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

/// The next that is done. A store that panics panics here.
async fn joined<A: 'static>(tasks: &mut JoinSet<A>) -> Option<A> {
    match tasks.join_next().await? {
        Ok(done) => Some(done),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

/// In what a record differs from the target's, looked at until both stand still.
async fn look<S, T>(from: &S, to: &T, mut record: Record) -> Result<Option<Differs>, StoreError>
where
    S: StoreAdmin + ?Sized,
    T: StoreAdmin + ?Sized,
{
    let mut found = None;
    for _ in 0..LOOKS {
        found = difference(&record, to.get(&record.id).await)?;
        if found.is_none() {
            break;
        }
        tokio::task::yield_now().await;
        match from.get(&record.id).await? {
            Some(again) => record = again,
            // Past its time by now.
            None => return Ok(None),
        }
    }
    Ok(found)
}

fn difference(
    record: &Record,
    other: Result<Option<Record>, StoreError>,
) -> Result<Option<Differs>, StoreError> {
    Ok(match other {
        Ok(None) => Some(Differs::Missing),
        Ok(Some(other)) => {
            let properties = what_differs(record, &other);
            (!properties.is_empty()).then_some(Differs::In(properties))
        }
        Err(error) if error.kind == StoreErrorKind::Undecodable => Some(Differs::Undecodable),
        Err(error) => return Err(error),
    })
}

/// The properties in which two records differ.
fn what_differs(one: &Record, other: &Record) -> Vec<&'static str> {
    let buried = is_buried(&one.state) != is_buried(&other.state)
        && one.state.retained() == other.state.retained();
    let same = [
        ("scope", one.scope == other.scope),
        ("key", one.key == other.key),
        ("operation", one.operation == other.operation),
        ("fingerprint", one.fingerprint == other.fingerprint),
        // A sweep of one of the two drops these, and changes nothing that is answered.
        ("sketch", buried || one.sketch == other.sketch),
        ("state", buried || one.state.name() == other.state.name()),
        ("outcome", buried || one.state.outcome() == other.state.outcome()),
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

fn is_buried(state: &State) -> bool {
    matches!(state, State::Expired { .. })
}

fn lease(state: &State) -> Option<onceward_core::Timestamp> {
    match state {
        State::Running { lease_until } => Some(*lease_until),
        _ => None,
    }
}
