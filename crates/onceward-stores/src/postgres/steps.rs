//! Steps of the truth table, many at once.
//!
//! What is common is decided by one statement: a claim of a new key, a renewal of a live lease,
//! a settlement of what is open. Everything else is decided by `machine.rs`, on the row as it
//! was seen and at the server's time, and written only if the row still is so; else it is
//! looked at again. No lock is held between two statements.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};

use onceward_core::machine::{self, Next, Step};
use onceward_core::{
    Claim, ClaimRequest, Effect, Fence, Fenced, Imported, Lease, Record, RecordId, RenewRequest,
    ResolveRequest, SettleRequest, Settlement, State, StateName, StoreErrorKind, Timestamp,
};

use super::columns::{ClaimColumns, PutColumns, RenewColumns, SettleColumns};
use super::error::{Fault, RecordsLost};
use super::row::{self, Columns, Seen, Stored, Undecodable};
use super::session::Ask;
use super::settings::Settings;
use super::sql::Statements;

/// How often a row is looked at that changes each time in between. Each look that fails means
/// that somebody else's step succeeded.
const LOOKS_MAX: usize = 32;

/// Decides calls, over any connection.
#[derive(Debug)]
pub(super) struct Steps {
    pub(super) statements: Statements,
    pub(super) settings: Settings,
    channel: String,
    /// How long the last settlement was to be kept: what is foretold of the next.
    keep_ms: AtomicI64,
}

/// Until when the server keeps what was settled; `None` for what stays until somebody knows, or
/// if it was settled before.
pub(crate) type KeptUntil = Option<Timestamp>;

/// The answers to many calls, in their order.
type Answers<A> = Vec<Result<A, Fault>>;

impl Steps {
    pub(super) fn new(settings: Settings) -> Self {
        let day_ms = 86_400_000;
        Self {
            statements: Statements::new(&settings.schema),
            channel: settings.schema.channel(),
            keep_ms: AtomicI64::new(day_ms),
            settings,
        }
    }

    /// Claims, several of one record included: the later ones are decided on what the first
    /// one made of it.
    pub(super) async fn claims(&self, ask: &impl Ask, calls: &[&ClaimRequest]) -> Answers<Claim> {
        let mut open = Open::new(calls.iter().map(|call| call.id));
        for _ in 0..LOOKS_MAX {
            if open.is_done() {
                break;
            }
            let firsts: Vec<_> = open.firsts().map(|call| calls[call]).collect();
            let seen = match self.claim_or_read(ask, &firsts).await {
                Ok(seen) => seen,
                Err(fault) => return open.fail(&fault),
            };
            let unanswered = seen.len() < firsts.len();
            let mut puts = Vec::new();
            for seen in seen {
                self.decide_claims(&mut open, calls, seen, &mut puts);
            }
            if let Err(fault) = self.put(ask, &mut open, puts).await {
                return open.fail(&fault);
            }
            // Somebody else made the record just now, or all records are gone.
            if unanswered && let Err(fault) = self.must_have_sentinel(ask).await {
                return open.fail(&fault);
            }
        }
        open.finish()
    }

    /// Fails if the row is gone that is there as long as the others are.
    pub(super) async fn must_have_sentinel(&self, ask: &impl Ask) -> Result<(), Fault> {
        let rows = ask.ask(&self.statements.sentinel, &[]).await.map_err(Fault::harmless)?;
        match rows.first().map(|row| row::get(row, "there")).transpose()? {
            Some(true) => Ok(()),
            _ => Err(Fault::new(StoreErrorKind::Unavailable, Effect::NotApplied)
                .caused_by(RecordsLost { schema: self.settings.schema.to_string() })),
        }
    }

    /// Decides all claims of one record on what is there.
    fn decide_claims(
        &self,
        open: &mut Open<Claim>,
        calls: &[&ClaimRequest],
        seen: Seen,
        puts: &mut Vec<Put<Claim>>,
    ) {
        let stored = match seen.stored {
            Ok(stored) => stored,
            Err(wrong) => return open.fail_record(&seen.id, wrong),
        };
        let mut planned = false;
        for call in open.of(&seen.id) {
            // The claim that made the row finds its own token there.
            let step = machine::claim(Some(&stored.record), calls[call], Fence(0), seen.now);
            match step.next {
                Next::Put(_) | Next::Stand(..) if planned => {}
                next => {
                    planned |= open.step(call, &seen.id, Some(&stored), step.answer, next, puts);
                }
            }
        }
    }

