//! The one truth table: what a record answers to an event, and what becomes of it.
//!
//! Everything here is pure: no I/O, no clock, no randomness. The memory and embedded
//! stores call these functions under their lock; stores with a language of their own
//! restate them, and the testkit compares the two. `docs/state-machine.md` draws the
//! edges, and a test holds the drawing and this file together.

use std::time::Duration;

use super::{
    Claim, ClaimRequest, Fenced, Imported, InvalidateRequest, Lapsed, Lease, RenewRequest,
    ResolveRequest, SettleRequest, Settlement, Unpurged, Verdict,
};
use crate::clock::Timestamp;
use crate::intent::{Fingerprint, Sketch};
use crate::record::{
    Ended, Fence, Record, RecordVersion, Replay, Retained, Retention, State, StateName,
    UnknownCause,
};

/// One step of the machine: the answer, and what to write.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Step<A> {
    /// Answer to the caller.
    pub answer: A,
    /// Next state of the record.
    pub next: Next,
}

/// Next state of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing is written.
    Same,
    /// The record is written so.
    Put(Box<Record>),
    /// Only `state` and `updated_at` change.
    Stand(State, Timestamp),
    /// The record is removed.
    Remove,
}

impl Next {
    /// The record from now on, for stores that write whole records. `None` if nothing is written,
    /// `Some(None)` if the record is removed.
    pub fn written(self, old: Option<&Record>) -> Option<Option<Box<Record>>> {
        match self {
            Self::Same => None,
            Self::Put(record) => Some(Some(record)),
            Self::Stand(state, updated_at) => {
                old.map(|old| Some(Box::new(Record { state, updated_at, ..old.clone() })))
            }
            Self::Remove => Some(None),
        }
    }
}

impl<A> Step<A> {
    fn same(answer: A) -> Self {
        Self { answer, next: Next::Same }
    }

    fn put(answer: A, record: Record) -> Self {
        Self { answer, next: Next::Put(Box::new(record)) }
    }

    fn stand(answer: A, state: State, now: Timestamp) -> Self {
        Self { answer, next: Next::Stand(state, now) }
    }
}

/// A caller asks for the right to run.
///
/// A new grant's fence lies above `forgotten`, the highest fence of all records that the
/// store has removed, and is at least the store's time: where a store does not keep the
/// first (and passes zero), the second does, as long as its clock is not set back.
pub fn claim(
    record: Option<&Record>,
    request: &ClaimRequest,
    forgotten: Fence,
    now: Timestamp,
) -> Step<Claim> {
    let grant = |old| grant(old, request, forgotten, now);
    let Some(record) = record else { return grant(None) };
    let operation = record.operation;
    // A duplicate that arrives after its grant has ended: its sender no longer waits for it.
    let late = Claim::Running { operation, lease_left: Duration::ZERO };
    let own = record.owner == request.owner;
    let standing = match record.standing(now) {
        None if request.unpurged == Unpurged::Keep => return Step::same(Claim::Expired),
        None => return grant(Some(record)),
        Some(StateName::Expired) => return Step::same(Claim::Expired),
        Some(StateName::Released) if own => return Step::same(late),
        Some(StateName::Released) => return grant(Some(record)),
        Some(standing) => standing,
    };
    if record.fingerprint != request.fingerprint {
        return Step::same(Claim::Mismatch { first: record.sketch.clone() });
    }
    match (&record.state, standing) {
        (State::Running { lease_until }, StateName::Running) if own => {
            let lease = Lease { fence: record.fence, until: *lease_until };
            Step::same(Claim::Granted { lease, operation, attempt: record.attempts })
        }
        (State::Running { lease_until }, StateName::Running) => {
            Step::same(Claim::Running { operation, lease_left: now.until(*lease_until) })
        }
        (State::Running { .. }, _) if request.lapsed == Lapsed::Takeover && own => Step::same(late),
        (State::Running { .. }, _) if request.lapsed == Lapsed::Takeover => grant(Some(record)),
        (State::Running { .. }, _) => {
            let lapsed = State::Unknown { cause: UnknownCause::Lapsed };
            Step::stand(Claim::Unknown { operation }, lapsed, now)
        }
        (State::Completed { outcome, .. }, _) => {
            Step::same(Claim::Completed { operation, outcome: outcome.clone() })
        }
        (State::Failed { outcome, .. }, _) => {
            Step::same(Claim::Failed { operation, outcome: outcome.clone() })
        }
        (State::Unknown { .. } | State::Released { .. } | State::Expired { .. }, _) => {
            Step::same(Claim::Unknown { operation })
        }
    }
}

