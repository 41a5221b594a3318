//! Statements of a process about its work, kept apart from the store and judged by the history
//! checker.
//!
//! A life is one run of the process. Time is counted in lives: odd during a life, even after it, so
//! that a lease lapses with the life that granted it. Records are compared by what the ledger can
//! know: scope, fence, state and outcome.

use std::collections::HashMap;

use onceward_core::{
    Ended, Fence, Fingerprint, Holder, OperationId, OwnerToken, Record, Retained, State, Timestamp,
    UnknownCause,
};
use onceward_testkit::history::{
    Answer, Attempt, Event, Expectations, Outcome, StoreCall, Transition, Violation, check,
};
use uuid::Uuid;

use crate::calls::{id, outcome, request, scope};

const FOR_EVER: Retained = Retained {
    until: Timestamp::from_millis(u64::MAX),
    tombstone_until: Timestamp::from_millis(u64::MAX),
};

/// One attempt at a key: the key, and the life in which it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Try(u64);

impl Try {
    pub(crate) fn new(life: u32, task: usize, number: usize) -> Self {
        Self(u64::from(life) << 40 | (task as u64) << 32 | number as u64)
    }

    pub(crate) fn owner(self) -> OwnerToken {
        OwnerToken::from_bytes(u128::from(self.0).to_le_bytes())
    }

    fn of(owner: OwnerToken) -> Self {
        Self(u128::from_le_bytes(*owner.expose()) as u64)
    }

    fn life(self) -> u64 {
        self.0 >> 40
    }

    fn while_it_lives(self) -> Timestamp {
        Timestamp::from_millis(self.life() * 2 + 1)
    }
}

/// The time after a life.
pub(crate) fn after_life(life: u64) -> Timestamp {
    Timestamp::from_millis(life * 2 + 2)
}

/// The outcome of the work under a fence: never the same twice.
pub(crate) fn body(key: &str, fence: Fence) -> String {
    format!("{} {}", fence.0, key.repeat(1 + key.len() % 3 * 50))
}

/// One statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Claiming,
    Claimed,
    Effect,
    Completing,
    Completed,
    /// Found done or unknown, with the fence and the owner of the record.
    Replayed,
    Unknown,
}

impl Word {
    const ALL: [(&'static str, Self); 7] = [
        ("claiming", Self::Claiming),
        ("claimed", Self::Claimed),
        ("effect", Self::Effect),
        ("completing", Self::Completing),
        ("completed", Self::Completed),
        ("replayed", Self::Replayed),
        ("unknown", Self::Unknown),
    ];

    /// One line, written at once, so that a kill can cut only the last one.
    pub(crate) fn line(self, key: &str, who: Try, fence: Fence, owner: OwnerToken) -> String {
        let word = Self::ALL.iter().find(|(_, word)| *word == self).map_or("", |(name, _)| name);
        format!("\n@ {word} {key} {} {} {} .\n", who.0, fence.0, Try::of(owner).0)
    }
}

/// All statements, by key.
#[derive(Debug, Default)]
pub(crate) struct Ledger(HashMap<String, Story>);

#[derive(Debug, Default)]
struct Story {
    events: Vec<Event>,
    /// The record, as far as it was reported.
    last: Option<Record>,
    /// Calls that were sent and not answered.
    asked: Vec<Asked>,
    completed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Claim(Try),
    Completion(Holder),
}

impl Ledger {
    /// Reads a line, unless the kill has cut it.
    pub(crate) fn hear(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let ["@", word, key, who, fence, owner, "."] = words[..] else { return };
        let Some((_, word)) = Word::ALL.iter().find(|(name, _)| *name == word) else { return };
        let number = |text: &str| text.parse::<u64>().unwrap();
        let (who, fence) = (Try(number(who)), Fence(number(fence)));
        let story = self.0.entry(key.to_owned()).or_default();
        story.hear(key, *word, who, fence, Try(number(owner)));
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    pub(crate) fn completed(&self) -> usize {
        self.0.values().filter(|story| story.completed).count()
    }

    pub(crate) fn unknown(&self) -> usize {
        let open = |it: &Record| it.state.is_open();
        self.0.values().filter(|story| story.last.as_ref().is_some_and(open)).count()
    }

    /// Compares a key with the store's record after a life.
    pub(crate) fn look(&mut self, key: &str, found: Option<Record>, at: Timestamp) {
        let story = self.0.entry(key.to_owned()).or_default();
        story.look(key, found.map(comparable), at);
        // A call that was not applied by now never will be.
        story.asked.clear();
    }

    /// Violations of the invariants. Each key is judged on its own, as keys are independent.
    pub(crate) fn judge(&self, now: Timestamp) -> Vec<(String, Violation)> {
        let judged = self.0.iter().flat_map(|(key, story)| {
            let left: Vec<_> = story.last.iter().cloned().collect();
            let violations = check(&story.events, &left, now, Expectations::default());
            violations.into_iter().map(|it| (key.clone(), it))
        });
        judged.collect()
    }
}

impl Story {
    fn hear(&mut self, key: &str, word: Word, who: Try, fence: Fence, owner: Try) {
        let (at, holder) = (who.while_it_lives(), Holder { owner: who.owner(), fence });
        let (attempt, record) = (Attempt(who.0), id(key));
        match word {
            Word::Claiming => {
                self.asked.push(Asked::Claim(who));
                self.events.push(Event::Sent { attempt, record });
            }
            Word::Claimed => {
                self.becomes(key, StoreCall::Claim, at, running(key, who, fence));
                self.asked.clear();
            }
            Word::Effect => self.events.push(Event::Effect { record, fence, attempt }),
            Word::Completing => self.asked.push(Asked::Completion(holder)),
            Word::Completed => {
                let call = StoreCall::Settle { holder, applied: true };
                self.becomes(key, call, at, done(key, who, fence));
                self.asked.clear();
                self.completed = true;
                let result = result(key, fence);
                self.answered(key, attempt, Answer::First { result, durable: true });
            }
            Word::Replayed => {
                self.look(key, Some(done(key, owner, fence)), at);
                self.answered(key, attempt, Answer::Replay(result(key, fence)));
            }
            Word::Unknown => {
                self.look(key, Some(unknown(key, owner, fence)), at);
                self.answered(key, attempt, Answer::Unknown);
            }
        }
    }

