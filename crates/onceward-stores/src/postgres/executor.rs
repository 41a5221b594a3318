//! Executes calls, many at once.
//!
//! Common cases are decided by one statement: a claim of a new key, a renewal of a live lease, a
//! settlement of an open record. All others are decided by `machine.rs`, on the row as it was read
//! and at the server's time, and written if the row is unchanged; otherwise it is read again. No
//! lock is held between two statements.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};

use onceward_core::machine::{self, Next, Step};
use onceward_core::{
    Claim, ClaimRequest, Effect, Fence, Fenced, Imported, InvalidateRequest, Lease, Record,
    RecordId, RenewRequest, ResolveRequest, SettleRequest, Settlement, State, StateName,
    StoreErrorKind, Timestamp,
};

use super::columns::{ClaimColumns, PutColumns, RenewColumns, SettleColumns};
use super::error::{Fault, RecordsLost};
use super::row::{self, DriverRow, RowSnapshot, Undecodable, VersionedRecord};
use super::session::SqlClient;
use super::settings::Settings;
use super::sql::Statements;

/// How often a row is read again that changes in between. Each failed attempt means that another
/// call succeeded.
const ATTEMPTS_MAX: usize = 32;

/// Executes calls over any connection.
#[derive(Debug)]
pub(super) struct Executor {
    pub(super) statements: Statements,
    pub(super) settings: Settings,
    channel: String,
    /// Retention of the last settlement, which predicts that of the next one.
    keep_ms: AtomicI64,
}

/// End of the retention of a settled record. `None` for a record that stays unknown, or was settled
/// before.
pub(crate) type RetainedUntil = Option<Timestamp>;

/// The answers to calls, in the order of the calls.
type Answers<A> = Vec<Result<A, Fault>>;

impl Executor {
    pub(super) fn new(settings: Settings) -> Self {
        let day_ms = 86_400_000;
        Self {
            statements: Statements::new(&settings.schema),
            channel: settings.schema.channel(),
            keep_ms: AtomicI64::new(day_ms),
            settings,
        }
    }

    /// Executes claims. Several of one record are decided one after the other, on the result of the
    /// first.
    pub(super) async fn claims(
        &self,
        client: &impl SqlClient,
        calls: &[&ClaimRequest],
    ) -> Answers<Claim> {
        let mut pending = PendingCalls::new(calls.iter().map(|call| call.id));
        for _ in 0..ATTEMPTS_MAX {
            if pending.is_done() {
                break;
            }
            let firsts: Vec<_> = pending.firsts().map(|call| calls[call]).collect();
            let seen = match self.claim_or_read(client, &firsts).await {
                Ok(seen) => seen,
                Err(fault) => return pending.fail(&fault),
            };
            let unanswered = seen.len() < firsts.len();
            let mut updates = Vec::new();
            for seen in seen {
                self.decide_claims(&mut pending, calls, seen, &mut updates);
            }
            if let Err(fault) = self.put(client, &mut pending, updates).await {
                return pending.fail(&fault);
            }
            // Another transaction has just inserted the record, or all records are gone.
            if unanswered && let Err(fault) = self.must_have_sentinel(client).await {
                return pending.fail(&fault);
            }
        }
        pending.finish()
    }

    /// Fails if the sentinel is missing, and with it all records.
    pub(super) async fn must_have_sentinel(&self, client: &impl SqlClient) -> Result<(), Fault> {
        let rows = client.run(&self.statements.sentinel, &[]).await.map_err(Fault::harmless)?;
        match rows.first().map(|row| row::get(row, "there")).transpose()? {
            Some(true) => Ok(()),
            _ => Err(Fault::new(StoreErrorKind::Unavailable, Effect::NotApplied)
                .caused_by(RecordsLost { schema: self.settings.schema.to_string() })),
        }
    }

    /// Decides all claims of one record.
    fn decide_claims(
        &self,
        pending: &mut PendingCalls<Claim>,
        calls: &[&ClaimRequest],
        seen: RowSnapshot,
        updates: &mut Vec<RowUpdate<Claim>>,
    ) {
        let stored = match seen.stored {
            Ok(stored) => stored,
            Err(wrong) => return pending.fail_record(&seen.id, wrong),
        };
        let mut planned = false;
        for call in pending.of(&seen.id) {
            // The claim that inserted the row finds its own token in it.
            let step = machine::claim(Some(&stored.record), calls[call], Fence(0), seen.now);
            match step.next {
                Next::Put(_) | Next::Stand(..) if planned => {}
                next => {
                    planned |=
                        pending.step(call, &seen.id, Some(&stored), step.answer, next, updates);
                }
            }
        }
    }