/// Returns the answer that [`claim`] gives for the same request on a settled record, without
/// writing anything. `None` in every other case.
pub fn recall(record: &Record, fingerprint: &Fingerprint, now: Timestamp) -> Option<Replay> {
    let ended = match record.standing(now)? {
        StateName::Completed => Ended::Completed,
        StateName::Failed => Ended::Failed,
        _ => return None,
    };
    let outcome = record.state.outcome().filter(|_| record.fingerprint == *fingerprint)?;
    Some(Replay { operation: record.operation, ended, outcome: outcome.clone() })
}

/// Grants the claim: on a fresh record, or on one that is free again or taken over.
fn grant(
    old: Option<&Record>,
    request: &ClaimRequest,
    forgotten: Fence,
    now: Timestamp,
) -> Step<Claim> {
    let above = old.map_or(forgotten, |old| old.fence);
    let fence = Fence((above.0 + 1).max(now.as_millis()));
    let until = now + request.lease;
    // The same intent goes on under its name, so that downstream systems recognise it.
    let same =
        old.filter(|old| old.fingerprint == request.fingerprint && old.standing(now).is_some());
    let record = Record {
        id: request.id,
        operation: same.map_or(request.operation, |old| old.operation),
        scope: request.scope.clone(),
        key: request.key.clone(),
        fingerprint: request.fingerprint,
        sketch: request.sketch.clone(),
        path: request.path.clone(),
        state: State::Running { lease_until: until },
        owner: request.owner,
        fence,
        attempts: same.map_or(0, |old| old.attempts) + 1,
        taken_over: old.is_some_and(|old| old.state.name() == StateName::Running),
        created_at: same.map_or(now, |old| old.created_at),
        updated_at: now,
    };
    let answer = Claim::Granted {
        lease: Lease { fence, until },
        operation: record.operation,
        attempt: record.attempts,
    };
    Step::put(answer, record)
}

/// The holder of a lease asks for more time.
pub fn renew(
    record: Option<&Record>,
    request: &RenewRequest,
    now: Timestamp,
) -> Step<Fenced<Lease>> {
    let Some(record) = present(record, now) else { return Step::same(Fenced::Missing) };
    let State::Running { lease_until } = record.state else { return Step::same(Fenced::Stale) };
    // Too late changes nothing: written down as unknown, it could not be taken over any more.
    if !record.held_by(&request.holder) || now >= lease_until {
        return Step::same(Fenced::Stale);
    }
    let until = lease_until.max(now + request.lease);
    let renewed = Fenced::Applied(Lease { fence: record.fence, until });
    Step::stand(renewed, State::Running { lease_until: until }, now)
}

/// The holder of a lease settles the operation.
pub fn settle(
    record: Option<&Record>,
    request: &SettleRequest,
    now: Timestamp,
) -> Step<Fenced<()>> {
    let Some(record) = present(record, now) else { return Step::same(Fenced::Missing) };
    if !record.held_by(&request.holder) {
        return Step::same(Fenced::Stale);
    }
    if record.taken_over && request.settlement == Settlement::Release {
        return hand_back(record, now);
    }
    decide(record, &request.settlement, request.retention, now)
}

/// The owner that took over did nothing, but its predecessor may have acted: the intent stands
/// as before the takeover.
fn hand_back(record: &Record, now: Timestamp) -> Step<Fenced<()>> {
    match record.standing(now) {
        Some(StateName::Running) => {
            let lapsed = State::Running { lease_until: now };
            Step::stand(Fenced::Applied(()), lapsed, now)
        }
        Some(StateName::Unknown) => Step::same(Fenced::Applied(())),
        _ => Step::same(Fenced::Stale),
    }
}

/// Evidence arrives about an operation whose outcome is unknown.
pub fn resolve(
    record: Option<&Record>,
    request: &ResolveRequest,
    now: Timestamp,
) -> Step<Fenced<()>> {
    let Some(record) = present(record, now) else { return Step::same(Fenced::Missing) };
    let standing = record.standing(now);
    if record.fence != request.fence || standing == Some(StateName::Running) {
        return Step::same(Fenced::Stale);
    }
    let settlement = match &request.verdict {
        Verdict::Happened(outcome) => Settlement::Complete(outcome.clone()),
        Verdict::DidNotHappen => Settlement::Release,
        Verdict::StillUnknown if standing == Some(StateName::Unknown) => {
            return Step::same(Fenced::Applied(()));
        }
        Verdict::StillUnknown => return Step::same(Fenced::Stale),
    };
    decide(record, &settlement, request.retention, now)
}

/// A change of a settled record is later than the settlement by at least this, so that no copy of
/// the record from before it can replace it.
const LATER: Duration = Duration::from_millis(1);