    async fn claim_or_read(
        &self,
        ask: &impl Ask,
        calls: &[&ClaimRequest],
    ) -> Result<Vec<Seen>, Fault> {
        let keep = self.keep_ms.load(Ordering::Relaxed);
        let slack = self.slack_ms(keep);
        let columns = ClaimColumns::new(calls);
        // Far enough ahead that the work may take half of the slack.
        let (ahead, unit) = (keep + slack / 2, (slack / 2).max(1));
        let rows = ask.ask(&self.statements.claim, &columns.values(&ahead, &unit)).await?;
        Ok(one_each(&rows)?)
    }

    fn slack_ms(&self, keep_ms: i64) -> i64 {
        let keep = std::time::Duration::from_millis(keep_ms.unsigned_abs());
        row::millis(self.settings.slack(keep))
    }

    /// Renewals, each of another record.
    pub(super) async fn renewals(
        &self,
        ask: &impl Ask,
        calls: &[&RenewRequest],
    ) -> Answers<Fenced<Lease>> {
        let mut open = Open::new(calls.iter().map(|call| call.id));
        while !open.is_done() {
            let wave: Vec<_> = open.firsts().collect();
            let columns = RenewColumns::new(wave.iter().map(|call| calls[*call]));
            let rows = ask.ask(&self.statements.renew, &columns.values()).await;
            let renewed = match rows.map(|rows| renewed(&rows)) {
                Ok(Ok(renewed)) => renewed,
                Ok(Err(wrong)) => return open.fail(&wrong.into()),
                Err(fault) => return open.fail(&fault),
            };
            let mut rest = Vec::new();
            for call in wave {
                let request = calls[call];
                match renewed.get(&request.id) {
                    Some(until) => {
                        let lease = Lease { fence: request.holder.fence, until: *until };
                        open.answer(call, &request.id, Ok(Fenced::Applied(lease)));
                    }
                    None => rest.push((call, request.id)),
                }
            }
            self.decide(ask, &mut open, rest, |call, record, now| {
                machine::renew(record, calls[call], now)
            })
            .await;
        }
        open.finish()
    }

    /// A settlement inside of a transaction.
    pub(super) async fn settle_in(
        &self,
        tx: &impl Ask,
        request: &SettleRequest,
    ) -> Result<Fenced<()>, Fault> {
        let settled = self.settlements(tx, &[request]).await.swap_remove(0)?;
        Ok(settled.map(drop))
    }

    /// Settlements; several of one record one after the other.
    pub(super) async fn settlements(
        &self,
        ask: &impl Ask,
        calls: &[&SettleRequest],
    ) -> Answers<Fenced<KeptUntil>> {
        let mut open = Open::new(calls.iter().map(|call| call.id));
        while !open.is_done() {
            let wave: Vec<_> = open.firsts().collect();
            let requests: Vec<_> = wave.iter().map(|call| calls[*call]).collect();
            let settled = match self.settle(ask, &requests).await {
                Ok(settled) => settled,
                Err(fault) => return open.fail(&fault),
            };
            let mut rest = Vec::new();
            for (call, request) in wave.into_iter().zip(requests) {
                match settled.get(&request.id) {
                    Some(kept) => open.answer(call, &request.id, Ok(Fenced::Applied(*kept))),
                    None => rest.push((call, request.id)),
                }
            }
            self.decide(ask, &mut open, rest, |call, record, now| {
                let Step { answer, next } = machine::settle(record, calls[call], now);
                Step { answer: answer.map(|()| None), next }
            })
            .await;
        }
        open.finish()
    }

    async fn settle(
        &self,
        ask: &impl Ask,
        calls: &[&SettleRequest],
    ) -> Result<HashMap<RecordId, KeptUntil>, Fault> {
        for call in calls.iter().filter(|call| call.settlement != Settlement::Unknown) {
            self.keep_ms.store(row::millis(call.retention.keep), Ordering::Relaxed);
        }
        let columns = SettleColumns::new(calls, &self.settings);
        let rows = ask.ask(&self.statements.settle, &columns.values(&self.channel)).await?;
        Ok(settled(&rows)?)
    }

    /// Evidence about one record.
    pub(super) async fn resolve(
        &self,
        ask: &impl Ask,
        request: &ResolveRequest,
    ) -> Result<Fenced<()>, Fault> {
        let mut open = Open::new([request.id].into_iter());
        self.decide(ask, &mut open, vec![(0, request.id)], |_, record, now| {
            machine::resolve(record, request, now)
        })
        .await;
        open.finish().swap_remove(0)
    }