    async fn claim_or_read(
        &self,
        client: &impl SqlClient,
        calls: &[&ClaimRequest],
    ) -> Result<Vec<RowSnapshot>, Fault> {
        let keep = self.keep_ms.load(Ordering::Relaxed);
        let slack = self.slack_ms(keep);
        let columns = ClaimColumns::new(calls);
        // So far ahead that the work may take half of the slack.
        let (ahead, unit) = (keep + slack / 2, (slack / 2).max(1));
        let rows = client.run(&self.statements.claim, &columns.values(&ahead, &unit)).await?;
        Ok(one_each(&rows)?)
    }

    fn slack_ms(&self, keep_ms: i64) -> i64 {
        let keep = std::time::Duration::from_millis(keep_ms.unsigned_abs());
        row::millis(self.settings.slack(keep))
    }

    /// Executes renewals. Several of one record are executed one after the other.
    pub(super) async fn renewals(
        &self,
        client: &impl SqlClient,
        calls: &[&RenewRequest],
    ) -> Answers<Fenced<Lease>> {
        let mut pending = PendingCalls::new(calls.iter().map(|call| call.id));
        while !pending.is_done() {
            let wave: Vec<_> = pending.firsts().collect();
            let columns = RenewColumns::new(wave.iter().map(|call| calls[*call]));
            let rows = client.run(&self.statements.renew, &columns.values()).await;
            let renewed = match rows.map(|rows| renewed(&rows)) {
                Ok(Ok(renewed)) => renewed,
                Ok(Err(wrong)) => return pending.fail(&wrong.into()),
                Err(fault) => return pending.fail(&fault),
            };
            let mut rest = Vec::new();
            for call in wave {
                let request = calls[call];
                match renewed.get(&request.id) {
                    Some(until) => {
                        let lease = Lease { fence: request.holder.fence, until: *until };
                        pending.answer(call, &request.id, Ok(Fenced::Applied(lease)));
                    }
                    None => rest.push((call, request.id)),
                }
            }
            self.decide(client, &mut pending, rest, |call, record, now| {
                machine::renew(record, calls[call], now)
            })
            .await;
        }
        pending.finish()
    }

    /// Settles within a transaction.
    pub(super) async fn settle_in(
        &self,
        tx: &impl SqlClient,
        request: &SettleRequest,
    ) -> Result<Fenced<()>, Fault> {
        let settled = self.settlements(tx, &[request]).await.swap_remove(0)?;
        Ok(settled.map(drop))
    }

    /// Executes settlements. Several of one record are executed one after the other.
    pub(super) async fn settlements(
        &self,
        client: &impl SqlClient,
        calls: &[&SettleRequest],
    ) -> Answers<Fenced<RetainedUntil>> {
        let mut pending = PendingCalls::new(calls.iter().map(|call| call.id));
        while !pending.is_done() {
            let wave: Vec<_> = pending.firsts().collect();
            let requests: Vec<_> = wave.iter().map(|call| calls[*call]).collect();
            let settled = match self.settle(client, &requests).await {
                Ok(settled) => settled,
                Err(fault) => return pending.fail(&fault),
            };
            let mut rest = Vec::new();
            for (call, request) in wave.into_iter().zip(requests) {
                match settled.get(&request.id) {
                    Some(kept) => pending.answer(call, &request.id, Ok(Fenced::Applied(*kept))),
                    None => rest.push((call, request.id)),
                }
            }
            self.decide(client, &mut pending, rest, |call, record, now| {
                let Step { answer, next } = machine::settle(record, calls[call], now);
                Step { answer: answer.map(|()| None), next }
            })
            .await;
        }
        pending.finish()
    }