/// A correction of data has removed the effect: the content of the outcome is dropped.
pub fn invalidate(
    record: Option<&Record>,
    request: &InvalidateRequest,
    now: Timestamp,
) -> Step<Fenced<()>> {
    let Some(record) = present(record, now) else { return Step::same(Fenced::Missing) };
    if record.fence != request.fence || record.standing(now) == Some(StateName::Expired) {
        return Step::same(Fenced::Stale);
    }
    let state = match &record.state {
        State::Completed { outcome, .. } | State::Failed { outcome, .. }
            if outcome.is_invalidated() =>
        {
            return Step::same(Fenced::Applied(()));
        }
        State::Completed { outcome, retained } => {
            State::Completed { outcome: outcome.invalidated(), retained: *retained }
        }
        State::Failed { outcome, retained } => {
            State::Failed { outcome: outcome.invalidated(), retained: *retained }
        }
        State::Running { .. }
        | State::Released { .. }
        | State::Unknown { .. }
        | State::Expired { .. } => return Step::same(Fenced::Stale),
    };
    Step::stand(Fenced::Applied(()), state, now.max(record.updated_at + LATER))
}

/// Writes a settlement into a record that is still open, or confirms the same one.
fn decide(
    record: &Record,
    settlement: &Settlement,
    retention: Retention,
    now: Timestamp,
) -> Step<Fenced<()>> {
    if record.standing(now) == Some(StateName::Expired) {
        return Step::same(Fenced::Stale);
    }
    let retained = retention.from(now);
    // An operation that did not happen needs no tombstone: there is nothing to look up later.
    let released = Retained { tombstone_until: retained.until, ..retained };
    match (&record.state, settlement) {
        // The first cause stays, whatever the second one is.
        (State::Unknown { .. }, Settlement::Unknown(_))
        | (State::Released { .. }, Settlement::Release) => Step::same(Fenced::Applied(())),
        (State::Completed { outcome, .. }, Settlement::Complete(again))
        | (State::Failed { outcome, .. }, Settlement::Fail(again))
            if outcome == again =>
        {
            Step::same(Fenced::Applied(()))
        }
        (State::Running { .. } | State::Unknown { .. }, settlement) => {
            let state = match settlement.clone() {
                Settlement::Complete(outcome) => State::Completed { outcome, retained },
                Settlement::Fail(outcome) => State::Failed { outcome, retained },
                Settlement::Unknown(cause) => State::Unknown { cause },
                Settlement::Release => State::Released { retained: released },
            };
            Step::stand(Fenced::Applied(()), state, now)
        }
        _ => Step::same(Fenced::Stale),
    }
}

/// Time passes: a record past its retention is removed, in two steps where a tombstone is kept.
pub fn sweep(record: &Record, now: Timestamp) -> Next {
    match (record.standing(now), record.state.retained()) {
        (None, _) => Next::Remove,
        (Some(StateName::Expired), Some(retained)) if record.state.name() != StateName::Expired => {
            // `updated_at` stays: nothing about the operation changed.
            let (state, sketch) = (State::Expired { retained }, Sketch::default());
            Next::Put(Box::new(Record { state, sketch, path: None, ..record.clone() }))
        }
        _ => Next::Same,
    }
}

/// A record was archived: it is swept if that is still the version stored.
pub fn sweep_version(record: &Record, version: &RecordVersion, now: Timestamp) -> Next {
    if record.version() == *version { sweep(record, now) } else { Next::Same }
}

/// A record comes from another store.
pub fn import(stored: Option<&Record>, other: &Record) -> Step<Imported> {
    match stored {
        Some(stored) if !is_later(other, stored) => Step::same(Imported::Kept),
        _ => Step::put(Imported::Written, other.clone()),
    }
}

/// Returns true if a record is later than another one with the same id, from any store.
///
/// The one with the higher fence is later. Under one fence it is the one that is further: running,
/// handed back, unknown, settled, a tombstone; of two that run or are settled, the one that
/// changed last. In one store a settled record changes under its fence only by being invalidated,
/// which is later. In two stores it may have been settled twice, where one of them had ceased to
/// decide.
pub fn is_later(record: &Record, than: &Record) -> bool {
    how_far(record) > how_far(than)
}

/// Progress of a record, compared from left to right.
fn how_far(record: &Record) -> (Fence, u8, Timestamp, Timestamp) {
    let none = Timestamp::default();
    let (progress, updated_at, lease_until) = match record.state {
        State::Running { lease_until } if lease_until > record.updated_at => {
            (0, record.updated_at, lease_until)
        }
        // Only a hand-back ends a lease at the moment at which it is written.
        State::Running { .. } => (1, none, none),
        State::Unknown { .. } => (2, none, none),
        State::Completed { .. } | State::Failed { .. } | State::Released { .. } => {
            (3, record.updated_at, none)
        }
        State::Expired { .. } => (4, record.updated_at, none),
    };
    (record.fence, progress, updated_at, lease_until)
}

/// A record past its time is absent, whether or not it was swept already.
fn present(record: Option<&Record>, now: Timestamp) -> Option<&Record> {
    record.filter(|record| record.standing(now).is_some())
}
