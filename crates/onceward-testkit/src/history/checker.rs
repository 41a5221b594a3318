//! Checks the invariants from outside: it uses nothing of the state machine.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use onceward_core::{Fence, INTERNAL_TENANT, Record, RecordId, StateName, Timestamp};

use super::{Answer, Attempt, Event, Outcome, Position, StoreCall, Transition};

/// The invariants of `docs/guarantees.md`, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Invariant {
    /// At most one effect per record and epoch, and none in an epoch that ended because nothing
    /// happened.
    I1OneEffect,
    /// All final answers of an epoch agree.
    I2OneOutcome,
    /// No replay to another request or scope.
    I3NoForeignReplay,
    /// Fences strictly increase.
    I4FencesIncrease,
    /// A renewal, settlement or evidence that is applied has the current fence.
    I5HolderOnly,
    /// Only legal transitions; completed is final until the retention ends.
    I6LegalTransitions,
    /// Effects begin after an acknowledged claim.
    I7ClaimFirst,
    /// A success that is reported as stored was stored before the answer.
    I8DurableFirst,
    /// A refused attempt had no effect.
    I9RejectedWithoutEffect,
    /// "In progress" means that a live lease existed.
    I10BusyMeansLease,
    /// Unknown is left only by its holder or by evidence.
    I11UnknownStays,
    /// After the faults, nothing is in progress without an owner. Where lapsed claims may be
    /// taken over, no record becomes unknown, because an unknown record is not taken over. Where
    /// a reconciler runs, nothing stays unknown.
    I12Liveness,
    /// A claim is never seen absent before its time.
    I13NeverLost,
    /// Nothing is deleted before its time.
    I14NotEarly,
    /// Each question of a reconciler has a lease of its own, so that one node asks at a time.
    I16OneQuestion,
}

/// An invariant that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// Position in the history.
    pub position: Position,
    /// Description for people.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at event {}: {}", self.invariant, self.position, self.detail)
    }
}

/// Settings of a run that change what is legal in it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expectations {
    /// Lapsed claims may be taken over.
    pub takeover: bool,
    /// A reconciler runs, whose resolver knows every operation after the faults.
    pub reconciler: bool,
    /// The program under test does not claim at the recorded store, so its claims are not
    /// checked.
    pub claims_elsewhere: bool,
}

/// Checks a finished run. `left` are the store's records at the end, at its time `now`, after
/// every lease has had time to lapse.
pub fn check(
    events: &[Event],
    left: &[Record],
    now: Timestamp,
    expectations: Expectations,
) -> Vec<Violation> {
    let mut checker = Checker {
        violations: Vec::new(),
        expectations,
        epochs: HashMap::new(),
        released: HashSet::new(),
    };
    checker.transitions(events);
    checker.effects(events);
    checker.answers(events);
    checker.questions(events);
    checker.left(events.len(), left, now);
    checker.violations
}

/// Operation name of the records whose leases reconcilers ask under.
const QUESTION: &str = "reconcile";

struct Checker {
    violations: Vec<Violation>,
    expectations: Expectations,
    /// The epoch and the position of every grant.
    epochs: HashMap<(RecordId, Fence), (u64, Position)>,
    /// Epochs that ended because nothing happened.
    released: HashSet<(RecordId, u64)>,
}

/// State of one record while its transitions are read.
#[derive(Default)]
struct Track {
    last: Option<Record>,
    last_fence: Option<Fence>,
    epoch: u64,
}

impl Checker {
    fn violated(&mut self, invariant: Invariant, position: Position, detail: String) {
        self.violations.push(Violation { invariant, position, detail });
    }

    fn transitions(&mut self, events: &[Event]) {
        let mut tracks: BTreeMap<RecordId, Track> = BTreeMap::new();
        for (position, event) in events.iter().enumerate() {
            let Event::Transition(transition) = event else { continue };
            let track = tracks.entry(transition.record).or_default();
            self.continuity(position, transition, track);
            self.grant(position, transition, track);
            self.holder(position, transition);
            self.legality(position, transition);
            let taken_over = self.may_be_taken_over(transition);
            if taken_over && transition.stored_after() == Some(StateName::Unknown) {
                let detail = format!("{transition:?} cannot be taken over any more");
                self.violated(Invariant::I12Liveness, position, detail);
            }
            if transition.stored_after() == Some(StateName::Released) {
                self.released.insert((transition.record, track.epoch));
            }
            track.last.clone_from(&transition.after);
        }
    }

    /// True if lapsed claims of the record may be taken over. Those of internal records may.
    fn may_be_taken_over(&self, transition: &Transition) -> bool {
        self.expectations.takeover || transition.is_internal()
    }