    async fn settle(
        &self,
        client: &impl SqlClient,
        calls: &[&SettleRequest],
    ) -> Result<HashMap<RecordId, RetainedUntil>, Fault> {
        for call in calls.iter().filter(|call| !matches!(call.settlement, Settlement::Unknown(_))) {
            self.keep_ms.store(row::millis(call.retention.keep), Ordering::Relaxed);
        }
        let columns = SettleColumns::new(calls, &self.settings);
        let rows = client.run(&self.statements.settle, &columns.values(&self.channel)).await?;
        Ok(settled(&rows)?)
    }

    /// Resolves one record.
    pub(super) async fn resolve(
        &self,
        client: &impl SqlClient,
        request: &ResolveRequest,
    ) -> Result<Fenced<()>, Fault> {
        let mut pending = PendingCalls::new([request.id].into_iter());
        self.decide(client, &mut pending, vec![(0, request.id)], |_, record, now| {
            machine::resolve(record, request, now)
        })
        .await;
        pending.finish().swap_remove(0)
    }

    /// Invalidates the outcome of one record.
    pub(super) async fn invalidate(
        &self,
        client: &impl SqlClient,
        request: &InvalidateRequest,
    ) -> Result<Fenced<()>, Fault> {
        let mut pending = PendingCalls::new([request.id].into_iter());
        self.decide(client, &mut pending, vec![(0, request.id)], |_, record, now| {
            machine::invalidate(record, request, now)
        })
        .await;
        pending.finish().swap_remove(0)
    }

    /// Imports a record of another store.
    pub(super) async fn import(
        &self,
        client: &impl SqlClient,
        record: &Record,
    ) -> Result<Imported, Fault> {
        for _ in 0..ATTEMPTS_MAX {
            let mut pending = PendingCalls::new([record.id].into_iter());
            let seen = self.read(client, &[record.id]).await?.pop();
            let Some(seen) = seen else {
                let columns = PutColumns::first(record);
                let rows = client.run(&self.statements.import, &columns.fields()).await?;
                match rows.is_empty() {
                    true => continue,
                    false => return Ok(Imported::Written),
                }
            };
            let stored = seen.stored.map_err(Fault::from)?;
            let Step { answer, next } = machine::import(Some(&stored.record), record);
            let mut updates = Vec::new();
            pending.step(0, &record.id, Some(&stored), answer, next, &mut updates);
            self.put(client, &mut pending, updates).await?;
            if pending.is_done() {
                return pending.finish().swap_remove(0);
            }
        }
        Err(changing())
    }

    /// Reads records.
    pub(super) async fn read(
        &self,
        client: &impl SqlClient,
        ids: &[RecordId],
    ) -> Result<Vec<RowSnapshot>, Fault> {
        let ids: Vec<&[u8]> = ids.iter().map(|id| id.as_bytes().as_slice()).collect();
        let rows = client.run(&self.statements.read, &[&ids]).await.map_err(Fault::harmless)?;
        Ok(one_each(&rows)?)
    }

    /// Decides calls by the truth table, each on another record.
    async fn decide<A>(
        &self,
        client: &impl SqlClient,
        pending: &mut PendingCalls<A>,
        mut calls: Vec<(usize, RecordId)>,
        step: impl Fn(usize, Option<&Record>, Timestamp) -> Step<A>,
    ) where
        A: Send,
    {
        for _ in 0..ATTEMPTS_MAX {
            calls.retain(|(call, _)| pending.is_pending(*call));
            if calls.is_empty() {
                return;
            }
            let ids: Vec<_> = calls.iter().map(|(_, id)| *id).collect();
            let seen = match self.read(client, &ids).await {
                Ok(seen) => seen,
                Err(fault) => return pending.fail_some(&calls, &fault),
            };
            let mut seen: HashMap<_, _> = seen.into_iter().map(|seen| (seen.id, seen)).collect();
            let mut updates = Vec::new();
            for (call, id) in &calls {
                let (stored, now) = match seen.remove(id) {
                    None => (None, Timestamp::default()),
                    Some(RowSnapshot { stored: Ok(stored), now, .. }) => (Some(stored), now),
                    Some(RowSnapshot { stored: Err(wrong), .. }) => {
                        pending.answer(*call, id, Err(wrong.into()));
                        continue;
                    }
                };
                let Step { answer, next } = step(*call, stored.as_ref().map(|it| &it.record), now);
                pending.step(*call, id, stored.as_ref(), answer, next, &mut updates);
            }
            if let Err(fault) = self.put(client, pending, updates).await {
                return pending.fail_some(&calls, &fault);
            }
        }
        pending.fail_some(&calls, &changing());
    }

