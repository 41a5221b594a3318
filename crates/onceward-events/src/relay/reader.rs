//! Reading the outbox: each committed event once, in the order of its aggregate.
//!
//! Positions are drawn before commits, so neither the last position nor the age of a row says what
//! was read. The reader remembers the last snapshot instead, and asks for the events that are
//! visible now and were not then. A transaction that is still open is in no snapshot: its events
//! come when it has committed, and nothing waits for them.

use std::collections::{BTreeMap, VecDeque};

use super::database::{Database, DatabaseError, Positions};
use crate::event::{Lane, StoredEvent};

/// Most positions in memory of a round.
const POSITIONS_MAX: usize = 50_000;

/// Most events of one read.
const PAGE_EVENTS: usize = 1_000;

/// Reads events of lanes in rounds. A round ends when all events of its snapshot were read.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The last snapshot of each lane that was read; `None` if none was.
    lanes: BTreeMap<Lane, Option<String>>,
    round: Option<Round>,
}

#[derive(Debug)]
struct Round {
    snapshot: String,
    /// Lanes that have the same last snapshot are read together.
    groups: VecDeque<Group>,
}

#[derive(Debug)]
struct Group {
    lanes: Vec<Lane>,
    base: Option<String>,
    /// Positions that were found and are not read yet.
    found: VecDeque<i64>,
    /// The last position that was found.
    after: i64,
    /// True if all positions were found.
    complete: bool,
}

/// A part of a round.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) events: Vec<StoredEvent>,
    /// True if this was the end of a round.
    pub(super) ended: bool,
}

impl Reader {
    /// Reads all events of these lanes from now on.
    pub(super) fn add(&mut self, lanes: impl IntoIterator<Item = Lane>) {
        self.lanes.extend(lanes.into_iter().map(|lane| (lane, None)));
    }

    /// Reads no more of these lanes.
    pub(super) fn remove(&mut self, lanes: &[Lane]) {
        self.lanes.retain(|lane, _| !lanes.contains(lane));
        for group in self.round.iter_mut().flat_map(|round| &mut round.groups) {
            group.lanes.retain(|lane| !lanes.contains(lane));
        }
    }

    /// Begins anew with all lanes. Snapshots say nothing about another server, and after a failover
    /// the next one may be another.
    pub(super) fn restart(&mut self) {
        self.round = None;
        self.lanes.values_mut().for_each(|base| *base = None);
    }

    /// True if events of the lane are read.
    pub(super) fn reads(&self, lane: Lane) -> bool {
        self.lanes.contains_key(&lane)
    }

    pub(super) fn is_in_round(&self) -> bool {
        self.round.is_some()
    }

    /// The snapshot up to which a lane was read. Outside of a round only.
    pub(super) fn snapshot(&self, lane: Lane) -> Option<&str> {
        self.lanes.get(&lane)?.as_deref()
    }

    /// Reads the next page of the current round, or begins one.
    pub(super) async fn read(&mut self, database: &Database) -> Result<Page, DatabaseError> {
        if self.lanes.is_empty() {
            self.round = None;
            return Ok(Page { events: Vec::new(), ended: true });
        }
        let round = match &mut self.round {
            Some(round) => round,
            None => self.round.insert(Round::begin(&self.lanes, database).await?),
        };
        let events = round.read(database).await?;
        let Some(group) = round.groups.front() else {
            return Ok(self.end_round(events));
        };
        if group.found.is_empty() && group.complete {
            let snapshot = round.snapshot.clone();
            for lane in round.groups.pop_front().into_iter().flat_map(|group| group.lanes) {
                self.lanes.entry(lane).and_modify(|base| *base = Some(snapshot.clone()));
            }
        }
        if self.round.as_ref().is_some_and(|round| round.groups.is_empty()) {
            return Ok(self.end_round(events));
        }
        Ok(Page { events, ended: false })
    }

    fn end_round(&mut self, events: Vec<StoredEvent>) -> Page {
        self.round = None;
        Page { events, ended: true }
    }
}

impl Round {
    async fn begin(
        lanes: &BTreeMap<Lane, Option<String>>,
        database: &Database,
    ) -> Result<Self, DatabaseError> {
        let mut by_base: BTreeMap<Option<&str>, Vec<Lane>> = BTreeMap::new();
        for (lane, base) in lanes {
            by_base.entry(base.as_deref()).or_default().push(*lane);
        }
        // Lanes with a snapshot come first: they have new events, the others a backlog.
        let mut groups: VecDeque<_> = by_base.into_iter().rev().map(Group::new).collect();
        let mut snapshot = None;
        if let Some(first) = groups.front_mut() {
            snapshot = Some(first.find(None, database).await?);
        }
        Ok(Self { snapshot: snapshot.unwrap_or_default(), groups })
    }

    /// Reads the next page of the first group.
    async fn read(&mut self, database: &Database) -> Result<Vec<StoredEvent>, DatabaseError> {
        let Some(group) = self.groups.front_mut() else { return Ok(Vec::new()) };
        if group.found.is_empty() && !group.complete {
            group.find(Some(&self.snapshot), database).await?;
        }
        let page = group.found.len().min(PAGE_EVENTS);
        if page == 0 {
            return Ok(Vec::new());
        }
        let positions: Vec<_> = group.found.iter().take(page).copied().collect();
        let events = database.read(&positions).await?;
        group.found.drain(..page);
        Ok(events)
    }
}

impl Group {
    fn new((base, lanes): (Option<&str>, Vec<Lane>)) -> Self {
        let base = base.map(str::to_owned);
        Self { lanes, base, found: VecDeque::new(), after: 0, complete: false }
    }

    /// Finds the next positions in a snapshot, or in one that it takes. Returns it.
    async fn find(
        &mut self,
        snapshot: Option<&str>,
        database: &Database,
    ) -> Result<String, DatabaseError> {
        let (base, after) = (self.base.as_deref(), self.after);
        let found = database.positions(&self.lanes, snapshot, base, after, POSITIONS_MAX).await?;
        let Positions { snapshot, positions } = found;
        self.complete = positions.len() < POSITIONS_MAX;
        self.after = positions.last().copied().unwrap_or(after);
        self.found.extend(positions);
        Ok(snapshot)
    }
}
