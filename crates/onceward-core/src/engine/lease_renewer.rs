//! Renews the leases of all permits, so that a permit needs neither a task nor a timer of
//! its own: most are settled long before their first renewal is due.
//!
//! A permit is *kept* from its grant until it is settled, dropped or cut off. Whoever takes
//! it out of its keeper's care, the permit itself or a drain, has the duty to end it; for
//! the other it is then gone.
//!
//! Each runtime that permits are granted on has a keeper of its own, as timers and tasks
//! belong to a runtime, and one runtime may end or stand still before another does.

use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use slab::Slab;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::claim_handle::Held;
use super::permit::Lost;
use crate::per_thread::{Lane, Lanes};

/// The keepers of an engine, one a runtime: as a rule, one.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    /// Of the first runtime: as a rule, all that are asked for. It stays, so it needs no lock.
    first: OnceLock<Arc<Keeper>>,
    others: RwLock<Vec<Arc<Keeper>>>,
}

impl Keepers {
    /// The keeper on the runtime that this is called on.
    pub(super) fn here(&self) -> KeptBy {
        let runtime = Handle::current();
        let first = self.first.get_or_init(|| Arc::new(Keeper::on(runtime.clone())));
        if first.runtime.id() == runtime.id() {
            return KeptBy::First;
        }
        let known = find(&self.others.read(), &runtime);
        KeptBy::Other(known.unwrap_or_else(|| self.add(runtime)))
    }

    #[expect(clippy::expect_used, reason = "there was a first before anything was kept by it")]
    pub(super) fn get<'k>(&'k self, by: &'k KeptBy) -> &'k Arc<Keeper> {
        match by {
            KeptBy::First => self.first.get().expect("who keeps something is there"),
            KeptBy::Other(keeper) => keeper,
        }
    }

    fn add(&self, runtime: Handle) -> Arc<Keeper> {
        let mut keepers = self.others.write();
        if let Some(added_meanwhile) = find(&keepers, &runtime) {
            return added_meanwhile;
        }
        // Runtimes come and go; nobody says when one is gone.
        keepers.retain(|keeper| !keeper.is_idle());
        let keeper = Arc::new(Keeper::on(runtime));
        keepers.push(Arc::clone(&keeper));
        keeper
    }

    /// Takes everything that is kept now out of care.
    pub(super) fn take_all(&self) -> Vec<Kept> {
        let others = self.others.read();
        self.first.get().into_iter().chain(&*others).flat_map(|keeper| keeper.take_all()).collect()
    }
}

impl Drop for Keepers {
    /// Whatever is kept holds the engine, so nothing is kept any more.
    fn drop(&mut self) {
        for keeper in self.first.get().into_iter().chain(&*self.others.get_mut()) {
            if let Some(watch) = keeper.watch.lock().take() {
                watch.abort();
            }
        }
    }
}

/// One of an engine's keepers. The first needs no owner more, which all threads would count.
#[derive(Debug)]
pub(super) enum KeptBy {
    First,
    Other(Arc<Keeper>),
}

fn find(keepers: &[Arc<Keeper>], runtime: &Handle) -> Option<Arc<Keeper>> {
    keepers.iter().find(|keeper| keeper.runtime.id() == runtime.id()).cloned()
}

/// Keeps the permits that were granted on one runtime.
///
/// Its one task, the watch, sleeps until the first alarm. It is started by the first permit,
/// and is over when nothing was kept at the last alarm.
#[derive(Debug)]
pub(super) struct Keeper {
    runtime: Handle,
    shards: Lanes<Mutex<Shard>>,
    /// Locked before any shard, by those who lock both.
    watch: Mutex<Option<AbortHandle>>,
    alarm_set: Notify,
}

/// A held claim in a keeper's care, or out of it and not ended yet. A drain waits for it.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) held: Arc<Held>,
    /// When its lease is to be renewed. `None` while it is being renewed, and when there is
    /// nothing left to renew.
    pub(super) renew_at: Option<Instant>,
    counted: Lane,
}

impl Kept {
    fn new(held: Arc<Held>, renew_at: Instant) -> Self {
        let counted = held.engine.shared().drain.enter();
        Self { held, renew_at: Some(renew_at), counted }
    }

    /// Whether it is this claim, and not one that came to its place after it.
    fn is(&self, held: &Held) -> bool {
        std::ptr::eq(&*self.held, held)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.held.engine.shared().drain.leave(self.counted);
    }
}

/// In which shard a permit is kept, and by which number there. The next one gets it when this one
/// is gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    shard: Lane,
    number: usize,
}

impl Keeper {
    fn on(runtime: Handle) -> Self {
        Self {
            runtime,
            shards: Lanes::default(),
            watch: Mutex::default(),
            alarm_set: Notify::new(),
        }
    }

    /// Where work for what is kept here is to be done.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Takes a claim into care. Its lease is renewed from `renew_at` on.
    pub(super) fn keep(self: &Arc<Self>, held: Arc<Held>, renew_at: Instant) -> Place {
        let kept = Kept::new(held, renew_at);
        let (lane, shard) = self.shards.here();
        let (number, alarm) = shard.lock().insert(kept, renew_at);
        self.heed(alarm);
        Place { shard: lane, number }
    }

    /// Takes a claim out of care. `None` if somebody has done so before.
    pub(super) fn take(&self, held: &Held, place: Place) -> Option<Kept> {
        self.shards.at(place.shard).lock().take(held, place.number)
    }