    /// Writes the rows that are still as they were read. The calls of the others stay pending.
    async fn put<A>(
        &self,
        client: &impl SqlClient,
        pending: &mut PendingCalls<A>,
        updates: Vec<RowUpdate<A>>,
    ) -> Result<(), Fault> {
        if updates.is_empty() {
            return Ok(());
        }
        let columns = PutColumns::new(updates.iter().map(|update| (&update.seen, &*update.next)));
        let rows = client.run(&self.statements.put, &columns.values(&self.channel)).await;
        drop(columns);
        let written = match rows {
            Ok(rows) => ids(&rows)?,
            Err(fault) => {
                for update in updates {
                    pending.answer(update.call, &update.next.id, Err(fault.clone()));
                }
                return Ok(());
            }
        };
        for update in updates {
            if written.contains(&update.next.id) {
                pending.answer(update.call, &update.next.id, Ok(update.answer));
            }
        }
        Ok(())
    }
}

/// A new state for a row, if the row is unchanged.
struct RowUpdate<A> {
    call: usize,
    seen: (Fence, i64),
    next: Box<Record>,
    answer: A,
}

/// Calls, and their answers so far.
struct PendingCalls<A> {
    answers: Vec<Option<Result<A, Fault>>>,
    /// Calls without an answer, by record. In the order of the ids, so that two statements never
    /// wait for each other in a circle.
    waiting: BTreeMap<RecordId, Vec<usize>>,
}

impl<A> PendingCalls<A> {
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

    fn is_pending(&self, call: usize) -> bool {
        self.answers[call].is_none()
    }

    /// The first call of each record, in the order of the ids.
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

    /// Answers a call that changes nothing, and collects the update of one that does. Returns
    /// whether it collected one.
    fn step(
        &mut self,
        call: usize,
        id: &RecordId,
        stored: Option<&VersionedRecord>,
        answer: A,
        next: Next,
        updates: &mut Vec<RowUpdate<A>>,
    ) -> bool {
        match (next.written(stored.map(|stored| &stored.record)), stored) {
            (Some(Some(next)), Some(stored)) => {
                let seen = (stored.record.fence, stored.version);
                updates.push(RowUpdate { call, seen, next, answer });
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
            if self.is_pending(*call) {
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

/// The error after too many attempts: other calls changed the row every time.
fn changing() -> Fault {
    Fault::new(StoreErrorKind::Unavailable, Effect::NotApplied)
}

/// One snapshot for each id. If the row was inserted by this statement, that one counts.
fn one_each(rows: &[impl DriverRow]) -> Result<Vec<RowSnapshot>, Undecodable> {
    let mut found: BTreeMap<RecordId, RowSnapshot> = BTreeMap::new();
    for row in rows {
        let seen = RowSnapshot::read(row)?;
        if seen.granted || !found.contains_key(&seen.id) {
            found.insert(seen.id, seen);
        }
    }
    Ok(found.into_values().collect())
}

fn ids(rows: &[impl DriverRow]) -> Result<HashSet<RecordId>, Undecodable> {
    rows.iter().map(row::first_id).collect()
}

fn renewed(rows: &[impl DriverRow]) -> Result<HashMap<RecordId, Timestamp>, Undecodable> {
    rows.iter().map(|row| Ok((row::first_id(row)?, row::second_time(row)?))).collect()
}

fn settled(rows: &[impl DriverRow]) -> Result<HashMap<RecordId, RetainedUntil>, Undecodable> {
    rows.iter().map(|row| Ok((row::first_id(row)?, row::second_time_if_any(row)?))).collect()
}

/// The next time at which purging must visit the record, if its state determines that.
pub(super) fn purge_after(record: &Record) -> Option<Timestamp> {
    let retained = record.state.retained()?;
    let expired = record.state.name() == StateName::Expired;
    Some(if expired { retained.tombstone_until } else { retained.until })
}

/// The end of the lease, for a running record.
pub(super) fn lease_until(state: &State) -> Option<Timestamp> {
    match state {
        State::Running { lease_until } => Some(*lease_until),
        _ => None,
    }
}
