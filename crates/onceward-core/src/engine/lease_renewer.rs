//! Renews the leases of all permits in the background.
//!
//! A permit has neither a task nor a timer of its own: most are settled long before their
//! first renewal is due. A claim is *tracked* from its grant until its permit is settled or
//! dropped, or a drain cuts it off. Either the permit or the drain takes the claim out of its
//! renewer, and that one has to end it; the other finds it gone.
//!
//! Each runtime on which permits are granted has its own renewer, because timers and tasks
//! belong to a runtime, and one runtime may end or stall before another does.

use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use slab::Slab;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::claim_handle::ClaimHandle;
use super::permit::LeaseLost;
use crate::per_thread::{PerThread, ThreadSlot};

/// The renewers of an engine: one for each runtime, so usually one.
#[derive(Debug, Default)]
pub(super) struct LeaseRenewers {
    /// The renewer of the first runtime, usually the only one. It is never replaced, so it
    /// needs no lock.
    first: OnceLock<Arc<LeaseRenewer>>,
    others: RwLock<Vec<Arc<LeaseRenewer>>>,
}

impl LeaseRenewers {
    /// The renewer of the current runtime.
    pub(super) fn current(&self) -> RenewerRef {
        let runtime = Handle::current();
        let first = self.first.get_or_init(|| Arc::new(LeaseRenewer::on(runtime.clone())));
        if first.runtime.id() == runtime.id() {
            return RenewerRef::First;
        }
        let known = find(&self.others.read(), &runtime);
        RenewerRef::Other(known.unwrap_or_else(|| self.add(runtime)))
    }

    #[expect(clippy::expect_used, reason = "references come from `current`, which sets the first")]
    pub(super) fn get<'k>(&'k self, by: &'k RenewerRef) -> &'k Arc<LeaseRenewer> {
        match by {
            RenewerRef::First => self.first.get().expect("the first renewer is set"),
            RenewerRef::Other(renewer) => renewer,
        }
    }

    fn add(&self, runtime: Handle) -> Arc<LeaseRenewer> {
        let mut renewers = self.others.write();
        if let Some(added_meanwhile) = find(&renewers, &runtime) {
            return added_meanwhile;
        }
        // Runtimes end without notice, so idle renewers are dropped here.
        renewers.retain(|renewer| !renewer.is_idle());
        let renewer = Arc::new(LeaseRenewer::on(runtime));
        renewers.push(Arc::clone(&renewer));
        renewer
    }

    /// Takes out all tracked claims.
    pub(super) fn take_all(&self) -> Vec<TrackedClaim> {
        let others = self.others.read();
        self.first
            .get()
            .into_iter()
            .chain(&*others)
            .flat_map(|renewer| renewer.take_all())
            .collect()
    }
}

impl LeaseRenewers {
    /// The claims that are tracked now.
    pub(super) fn tracked(&self) -> Vec<Arc<ClaimHandle>> {
        let others = self.others.read();
        let renewers = self.first.get().into_iter().chain(&*others);
        let shards = renewers.flat_map(|renewer| renewer.shards.iter());
        shards
            .flat_map(|shard| {
                let shard = shard.lock();
                shard.tracked.iter().map(|(_, it)| Arc::clone(&it.handle)).collect::<Vec<_>>()
            })
            .collect()
    }
}

impl Drop for LeaseRenewers {
    /// Stops the timers. A tracked claim owns the engine, so no claim is tracked here.
    fn drop(&mut self) {
        for renewer in self.first.get().into_iter().chain(&*self.others.get_mut()) {
            if let Some(timer) = renewer.timer.lock().take() {
                timer.abort();
            }
        }
    }
}

/// A reference to one of an engine's renewers. The first has no `Arc` here, whose counter all
/// threads would contend for.
#[derive(Debug)]
pub(super) enum RenewerRef {
    First,
    Other(Arc<LeaseRenewer>),
}

fn find(renewers: &[Arc<LeaseRenewer>], runtime: &Handle) -> Option<Arc<LeaseRenewer>> {
    renewers.iter().find(|renewer| renewer.runtime.id() == runtime.id()).cloned()
}

