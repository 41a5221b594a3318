//! The authority record: which store decides, written into both stores.
//!
//! It is an ordinary record, so that every store can keep it. Its fence is the revision, and the
//! rule of [`import`](onceward_core::StoreAdmin::import) makes writing it a compare-and-set: of
//! all processes that have read revision *n* and write *n* + 1, one succeeds and the others are
//! told so. (Stored names keep an earlier word for it, *charter*.)

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

/// Retention of the record: longer than any move, so that late processes find it. The latest
/// time that Redis scripts can represent.
const FOR_EVER: Timestamp = Timestamp::from_millis((1 << 44) - 1);
const TAG: Tag = Tag::from_static("onceward-charter/v1");

/// One of the two stores of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The store to move away from.
    Old,
    /// The store to move to.
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

/// Whether calls may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// A switchover is announced: calls wait.
    Closing,
}

/// One uninterrupted time as the authority, named by the revision in which it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Term(pub(super) u64);

/// The state of a move, the same for all processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AuthorityRecord {
    /// Counts the changes of this record.
    pub(super) revision: u64,
    pub(super) authority: Side,
    pub(super) term: Term,
    pub(super) phase: Phase,
    /// How long a process may rely on a read of this record: one value for all processes.
    pub(super) lease: Duration,
    /// True once the follower was given all records.
    pub(super) copied: bool,
    /// Lag markers of the processes whose records the follower lacks.
    pub(super) lag_markers: BTreeSet<Uuid>,
    /// Random for each revision, so that a writer recognises its own.
    pub(super) writer: Uuid,
}

impl AuthorityRecord {
    /// The first revision of a new move.
    pub(super) fn first(lease: Duration) -> Self {
        Self {
            revision: 1,
            authority: Side::Old,
            term: Term(1),
            phase: Phase::Serving,
            lease,
            copied: false,
            lag_markers: BTreeSet::new(),
            writer: random_id(),
        }
    }

    /// The next revision, with nothing else changed.
    pub(super) fn next(&self) -> Self {
        Self { revision: self.revision + 1, writer: random_id(), ..self.clone() }
    }

    /// Encodes it as the record of one of the two stores.
    pub(super) fn to_record(&self, reserved: &ReservedRecord, side: Side) -> Record {
        let retained = Retained { until: FOR_EVER, tombstone_until: FOR_EVER };
        let outcome = Outcome::whole(TAG, self.text(side));
        // For people who look at the record: no decision depends on these times.
        let now = SystemAmbient::new().now();
        Record {
            id: reserved.id,
            operation: OperationId::from(Uuid::nil()),
            scope: reserved.scope.clone(),
            key: Some(reserved.key.clone()),
            fingerprint: Fingerprint::of_parts(&[b"charter"]),
            sketch: Sketch::default(),
            path: None,
            state: State::Completed { outcome, retained },
            owner: OwnerToken::from_bytes(self.writer.into_bytes()),
            fence: Fence(self.revision),
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
        let lag_markers: Vec<_> = self.lag_markers.iter().map(Uuid::to_string).collect();
        let text = format!(
            "side={} authority={} reign={} phase={phase} lease_ms={} copied={} troubled={}",
            side.name(),
            self.authority.name(),
            self.term.0,
            self.lease.as_millis(),
            self.copied,
            lag_markers.join(","),
        );
        Bytes::from(text)
    }

    /// Decodes the record of one of the two stores. A record that was written for the other side
    /// is refused: with the stores swapped, the wrong one would decide.
    pub(super) fn read(record: &Record, side: Side) -> Result<Self, DualProblem> {
        let outcome = record.state.outcome().filter(|outcome| outcome.tag == TAG);
        let text = outcome.and_then(|outcome| std::str::from_utf8(&outcome.bytes).ok());
        let fields = Fields(text.ok_or(DualProblem::Unreadable)?);
        let written_for = Side::named(fields.get("side")?).ok_or(DualProblem::Unreadable)?;
        if written_for != side {
            return Err(DualProblem::Swapped);
        }
        Ok(Self {
            revision: record.fence.0,
            authority: Side::named(fields.get("authority")?).ok_or(DualProblem::Unreadable)?,
            term: Term(fields.parse("reign")?),
            phase: match fields.get("phase")? {
                "serving" => Phase::Serving,
                "closing" => Phase::Closing,
                _ => return Err(DualProblem::Unreadable),
            },
            lease: Duration::from_millis(fields.parse("lease_ms")?),
            copied: fields.parse("copied")?,
            lag_markers: fields.lag_markers()?,
            writer: Uuid::from_bytes(*record.owner.expose()),
        })
    }
}

/// `name=value` pairs, separated by spaces.
struct Fields<'a>(&'a str);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Result<&'a str, DualProblem> {
        let mut fields = self.0.split(' ').filter_map(|field| field.split_once('='));
        fields.find(|(it, _)| *it == name).map(|(_, value)| value).ok_or(DualProblem::Unreadable)
    }

    fn parse<T: std::str::FromStr>(&self, name: &str) -> Result<T, DualProblem> {
        self.get(name)?.parse().map_err(|_| DualProblem::Unreadable)
    }

    fn lag_markers(&self) -> Result<BTreeSet<Uuid>, DualProblem> {
        let markers = self.get("troubled")?.split(',').filter(|marker| !marker.is_empty());
        markers.map(|marker| marker.parse().map_err(|_| DualProblem::Unreadable)).collect()
    }
}

/// A record that a move keeps for itself, under its own name.
#[derive(Debug, Clone)]
pub(super) struct ReservedRecord {
    pub(super) key: Key,
    pub(super) scope: Scope,
    pub(super) id: RecordId,
}

impl ReservedRecord {
    /// `purpose` tells the records of one move apart.
    pub(super) fn new(name: &str, purpose: &str) -> Result<Self, OpenError> {
        let key = Key::new(name).map_err(OpenError::Name)?;
        let scope = Scope::new(MOVING[0], MOVING[1], purpose).map_err(OpenError::Scope)?;
        let id = Identity::unkeyed().record_id(&scope, &key);
        Ok(Self { key, scope, id })
    }
}

pub(super) fn random_id() -> Uuid {
    Uuid::from_u128(rand::random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_record_is_read_back_and_tells_the_sides_apart() {
        let reserved = ReservedRecord::new("move", "charter").unwrap();
        let written = AuthorityRecord {
            authority: Side::New,
            phase: Phase::Closing,
            copied: true,
            lag_markers: [random_id(), random_id()].into(),
            ..AuthorityRecord::first(Duration::from_millis(700)).next()
        };
        let record = written.to_record(&reserved, Side::New);
        assert_eq!(AuthorityRecord::read(&record, Side::New), Ok(written));
        assert_eq!(AuthorityRecord::read(&record, Side::Old), Err(DualProblem::Swapped));
        let cause = onceward_core::UnknownCause::Lapsed;
        let other = Record { state: State::Unknown { cause }, ..record };
        assert_eq!(AuthorityRecord::read(&other, Side::New), Err(DualProblem::Unreadable));
    }
}