    /// A record of another store.
    pub(super) async fn import(&self, ask: &impl Ask, record: &Record) -> Result<Imported, Fault> {
        for _ in 0..LOOKS_MAX {
            let mut open = Open::new([record.id].into_iter());
            let seen = self.read(ask, &[record.id]).await?.pop();
            let Some(seen) = seen else {
                let columns = PutColumns::first(record);
                let rows = ask.ask(&self.statements.import, &columns.fields()).await?;
                match rows.is_empty() {
                    true => continue,
                    false => return Ok(Imported::Written),
                }
            };
            let stored = seen.stored.map_err(Fault::from)?;
            let Step { answer, next } = machine::import(Some(&stored.record), record);
            let mut puts = Vec::new();
            open.step(0, &record.id, Some(&stored), answer, next, &mut puts);
            self.put(ask, &mut open, puts).await?;
            if open.is_done() {
                return open.finish().swap_remove(0);
            }
        }
        Err(changing())
    }

    /// What is there of some records.
    pub(super) async fn read(&self, ask: &impl Ask, ids: &[RecordId]) -> Result<Vec<Seen>, Fault> {
        let ids: Vec<&[u8]> = ids.iter().map(|id| id.as_bytes().as_slice()).collect();
        let rows = ask.ask(&self.statements.read, &[&ids]).await.map_err(Fault::harmless)?;
        Ok(one_each(&rows)?)
    }

    /// Has the truth table decide calls, each of another record, on what is there.
    async fn decide<A>(
        &self,
        ask: &impl Ask,
        open: &mut Open<A>,
        mut calls: Vec<(usize, RecordId)>,
        step: impl Fn(usize, Option<&Record>, Timestamp) -> Step<A>,
    ) where
        A: Send,
    {
        for _ in 0..LOOKS_MAX {
            calls.retain(|(call, _)| open.is_open(*call));
            if calls.is_empty() {
                return;
            }
            let ids: Vec<_> = calls.iter().map(|(_, id)| *id).collect();
            let seen = match self.read(ask, &ids).await {
                Ok(seen) => seen,
                Err(fault) => return open.fail_some(&calls, &fault),
            };
            let mut seen: HashMap<_, _> = seen.into_iter().map(|seen| (seen.id, seen)).collect();
            let mut puts = Vec::new();
            for (call, id) in &calls {
                let (stored, now) = match seen.remove(id) {
                    None => (None, Timestamp::default()),
                    Some(Seen { stored: Ok(stored), now, .. }) => (Some(stored), now),
                    Some(Seen { stored: Err(wrong), .. }) => {
                        open.answer(*call, id, Err(wrong.into()));
                        continue;
                    }
                };
                let Step { answer, next } = step(*call, stored.as_ref().map(|it| &it.record), now);
                open.step(*call, id, stored.as_ref(), answer, next, &mut puts);
            }
            if let Err(fault) = self.put(ask, open, puts).await {
                return open.fail_some(&calls, &fault);
            }
        }
        open.fail_some(&calls, &changing());
    }

    /// Writes what is still as it was seen; the calls of the others stay open.
    async fn put<A>(
        &self,
        ask: &impl Ask,
        open: &mut Open<A>,
        puts: Vec<Put<A>>,
    ) -> Result<(), Fault> {
        if puts.is_empty() {
            return Ok(());
        }
        let columns = PutColumns::new(puts.iter().map(|put| (&put.seen, &*put.next)));
        let rows = ask.ask(&self.statements.put, &columns.values(&self.channel)).await;
        drop(columns);
        let written = match rows {
            Ok(rows) => ids(&rows)?,
            Err(fault) => {
                for put in puts {
                    open.answer(put.call, &put.next.id, Err(fault.clone()));
                }
                return Ok(());
            }
        };
        for put in puts {
            if written.contains(&put.next.id) {
                open.answer(put.call, &put.next.id, Ok(put.answer));
            }
        }
        Ok(())
    }
}

/// A row that is to become another, if it still is what it was.
struct Put<A> {
    call: usize,
    seen: (Fence, i64),
    next: Box<Record>,
    answer: A,
}