    fn take_all(&self) -> Vec<Kept> {
        self.shards.iter().flat_map(|shard| shard.lock().take_all()).collect()
    }

    /// What came of a renewal.
    fn renewed(self: &Arc<Self>, held: &Held, place: Place, renewed: Result<Instant, Lost>) {
        match renewed {
            Ok(renew_at) => {
                let mut shard = self.shards.at(place.shard).lock();
                let alarm = shard.reschedule(held, place.number, renew_at);
                drop(shard);
                self.heed(alarm);
            }
            Err(lost) => held.life.lose(lost),
        }
    }

    fn heed(self: &Arc<Self>, alarm: Alarm) {
        if alarm == Alarm::Set {
            self.wake();
        }
    }

    /// Tells the watch of a new alarm, starting one if there is none.
    fn wake(self: &Arc<Self>) {
        let mut watch = self.watch.lock();
        if is_over(watch.as_ref()) {
            *watch = Some(self.runtime.spawn(keep_watch(Arc::clone(self))).abort_handle());
        } else {
            self.alarm_set.notify_one();
        }
    }

    /// All that is to be renewed now, and when to look again. `None` if there is nothing to
    /// look for: from then on, the watch is over.
    fn look(&self) -> (Vec<(Place, Arc<Held>)>, Option<Instant>) {
        // Held while looking: whoever sets an alarm in a shard that was looked at already
        // is waiting for it, and then finds whether there is a watch.
        let mut watch = self.watch.lock();
        let now = Instant::now();
        let (mut due, mut next) = (Vec::new(), None);
        for (lane, shard) in self.shards.all() {
            let mut shard = shard.lock();
            let numbered = |(number, held)| (Place { shard: lane, number }, held);
            due.extend(shard.take_due(now).into_iter().map(numbered));
            next = next.into_iter().chain(shard.alarm).min();
        }
        if next.is_none() {
            *watch = None;
        }
        (due, next)
    }

    fn is_idle(&self) -> bool {
        let empty = || self.shards.iter().all(|shard| shard.lock().kept.is_empty());
        is_over(self.watch.lock().as_ref()) && empty()
    }
}

/// A watch is also over when its runtime is.
fn is_over(watch: Option<&AbortHandle>) -> bool {
    watch.is_none_or(AbortHandle::is_finished)
}

async fn keep_watch(keeper: Arc<Keeper>) {
    loop {
        let (due, next) = keeper.look();
        for (place, held) in due {
            // Each by itself: one that hangs does not hold up the others.
            tokio::spawn(renew(held, place));
        }
        let Some(alarm) = next else { return };
        tokio::select! {
            biased;
            () = keeper.alarm_set.notified() => {}
            () = sleep_until(alarm) => {}
        }
    }
}

async fn renew(held: Arc<Held>, place: Place) {
    let renewed = held.renew().await;
    held.keeper().renewed(&held, place, renewed);
}

/// Some of what a keeper keeps.
#[derive(Debug, Default)]
struct Shard {
    kept: Slab<Kept>,
    /// When the watch looks at this shard, at the latest. Stays when the permit that it was
    /// set for is settled, so that many short permits one after another set one alarm.
    alarm: Option<Instant>,
}

/// Whether the watch must hear of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alarm {
    /// It looks early enough anyway.
    AsBefore,
    /// There is a new alarm, which it does not know of.
    Set,
}

impl Shard {
    fn insert(&mut self, kept: Kept, renew_at: Instant) -> (usize, Alarm) {
        let number = self.kept.insert(kept);
        (number, self.set_alarm(renew_at))
    }

    /// Nothing to do if the claim was taken out of care while it was being renewed.
    fn reschedule(&mut self, held: &Held, number: usize, renew_at: Instant) -> Alarm {
        let Some(kept) = self.kept.get_mut(number).filter(|kept| kept.is(held)) else {
            return Alarm::AsBefore;
        };
        kept.renew_at = Some(renew_at);
        self.set_alarm(renew_at)
    }

    fn set_alarm(&mut self, renew_at: Instant) -> Alarm {
        if self.alarm.is_some_and(|alarm| alarm <= renew_at) {
            return Alarm::AsBefore;
        }
        self.alarm = Some(renew_at);
        Alarm::Set
    }

    fn take(&mut self, held: &Held, number: usize) -> Option<Kept> {
        self.kept.get(number).filter(|kept| kept.is(held))?;
        Some(self.kept.remove(number))
    }

    fn take_all(&mut self) -> impl Iterator<Item = Kept> + use<> {
        std::mem::take(&mut self.kept).into_iter().map(|(_, kept)| kept)
    }

    /// What is to be renewed now, with its numbers, if the alarm has gone off. Looks at all that
    /// is kept, so what is due soon is renewed too: a lease has a few alarms, not one for each
    /// permit.
    fn take_due(&mut self, now: Instant) -> Vec<(usize, Arc<Held>)> {
        let mut due = Vec::new();
        if self.alarm.is_none_or(|alarm| alarm > now) {
            return due;
        }
        self.alarm = None;
        for (number, kept) in &mut self.kept {
            let Some(renew_at) = kept.renew_at else { continue };
            if renew_at <= now + kept.held.engine.policy().renew_every() / 8 {
                kept.renew_at = None;
                due.push((number, Arc::clone(&kept.held)));
            } else {
                self.alarm = self.alarm.into_iter().chain([renew_at]).min();
            }
        }
        due
    }
}