/// Renews the leases that were granted on one runtime.
///
/// One task, the timer, sleeps until the earliest alarm. The first permit starts it; it ends at
/// an alarm at which no claim is tracked.
#[derive(Debug)]
pub(super) struct LeaseRenewer {
    runtime: Handle,
    shards: PerThread<Mutex<Shard>>,
    /// Locked before any shard where both are locked.
    timer: Mutex<Option<AbortHandle>>,
    alarm_set: Notify,
}

/// A claim in a renewer, or taken out of it and not ended yet. A drain waits for it.
#[derive(Debug)]
pub(super) struct TrackedClaim {
    pub(super) handle: Arc<ClaimHandle>,
    /// When its lease is due for renewal. `None` during a renewal and after the lease was lost.
    pub(super) renew_at: Option<Instant>,
    counted: ThreadSlot,
}

impl TrackedClaim {
    fn new(handle: Arc<ClaimHandle>, renew_at: Instant) -> Self {
        let counted = handle.engine.shared().drain.enter();
        Self { handle, renew_at: Some(renew_at), counted }
    }

    /// True if it is this claim, and not a later one at the same position.
    fn is(&self, handle: &ClaimHandle) -> bool {
        std::ptr::eq(&*self.handle, handle)
    }
}

impl Drop for TrackedClaim {
    fn drop(&mut self) {
        self.handle.engine.shared().drain.leave(self.counted);
    }
}

/// Shard and index of a tracked claim. Reused after the claim is taken out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    shard: ThreadSlot,
    index: usize,
}

impl LeaseRenewer {
    fn on(runtime: Handle) -> Self {
        Self {
            runtime,
            shards: PerThread::default(),
            timer: Mutex::default(),
            alarm_set: Notify::new(),
        }
    }

    /// The runtime for background work on claims tracked here.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Tracks a claim. Its lease is renewed from `renew_at` on.
    pub(super) fn track(self: &Arc<Self>, handle: Arc<ClaimHandle>, renew_at: Instant) -> Position {
        let tracked = TrackedClaim::new(handle, renew_at);
        let (slot, shard) = self.shards.current();
        let (index, alarm) = shard.lock().insert(tracked, renew_at);
        self.wake_for(alarm);
        Position { shard: slot, index }
    }

    /// Takes a claim out. `None` if it was taken out before.
    pub(super) fn take(&self, handle: &ClaimHandle, position: Position) -> Option<TrackedClaim> {
        self.shards.at(position.shard).lock().take(handle, position.index)
    }

    fn take_all(&self) -> Vec<TrackedClaim> {
        self.shards.iter().flat_map(|shard| shard.lock().take_all()).collect()
    }

    /// Stores the result of a renewal.
    fn renewed(
        self: &Arc<Self>,
        handle: &ClaimHandle,
        position: Position,
        renewed: Result<Instant, LeaseLost>,
    ) {
        match renewed {
            Ok(renew_at) => {
                let mut shard = self.shards.at(position.shard).lock();
                let alarm = shard.reschedule(handle, position.index, renew_at);
                drop(shard);
                self.wake_for(alarm);
            }
            Err(lost) => handle.lease.end(lost),
        }
    }

    fn wake_for(self: &Arc<Self>, alarm: Alarm) {
        if alarm == Alarm::Earlier {
            self.wake();
        }
    }

    /// Wakes the timer, or starts it.
    fn wake(self: &Arc<Self>) {
        let mut timer = self.timer.lock();
        if is_over(timer.as_ref()) {
            *timer = Some(self.runtime.spawn(run_timer(Arc::clone(self))).abort_handle());
        } else {
            self.alarm_set.notify_one();
        }
    }

    /// Takes all renewals that are due, and returns the next alarm. `None` ends the timer:
    /// no alarm is set.
    fn due(&self) -> (Vec<(Position, Arc<ClaimHandle>)>, Option<Instant>) {
        // Locked throughout: a caller that sets an alarm in a shard already visited waits in
        // `wake` for this lock, and then sees whether the timer has ended.
        let mut timer = self.timer.lock();
        let now = Instant::now();
        let (mut due, mut next) = (Vec::new(), None);
        for (slot, shard) in self.shards.all() {
            let mut shard = shard.lock();
            let positioned = |(index, handle)| (Position { shard: slot, index }, handle);
            due.extend(shard.take_due(now).into_iter().map(positioned));
            next = next.into_iter().chain(shard.alarm).min();
        }
        if next.is_none() {
            *timer = None;
        }
        (due, next)
    }