/// Calls and their answers so far.
struct Open<A> {
    answers: Vec<Option<Result<A, Fault>>>,
    /// The calls that have none yet, by record: in the order of the ids, so that two
    /// statements that meet do not wait for each other in a circle.
    waiting: BTreeMap<RecordId, Vec<usize>>,
}

impl<A> Open<A> {
    fn new(ids: impl Iterator<Item = RecordId>) -> Self {
        let mut waiting: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut count = 0;
        for (call, id) in ids.enumerate() {
            waiting.entry(id).or_default().push(call);
            count += 1;
        }
        Self { answers: std::iter::repeat_with(|| None).take(count).collect(), waiting }
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty()
    }

    fn is_open(&self, call: usize) -> bool {
        self.answers[call].is_none()
    }

    /// One call of each record, in the order of their ids.
    fn firsts(&self) -> impl Iterator<Item = usize> {
        self.waiting.values().filter_map(|calls| calls.first().copied())
    }

    /// All calls of a record.
    fn of(&self, id: &RecordId) -> Vec<usize> {
        self.waiting.get(id).cloned().unwrap_or_default()
    }

    fn answer(&mut self, call: usize, id: &RecordId, answer: Result<A, Fault>) {
        self.answers[call] = Some(answer);
        if let Some(calls) = self.waiting.get_mut(id) {
            calls.retain(|it| *it != call);
            if calls.is_empty() {
                self.waiting.remove(id);
            }
        }
    }

    /// Takes a step: answers what changes nothing, and plans what does. Says whether it
    /// planned.
    fn step(
        &mut self,
        call: usize,
        id: &RecordId,
        stored: Option<&Stored>,
        answer: A,
        next: Next,
        puts: &mut Vec<Put<A>>,
    ) -> bool {
        match (next.written(stored.map(|stored| &stored.record)), stored) {
            (Some(Some(next)), Some(stored)) => {
                let seen = (stored.record.fence, stored.version);
                puts.push(Put { call, seen, next, answer });
                true
            }
            _ => {
                self.answer(call, id, Ok(answer));
                false
            }
        }
    }

    fn fail_record(&mut self, id: &RecordId, wrong: Undecodable) {
        for call in self.of(id) {
            self.answer(call, id, Err(wrong.into()));
        }
    }

    fn fail_some(&mut self, calls: &[(usize, RecordId)], fault: &Fault) {
        for (call, id) in calls {
            if self.is_open(*call) {
                self.answer(*call, id, Err(fault.clone()));
            }
        }
    }

    fn fail(self, fault: &Fault) -> Answers<A> {
        self.answers.into_iter().map(|it| it.unwrap_or_else(|| Err(fault.clone()))).collect()
    }

    fn finish(self) -> Answers<A> {
        self.fail(&changing())
    }
}

/// Somebody else was faster every time.
fn changing() -> Fault {
    Fault::new(StoreErrorKind::Unavailable, Effect::NotApplied)
}

/// One row an id. Where a record was made anew while it was looked at, the new one counts.
fn one_each(rows: &[impl Columns]) -> Result<Vec<Seen>, Undecodable> {
    let mut found: BTreeMap<RecordId, Seen> = BTreeMap::new();
    for row in rows {
        let seen = Seen::read(row)?;
        if seen.granted || !found.contains_key(&seen.id) {
            found.insert(seen.id, seen);
        }
    }
    Ok(found.into_values().collect())
}

fn ids(rows: &[impl Columns]) -> Result<HashSet<RecordId>, Undecodable> {
    rows.iter().map(row::first_id).collect()
}

fn renewed(rows: &[impl Columns]) -> Result<HashMap<RecordId, Timestamp>, Undecodable> {
    rows.iter().map(|row| Ok((row::first_id(row)?, row::second_time(row)?))).collect()
}

fn settled(rows: &[impl Columns]) -> Result<HashMap<RecordId, KeptUntil>, Undecodable> {
    rows.iter().map(|row| Ok((row::first_id(row)?, row::second_time_if_any(row)?))).collect()
}

/// When cleaning up is to look at a record, if that changes with its state.
pub(super) fn purge_after(record: &Record) -> Option<Timestamp> {
    let retained = record.state.retained()?;
    let expired = record.state.name() == StateName::Expired;
    Some(if expired { retained.tombstone_until } else { retained.until })
}

/// The lease of a record that has one.
pub(super) fn lease_until(state: &State) -> Option<Timestamp> {
    match state {
        State::Running { lease_until } => Some(*lease_until),
        _ => None,
    }
}