    /// I13: the record is as the last call left it.
    fn continuity(&mut self, position: Position, transition: &Transition, track: &Track) {
        if transition.before != track.last {
            let detail = format!("{:?} changed between calls", transition.record);
            self.violated(Invariant::I13NeverLost, position, detail);
        }
    }

    /// I4, and the epoch of each fence.
    fn grant(&mut self, position: Position, transition: &Transition, track: &mut Track) {
        let Some(granted) = transition.granted() else { return };
        if track.last_fence.is_some_and(|last| granted.fence <= last) {
            let detail = format!("{} after {:?}", granted.fence, track.last_fence);
            self.violated(Invariant::I4FencesIncrease, position, detail);
        }
        let taken_over = transition.stored_before() == Some(StateName::Running);
        track.epoch += u64::from(!taken_over);
        track.last_fence = Some(granted.fence);
        self.epochs.insert((transition.record, granted.fence), (track.epoch, position));
    }

    /// I5.
    fn holder(&mut self, position: Position, transition: &Transition) {
        let record = transition.before.as_ref();
        let (applied, current) = match transition.call {
            StoreCall::Renew { holder, applied } | StoreCall::Settle { holder, applied } => {
                (applied, record.is_some_and(|record| record.held_by(&holder)))
            }
            StoreCall::Resolve { fence, applied } => {
                (applied, record.is_some_and(|record| record.fence == fence))
            }
            StoreCall::Claim | StoreCall::Purge => return,
        };
        if applied && !current {
            let fence = record.map(|record| record.fence);
            let detail = format!("{:?} was applied to fence {fence:?}", transition.call);
            self.violated(Invariant::I5HolderOnly, position, detail);
        }
    }

    /// I6, I11 and I14: the legal transitions of each call.
    fn legality(&mut self, position: Position, transition: &Transition) {
        if transition.before == transition.after {
            return;
        }
        use StateName::{Completed, Expired, Failed, Released, Running, Unknown};
        let (stored, standing) = (transition.stored_before(), transition.standing_before());
        let after = transition.stored_after();
        let lapsed = stored == Some(Running) && standing == Some(Unknown);
        let legal = match transition.call {
            StoreCall::Claim => match after {
                Some(Running) => {
                    standing.is_none()
                        || stored == Some(Released)
                        || lapsed && self.may_be_taken_over(transition)
                }
                Some(Unknown) => lapsed,
                _ => false,
            },
            StoreCall::Renew { applied: true, .. } => {
                standing == Some(Running) && after == Some(Running)
            }
            StoreCall::Settle { applied: true, .. } => {
                let handed_back = transition.before.as_ref().is_some_and(|it| it.taken_over)
                    && standing == Some(Running)
                    && after == Some(Running);
                matches!(stored, Some(Running | Unknown))
                    && matches!(after, Some(Completed | Failed | Unknown | Released))
                    || handed_back
            }
            StoreCall::Resolve { applied: true, .. } => {
                standing == Some(Unknown) && matches!(after, Some(Completed | Released))
            }
            StoreCall::Renew { .. } | StoreCall::Settle { .. } | StoreCall::Resolve { .. } => false,
            StoreCall::Purge => match standing {
                None => after.is_none(),
                Some(Expired) => after == Some(Expired),
                Some(_) => false,
            },
        };
        if legal {
            return;
        }
        let invariant = match transition.call {
            StoreCall::Purge => Invariant::I14NotEarly,
            _ if standing == Some(Unknown) => Invariant::I11UnknownStays,
            _ => Invariant::I6LegalTransitions,
        };
        let detail = format!("{:?}: {stored:?} ({standing:?}) became {after:?}", transition.call);
        self.violated(invariant, position, detail);
    }

    /// I1 and I7.
    fn effects(&mut self, events: &[Event]) {
        let mut seen: HashMap<(RecordId, u64), Attempt> = HashMap::new();
        for (position, event) in events.iter().enumerate() {
            let Event::Effect { record, fence, attempt } = event else { continue };
            let granted = self.epochs.get(&(*record, *fence)).copied();
            if !self.expectations.claims_elsewhere && granted.is_none_or(|(_, at)| at > position) {
                let detail = format!("{attempt:?} had an effect without a claim of {fence}");
                self.violated(Invariant::I7ClaimFirst, position, detail);
            }
            let epoch = granted.map_or(0, |(epoch, _)| epoch);
            if self.released.contains(&(*record, epoch)) {
                let detail = format!("{attempt:?} had an effect where nothing happened");
                self.violated(Invariant::I1OneEffect, position, detail);
            }
            if let Some(first) = seen.insert((*record, epoch), *attempt) {
                let detail = format!("{first:?} and {attempt:?} both had an effect on {record:?}");
                self.violated(Invariant::I1OneEffect, position, detail);
            }
        }
    }