    fn is_idle(&self) -> bool {
        let empty = || self.shards.iter().all(|shard| shard.lock().tracked.is_empty());
        is_over(self.timer.lock().as_ref()) && empty()
    }
}

/// A timer is over if it has ended, or its runtime has.
fn is_over(timer: Option<&AbortHandle>) -> bool {
    timer.is_none_or(AbortHandle::is_finished)
}

async fn run_timer(renewer: Arc<LeaseRenewer>) {
    loop {
        let (due, next) = renewer.due();
        for (position, handle) in due {
            // A task each: a renewal that hangs does not delay the others.
            tokio::spawn(renew(handle, position));
        }
        let Some(alarm) = next else { return };
        tokio::select! {
            biased;
            () = renewer.alarm_set.notified() => {}
            () = sleep_until(alarm) => {}
        }
    }
}

async fn renew(handle: Arc<ClaimHandle>, position: Position) {
    let renewed = handle.renew().await;
    handle.renewer().renewed(&handle, position, renewed);
}

/// The tracked claims of one thread slot.
#[derive(Debug, Default)]
struct Shard {
    tracked: Slab<TrackedClaim>,
    /// When the timer visits this shard at the latest. Stays when the claim that it was set
    /// for is settled, so that many short claims in a row set one alarm.
    alarm: Option<Instant>,
}

/// Effect of a claim on its shard's alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alarm {
    /// The alarm is early enough.
    Unchanged,
    /// The alarm is earlier now, and the timer has to be woken.
    Earlier,
}

impl Shard {
    fn insert(&mut self, tracked: TrackedClaim, renew_at: Instant) -> (usize, Alarm) {
        let index = self.tracked.insert(tracked);
        (index, self.set_alarm(renew_at))
    }

    /// Does nothing if the claim was taken out during its renewal.
    fn reschedule(&mut self, handle: &ClaimHandle, index: usize, renew_at: Instant) -> Alarm {
        let Some(tracked) = self.tracked.get_mut(index).filter(|tracked| tracked.is(handle)) else {
            return Alarm::Unchanged;
        };
        tracked.renew_at = Some(renew_at);
        self.set_alarm(renew_at)
    }

    fn set_alarm(&mut self, renew_at: Instant) -> Alarm {
        if self.alarm.is_some_and(|alarm| alarm <= renew_at) {
            return Alarm::Unchanged;
        }
        self.alarm = Some(renew_at);
        Alarm::Earlier
    }

    fn take(&mut self, handle: &ClaimHandle, index: usize) -> Option<TrackedClaim> {
        self.tracked.get(index).filter(|tracked| tracked.is(handle))?;
        Some(self.tracked.remove(index))
    }

    fn take_all(&mut self) -> impl Iterator<Item = TrackedClaim> + use<> {
        std::mem::take(&mut self.tracked).into_iter().map(|(_, tracked)| tracked)
    }

    /// Returns the claims that are due, if the alarm has gone off. Claims that are due soon are
    /// renewed with them, so there are a few alarms a lease and not one for each claim.
    fn take_due(&mut self, now: Instant) -> Vec<(usize, Arc<ClaimHandle>)> {
        let mut due = Vec::new();
        if self.alarm.is_none_or(|alarm| alarm > now) {
            return due;
        }
        self.alarm = None;
        for (index, tracked) in &mut self.tracked {
            let Some(renew_at) = tracked.renew_at else { continue };
            if renew_at <= now + tracked.handle.engine.policy().renew_every() / 8 {
                tracked.renew_at = None;
                due.push((index, Arc::clone(&tracked.handle)));
            } else {
                self.alarm = self.alarm.into_iter().chain([renew_at]).min();
            }
        }
        due
    }
}