    fn answered(&mut self, key: &str, attempt: Attempt, answer: Answer) {
        let (record, fingerprint) = (id(key), fingerprint());
        self.events.push(Event::Answered { attempt, record, fingerprint, answer });
    }

    fn becomes(&mut self, key: &str, call: StoreCall, at: Timestamp, after: Record) {
        let before = self.last.replace(after);
        self.step(key, call, at, before);
    }

    fn step(&mut self, key: &str, call: StoreCall, at: Timestamp, before: Option<Record>) {
        let (record, after) = (id(key), self.last.clone());
        let transition = Transition { at, record, call, before, after };
        self.events.push(Event::Transition(Box::new(transition)));
    }

    /// Takes the state `found` in the store: it follows from the statements or from a call that was
    /// not answered, or else it is a violation.
    fn look(&mut self, key: &str, found: Option<Record>, at: Timestamp) {
        while self.last != found {
            let Some((call, after)) = self.explanation(key, found.as_ref(), at) else { break };
            self.becomes(key, call, at, after);
        }
        if self.last != found || !self.asked.is_empty() {
            self.last.clone_from(&found);
            self.step(key, StoreCall::Claim, at, found);
        }
    }

    /// The step from the last statement to the record in the store, if a call asked for it.
    fn explanation(
        &self,
        key: &str,
        found: Option<&Record>,
        at: Timestamp,
    ) -> Option<(StoreCall, Record)> {
        let found = found?;
        let (owner, fence) = (Try::of(found.owner), found.fence);
        let holder = Holder { owner: found.owner, fence };
        let asked = |it| self.asked.contains(&it);
        let claims = || self.asked.iter().any(|it| matches!(it, Asked::Claim(_)));
        match &self.last {
            None if asked(Asked::Claim(owner)) => {
                Some((StoreCall::Claim, running(key, owner, fence)))
            }
            Some(last) if matches!(found.state, State::Completed { .. }) => {
                let settled = last.held_by(&holder) && asked(Asked::Completion(holder));
                let call = StoreCall::Settle { holder, applied: true };
                settled.then(|| (call, done(key, owner, fence)))
            }
            // A claim found a lapsed lease.
            Some(last) if matches!(found.state, State::Unknown { .. }) && claims() => {
                let lapsed = last.held_by(&holder) && Try::of(last.owner).while_it_lives() < at;
                lapsed.then(|| (StoreCall::Claim, unknown(key, owner, fence)))
            }
            _ => None,
        }
    }
}

fn fingerprint() -> Fingerprint {
    request("any").fingerprint
}

fn result(key: &str, fence: Fence) -> Outcome {
    let bytes = body(key, fence).into_bytes();
    let (record, fingerprint) = (id(key), fingerprint());
    Outcome { record, fingerprint, fence, ended: Ended::Completed, bytes }
}

fn record(key: &str, owner: Try, fence: Fence, state: State) -> Record {
    Record {
        id: id(key),
        operation: OperationId::from(Uuid::nil()),
        scope: scope(),
        key: None,
        fingerprint: fingerprint(),
        sketch: Default::default(),
        path: None,
        state,
        owner: owner.owner(),
        fence,
        attempts: 1,
        taken_over: false,
        created_at: Timestamp::default(),
        updated_at: Timestamp::default(),
    }
}

fn running(key: &str, owner: Try, fence: Fence) -> Record {
    record(key, owner, fence, State::Running { lease_until: after_life(owner.life()) })
}

fn done(key: &str, owner: Try, fence: Fence) -> Record {
    let outcome = outcome(body(key, fence));
    record(key, owner, fence, State::Completed { outcome, retained: FOR_EVER })
}

fn unknown(key: &str, owner: Try, fence: Fence) -> Record {
    record(key, owner, fence, State::Unknown { cause: UnknownCause::Lapsed })
}

/// A stored record without the parts that the ledger cannot know.
fn comparable(found: Record) -> Record {
    let state = match found.state {
        State::Running { .. } => {
            State::Running { lease_until: after_life(Try::of(found.owner).life()) }
        }
        State::Completed { outcome, .. } => State::Completed { outcome, retained: FOR_EVER },
        other => other,
    };
    let operation = OperationId::from(Uuid::nil());
    let [created_at, updated_at] = [Timestamp::default(); 2];
    Record { operation, state, created_at, updated_at, ..found }
}

mod tests {
    use onceward_testkit::history::Invariant;