    /// I2, I3, I8, I9 and I10.
    fn answers(&mut self, events: &[Event]) {
        let mut finals: HashMap<(RecordId, u64), Outcome> = HashMap::new();
        let mut sent: HashMap<Attempt, Position> = HashMap::new();
        for (position, event) in events.iter().enumerate() {
            if let Event::Sent { attempt, .. } = event {
                sent.insert(*attempt, position);
            }
            let Event::Answered { attempt, record, fingerprint, answer } = event else { continue };
            let (result, durable) = match answer {
                Answer::First { result, durable } => (result, *durable),
                Answer::Replay(result) => (result, false),
                turned_away => {
                    self.turned_away(events, position, *attempt, turned_away);
                    let from = sent.get(attempt).copied().unwrap_or(0);
                    self.busy(&events[from..=position], position, *record, turned_away);
                    continue;
                }
            };
            if result.record != *record || result.fingerprint != *fingerprint {
                let detail = format!("{attempt:?} got the outcome of another request");
                self.violated(Invariant::I3NoForeignReplay, position, detail);
            }
            let epoch = self.epochs.get(&(*record, result.fence)).map_or(0, |(epoch, _)| *epoch);
            let first = finals.entry((*record, epoch)).or_insert_with(|| result.clone());
            if first != result {
                let detail = format!("{attempt:?} got {result:?}, others {first:?}");
                self.violated(Invariant::I2OneOutcome, position, detail);
            }
            if durable && !stored(&events[..position], result) {
                let detail = format!("{attempt:?} was told that {result:?} is stored");
                self.violated(Invariant::I8DurableFirst, position, detail);
            }
        }
    }

    /// I16, by counting: the lease of a question is not visible from outside.
    fn questions(&mut self, events: &[Event]) {
        let (mut leases, mut questions) = (0, 0);
        for (position, event) in events.iter().enumerate() {
            match event {
                Event::Transition(it) => {
                    let granted = it.granted().filter(|_| it.is_internal());
                    leases += u64::from(granted.is_some_and(|it| it.scope.operation() == QUESTION));
                }
                Event::Asked { record, fence } => {
                    questions += 1;
                    if questions > leases {
                        let detail = format!("{record:?} was asked about under {fence}");
                        self.violated(Invariant::I16OneQuestion, position, detail);
                    }
                }
                _ => {}
            }
        }
    }

    /// I12 of the records at the end.
    fn left(&mut self, end: Position, left: &[Record], now: Timestamp) {
        for record in left {
            let detail = match record.standing(now) {
                Some(StateName::Running) => format!("{:?} runs on", record.id),
                Some(StateName::Unknown) if self.stays_unknown(record) => {
                    format!("{:?} stays unknown", record.id)
                }
                _ => continue,
            };
            self.violated(Invariant::I12Liveness, end, detail);
        }
    }

    /// True if the reconciler should have settled it. Internal records are taken over instead.
    fn stays_unknown(&self, record: &Record) -> bool {
        self.expectations.reconciler && record.scope.tenant() != INTERNAL_TENANT
    }

    /// I9.
    fn turned_away(&mut self, events: &[Event], position: Position, who: Attempt, answer: &Answer) {
        let had_effect = events
            .iter()
            .any(|event| matches!(event, Event::Effect { attempt, .. } if *attempt == who));
        if had_effect && *answer != Answer::NoWord {
            let detail = format!("{who:?} had an effect and was told {answer:?}");
            self.violated(Invariant::I9RejectedWithoutEffect, position, detail);
        }
    }

    /// I10.
    fn busy(&mut self, window: &[Event], position: Position, who: RecordId, answer: &Answer) {
        if *answer != Answer::Running || self.expectations.claims_elsewhere {
            return;
        }
        let lease_existed = window.iter().any(|event| match event {
            Event::Transition(it) if it.record == who => {
                let running = |record: &Record| record.standing(it.at) == Some(StateName::Running);
                it.before.as_ref().is_some_and(running) || it.after.as_ref().is_some_and(running)
            }
            _ => false,
        });
        if !lease_existed {
            let detail = format!("{who:?} was called busy without a lease");
            self.violated(Invariant::I10BusyMeansLease, position, detail);
        }
    }
}

fn stored(events: &[Event], result: &Outcome) -> bool {
    events.iter().any(|event| match event {
        Event::Transition(transition) => {
            let stored = transition.after.as_ref().and_then(|record| record.state.outcome());
            transition.record == result.record
                && stored.is_some_and(|outcome| outcome.bytes == result.bytes)
        }
        _ => false,
    })
}
