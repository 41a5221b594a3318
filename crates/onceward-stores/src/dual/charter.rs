//! Who decides, written down in both stores.
//!
//! The charter is a record like any other, so that every store can keep it: its fence is the
//! term, and the rule of [`import`](onceward_core::StoreAdmin::import) makes a compare-and-set
//! of writing it. Whoever has read term *n* and writes *n* + 1 is either the first to do so, or
//! told that somebody else was.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use onceward_core::{
    Clock as _, Fence, Fingerprint, Identity, Key, OperationId, Outcome, OwnerToken, Record,
    RecordId, Retained, Scope, Sketch, State, SystemAmbient, Tag, Timestamp,
};
use uuid::Uuid;

use super::error::{DualProblem, OpenError};
use crate::copy::MOVING;

/// Longer than any move: late processes have to find it. It is what Redis can count to.
const FOR_EVER: Timestamp = Timestamp::from_millis((1 << 44) - 1);
const TAG: Tag = Tag::from_static("onceward-charter/v1");

/// One of the two stores of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The one that is moved away from.
    Old,
    /// The one that is moved to.
    New,
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Old => Self::New,
            Self::New => Self::Old,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::New => "new",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Old, Self::New].into_iter().find(|side| side.name() == name)
    }
}

/// Whether calls begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// The authority is about to change.
    Closing,
}

/// The term at which an authority began to reign: names one uninterrupted reign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reign(pub(super) u64);

/// What every process of a move goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Charter {
    /// Counts the changes of the charter.
    pub(super) term: u64,
    pub(super) authority: Side,
    pub(super) reign: Reign,
    pub(super) phase: Phase,
    /// How long what was read of it counts: one value for all processes.
    pub(super) lease: Duration,
    /// Whether the follower was given everything once.
    pub(super) copied: bool,
    /// Notes of processes that could not keep the follower up to date.
    pub(super) troubled: BTreeSet<Uuid>,
    /// Drawn for each change, so that a writer recognises its own.
    pub(super) writer: Uuid,
}

impl Charter {
    /// What a move begins with.
    pub(super) fn first(lease: Duration) -> Self {
        Self {
            term: 1,
            authority: Side::Old,
            reign: Reign(1),
            phase: Phase::Serving,
            lease,
            copied: false,
            troubled: BTreeSet::new(),
            writer: draw(),
        }
    }

    /// The next term, with nothing else changed.
    pub(super) fn next(&self) -> Self {
        Self { term: self.term + 1, writer: draw(), ..self.clone() }
    }

    /// The charter as the record of one of the two stores.
    pub(super) fn record(&self, place: &Place, side: Side) -> Record {
        let retained = Retained { until: FOR_EVER, tombstone_until: FOR_EVER };
        let outcome = Outcome::whole(TAG, self.text(side));
        // For people. By these times nothing is decided.
        let now = SystemAmbient::new().now();
        Record {
            id: place.id,
            operation: OperationId::from(Uuid::nil()),
            scope: place.scope.clone(),
            key: Some(place.name.clone()),
            fingerprint: Fingerprint::of_parts(&[b"charter"]),
            sketch: Sketch::default(),
            state: State::Completed { outcome, retained },
            owner: OwnerToken::from_bytes(self.writer.into_bytes()),
            fence: Fence(self.term),
            attempts: 1,
            taken_over: false,
            created_at: now,
            updated_at: now,
        }
    }

    fn text(&self, side: Side) -> Bytes {
        let phase = match self.phase {
            Phase::Serving => "serving",
            Phase::Closing => "closing",
        };
        let troubled: Vec<_> = self.troubled.iter().map(Uuid::to_string).collect();
        let text = format!(
            "side={} authority={} reign={} phase={phase} lease_ms={} copied={} troubled={}",
            side.name(),
            self.authority.name(),
            self.reign.0,
            self.lease.as_millis(),
            self.copied,
            troubled.join(","),
        );
        Bytes::from(text)
    }

    /// Reads what one of the two stores has. That a store is on the side that it says is
    /// looked at here: with the two exchanged the wrong one would decide.
    pub(super) fn read(record: &Record, side: Side) -> Result<Self, DualProblem> {
        let outcome = record.state.outcome().filter(|outcome| outcome.tag == TAG);
        let text = outcome.and_then(|outcome| std::str::from_utf8(&outcome.bytes).ok());
        let words = Words(text.ok_or(DualProblem::Unreadable)?);
        let written_for = Side::named(words.get("side")?).ok_or(DualProblem::Unreadable)?;
        if written_for != side {
            return Err(DualProblem::Exchanged);
        }
        Ok(Self {
            term: record.fence.0,
            authority: Side::named(words.get("authority")?).ok_or(DualProblem::Unreadable)?,
            reign: Reign(words.parse("reign")?),
            phase: match words.get("phase")? {
                "serving" => Phase::Serving,
                "closing" => Phase::Closing,
                _ => return Err(DualProblem::Unreadable),
            },
            lease: Duration::from_millis(words.parse("lease_ms")?),
            copied: words.parse("copied")?,
            troubled: words.troubled()?,
            writer: Uuid::from_bytes(*record.owner.expose()),
        })
    }
}

/// `name=value` words.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn get(&self, name: &str) -> Result<&'a str, DualProblem> {
        let mut words = self.0.split(' ').filter_map(|word| word.split_once('='));
        words.find(|(it, _)| *it == name).map(|(_, value)| value).ok_or(DualProblem::Unreadable)
    }

    fn parse<T: std::str::FromStr>(&self, name: &str) -> Result<T, DualProblem> {
        self.get(name)?.parse().map_err(|_| DualProblem::Unreadable)
    }

    fn troubled(&self) -> Result<BTreeSet<Uuid>, DualProblem> {
        let notes = self.get("troubled")?.split(',').filter(|note| !note.is_empty());
        notes.map(|note| note.parse().map_err(|_| DualProblem::Unreadable)).collect()
    }
}

/// Where the charter of a move is kept.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) name: Key,
    pub(super) scope: Scope,
    pub(super) id: RecordId,
}

impl Place {
    /// Of the move of this name, for one of its purposes.
    pub(super) fn new(name: &str, purpose: &str) -> Result<Self, OpenError> {
        let name = Key::new(name).map_err(OpenError::Name)?;
        let scope = Scope::new(MOVING[0], MOVING[1], purpose).map_err(OpenError::Scope)?;
        let id = Identity::unkeyed().record_id(&scope, &name);
        Ok(Self { name, scope, id })
    }
}

pub(super) fn draw() -> Uuid {
    Uuid::from_u128(rand::random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charter_comes_back_from_its_record_and_tells_the_sides_apart() {
        let place = Place::new("move", "charter").unwrap();
        let charter = Charter {
            authority: Side::New,
            phase: Phase::Closing,
            copied: true,
            troubled: [draw(), draw()].into(),
            ..Charter::first(Duration::from_millis(700)).next()
        };
        let record = charter.record(&place, Side::New);
        assert_eq!(Charter::read(&record, Side::New), Ok(charter));
        assert_eq!(Charter::read(&record, Side::Old), Err(DualProblem::Exchanged));
        let other = Record { state: State::Unknown, ..record };
        assert_eq!(Charter::read(&other, Side::New), Err(DualProblem::Unreadable));
    }
}