    use super::*;

    const FENCE: Fence = Fence(7);

    /// A story of one key in life 3, up to a statement.
    fn told(last: Word) -> Ledger {
        let (mut ledger, who) = (Ledger::default(), Try::new(3, 1, 9));
        for word in [Word::Claiming, Word::Claimed, Word::Effect, Word::Completing, Word::Completed]
        {
            ledger.hear(word.line("key", who, FENCE, who.owner()).trim());
            if word == last {
                break;
            }
        }
        ledger
    }

    fn who() -> Try {
        Try::new(3, 1, 9)
    }

    /// The checker's result if the store has `found` after a life.
    fn judged(mut ledger: Ledger, found: Option<Record>) -> Vec<Invariant> {
        ledger.look("key", found, after_life(3));
        let violations = ledger.judge(after_life(3));
        violations.into_iter().map(|(_, violation)| violation.invariant).collect()
    }

    #[test]
    fn what_was_told_and_what_was_only_asked_for_may_be_there() {
        let (running, done) = (|| running("key", who(), FENCE), || done("key", who(), FENCE));
        assert_eq!(judged(told(Word::Claiming), None), []);
        assert_eq!(judged(told(Word::Claiming), Some(running())), []);
        assert_eq!(judged(told(Word::Effect), Some(running())), []);
        assert_eq!(judged(told(Word::Completing), Some(running())), []);
        assert_eq!(judged(told(Word::Completing), Some(done())), []);
        assert_eq!(judged(told(Word::Completed), Some(done())), []);
    }

    #[test]
    fn what_was_told_and_is_gone_or_different_is_a_violation() {
        let lost = [Invariant::I13NeverLost];
        assert_eq!(judged(told(Word::Claimed), None), lost);
        assert_eq!(judged(told(Word::Completed), None), lost);
        assert_eq!(judged(told(Word::Completed), Some(running("key", who(), FENCE))), lost);
        assert_eq!(judged(told(Word::Claimed), Some(done("key", who(), FENCE))), lost);
        assert_eq!(judged(told(Word::Completed), Some(done("key", who(), Fence(8)))), lost);
        let other = Some(running("key", Try::new(2, 0, 0), FENCE));
        assert_eq!(judged(told(Word::Claiming), other), lost);
    }

    #[test]
    fn a_second_grant_and_a_second_effect_are_violations() {
        let mut ledger = told(Word::Effect);
        let again = Try::new(4, 1, 9);
        for word in [Word::Claiming, Word::Claimed, Word::Effect] {
            ledger.hear(word.line("key", again, Fence(8), again.owner()).trim());
        }
        let violations = ledger.judge(after_life(4));
        let broken: Vec<_> = violations.iter().map(|(_, it)| it.invariant).collect();
        assert!(broken.contains(&Invariant::I11UnknownStays), "{violations:?}");
        assert!(broken.contains(&Invariant::I1OneEffect), "{violations:?}");
    }
}
