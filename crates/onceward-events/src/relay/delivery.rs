//! One relay at work.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::batch::{AggregateResult, Batches};
use super::database::{Database, DatabaseError, Delivered, Stall};
use super::lanes::Lanes;
use super::listener::Listener;
use super::queue::{After, Queue};
use super::reader::Reader;
use super::{OnFailure, Relay, RelaySettings, RelayStatus};
use crate::event::{Aggregate, Lane};
use crate::outbox::channel;
use crate::sink::{Delivery, SinkError};
use onceward_stores::postgres::{OpenError, Server};

/// Events of a round from which on notifications are not needed: the next round begins anyway.
const BUSY_EVENTS: usize = 100;

/// For how long publishing notifies a relay that waits.
const NOTIFY_FOR: Duration = Duration::from_secs(10);

/// Events that are read at once of an aggregate that fell behind.
const AGGREGATE_EVENTS: usize = 10_000;

/// A relay with its state. Each step of [`run`](Self::run) may be repeated: an error of the database
/// only makes it connect again.
pub(super) struct Deliverer {
    server: Server,
    settings: RelaySettings,
    status: watch::Sender<RelayStatus>,
    listener: Listener,
    connections: Option<Connections>,
    lanes: Lanes,
    reader: Reader,
    queue: Queue,
    batches: Batches,
    /// Delivered events that are still in the outbox.
    to_remove: Vec<Delivered>,
    /// Aggregates that were stalled and go on again.
    recovered: Vec<Aggregate>,
    /// Failed attempts that are not written down yet.
    failures: Vec<Failure>,
    sink: SinkState,
    read_at: Instant,
    waiting_until: Instant,
    stopping: bool,
}

/// Reads and removals run at the same time.
struct Connections {
    reading: Database,
    removing: Database,
}

/// A failed attempt at the first event that an aggregate has left.
struct Failure {
    result: AggregateResult,
    error: SinkError,
    rejected: bool,
}

/// Whether the sink can be reached.
#[derive(Debug)]
struct SinkState {
    down: u32,
    try_at: Instant,
}

/// Why the relay cannot use the database.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Statement(#[from] DatabaseError),
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Statement(error.into())
    }
}

impl Deliverer {
    pub(super) fn new(relay: Relay) -> Self {
        let Relay { server, settings, sink, status } = relay;
        let postgres = settings.postgres.clone();
        let listener =
            Listener::start(server.clone(), postgres, channel(&settings.postgres.schema));
        let now = Instant::now();
        Self {
            listener,
            connections: None,
            lanes: Lanes::new(settings.name.clone(), settings.lease),
            reader: Reader::default(),
            queue: Queue::default(),
            batches: Batches::new(sink.0, settings.deliver_timeout),
            to_remove: Vec::new(),
            recovered: Vec::new(),
            failures: Vec::new(),
            sink: SinkState { down: 0, try_at: now },
            read_at: now,
            waiting_until: now,
            stopping: false,
            server,
            settings,
            status,
        }
    }

    pub(super) async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut failures = 0;
        loop {
            let wait_until = match self.step().await {
                Ok(next) => {
                    failures = 0;
                    self.report(None);
                    next
                }
                Err(trouble) => {
                    failures += 1;
                    self.database_failed(&trouble, failures);
                    Instant::now() + self.settings.backoff_after(failures).min(self.settings.lease)
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => break,
                results = self.batches.next() => self.take_results(results),
                () = self.listener.woken(), if failures == 0 => self.read_at = Instant::now(),
                () = sleep_until(wait_until) => {}
            }
        }
        self.stop().await;
    }

    /// Does all that can be done now. Returns when there may be more to do without a notification or
    /// the end of a batch.
    async fn step(&mut self) -> Result<Instant, Trouble> {
        while let Some(results) = self.batches.ended() {
            self.take_results(results);
        }
        self.drop_ended_lanes();
        self.connect().await?;
        if Instant::now() >= self.lanes.renew_at() {
            self.renew().await?;
        }
        self.write_failures().await?;
        self.release_lanes().await?;
        self.read_stalled_events().await?;
        let read = self.read_and_remove().await?;
        self.start_batches();
        Ok(if read { Instant::now() } else { self.next_step() })
    }

    async fn connect(&mut self) -> Result<(), Trouble> {
        let closed = |it: &Connections| it.reading.is_closed() || it.removing.is_closed();
        if self.connections.as_ref().is_some_and(|it| !closed(it)) {
            return Ok(());
        }
        self.connections = None;

        let (postgres, route) = (&self.settings.postgres, &self.settings.route);
        let open = async || {
            let client = self.server.connect(postgres).await?;
            Ok::<_, Trouble>(Database::new(client, &postgres.schema, route).await?)
        };

        let (reading, removing) = (open().await?, open().await?);
        reading.make_lanes().await?;
        self.connections = Some(Connections { reading, removing });
        self.reader.restart();
        self.queue.forget_waiting();
        self.read_at = Instant::now();
        Ok(())
    }

    /// Renews the leases, and learns which aggregates are stalled.
    async fn renew(&mut self) -> Result<(), Trouble> {
        let Some(Connections { reading, .. }) = &self.connections else { return Ok(()) };
        let change = self.lanes.renew(reading).await?;
        self.drop_lanes(&change.lost);
        if !change.taken.is_empty() {
            tracing::info!(lanes = change.taken.len(), "took lanes of the outbox");
        }
        self.learn_stalled().await?;
        // Stalled aggregates are known before the first event of a lane is read.
        self.reader.add(change.taken.iter().copied());
        if !change.taken.is_empty() {
            self.read_at = Instant::now();
        }
        Ok(())
    }

    /// Learns which aggregates are stalled: by a former relay, or parked by an operator.
    async fn learn_stalled(&mut self) -> Result<(), Trouble> {
        let Some(Connections { reading, .. }) = &self.connections else { return Ok(()) };
        let now = Instant::now();
        let stalled = reading.stalled(&self.lanes.live(now)).await?;
        let mut unnoticed = Vec::new();
        let mut unparked = self.queue.parked().clone();
        for it in stalled {
            if it.parked {
                unparked.remove(&it.aggregate);
                self.queue.park(&it.aggregate, it.attempts);
                if !it.noticed {
                    unnoticed.push(it.aggregate);
                }
            } else {
                self.queue.continue_attempts(&it.aggregate, it.attempts, now + it.wait);
            }
        }
        for aggregate in &unparked {
            self.queue.unpark(aggregate);
        }
        if !unnoticed.is_empty() {
            reading.notice(&unnoticed).await?;
        }
        Ok(())
    }

    /// Takes the results of a batch.
    fn take_results(&mut self, results: Vec<AggregateResult>) {
        let now = Instant::now();
        for result in results {
            // Another relay has the lane, and delivers what is left.
            if self.lanes.fenced(result.lane.lane, now) != Some(result.lane) {
                continue;
            }
            self.take_result(result, now);
        }
    }

    fn take_result(&mut self, mut result: AggregateResult, now: Instant) {
        let Some(first) = result.events.first() else { return };
        let aggregate = first.aggregate.clone();
        let delivered = &result.events[..result.delivered];
        let lane = result.lane;
        self.to_remove.extend(delivered.iter().map(|it| Delivered {
            position: it.position,
            id: it.id,
            lane,
        }));
        if let Some(last) = delivered.last() {
            self.sink.down = 0;
            let (count, created_at) = (delivered.len() as u64, last.created_at);
            self.status.send_modify(|status| {
                status.delivered += count;
                status.last_created_at = Some(created_at);
                status.sink_down = None;
            });
            if self.queue.attempts(&aggregate) > 0 {
                self.recovered.push(aggregate.clone());
            }
        }
        match result.failure.take() {
            None | Some(Delivery::Delivered | Delivery::Held) => {
                self.queue.finish(&aggregate, result.delivered, After::GoOn);
            }
            Some(Delivery::Unavailable(error)) => {
                let until = self.sink_failed(error, now);
                self.queue.finish(&aggregate, result.delivered, After::PostponeUntil(until));
            }
            Some(Delivery::Failed(error)) => {
                self.failures.push(Failure { result, error, rejected: false });
            }
            Some(Delivery::Rejected(error)) => {
                self.failures.push(Failure { result, error, rejected: true });
            }
        }
    }

    /// Notes that the sink is down. Returns when it is tried again.
    fn sink_failed(&mut self, error: SinkError, now: Instant) -> Instant {
        if now >= self.sink.try_at {
            self.sink.down += 1;
            let pause = self.settings.backoff_after(self.sink.down);
            self.sink.try_at = now + pause.min(self.settings.backoff_max);
            tracing::warn!(%error, attempts = self.sink.down, "the sink is down, will try again");
            self.status.send_modify(|status| status.sink_down = Some(error.0));
        }
        self.sink.try_at
    }

    /// Writes failed attempts down, and lets their aggregates wait, park or go on without the event.
    async fn write_failures(&mut self) -> Result<(), Trouble> {
        while let Some(failure) = self.failures.last() {
            let Some(Connections { reading, .. }) = &self.connections else { return Ok(()) };
            let result = &failure.result;
            let Some(event) = result.events.get(result.delivered) else {
                self.failures.pop();
                continue;
            };
            let aggregate = event.aggregate.clone();
            let attempts = match result.delivered {
                0 => self.queue.attempts(&aggregate) + 1,
                _ => 1,
            };
            let (last, reason) = (self.is_last(attempts, failure.rejected), &*failure.error.0);
            let (fence, wait) = (result.lane.fence, self.settings.backoff_after(attempts));
            let after = match self.settings.on_failure {
                OnFailure::DeadLetter if last => {
                    tracing::error!(event = %event.id, %aggregate, reason, "a dead letter");
                    let buried = reading.bury(event, fence, attempts, reason).await?;
                    self.status.send_modify(|status| status.dead += u64::from(buried));
                    After::ReadAgain
                }
                OnFailure::Park if last => {
                    tracing::error!(event = %event.id, %aggregate, reason, "parked");
                    let stall = Stall { event, fence, parked: true, attempts, wait, reason };
                    reading.stall(&stall).await?;
                    After::Park
                }
                OnFailure::DeadLetter | OnFailure::Park | OnFailure::Retry => {
                    tracing::warn!(event = %event.id, %aggregate, attempts, reason, "not delivered");
                    let stall = Stall { event, fence, parked: false, attempts, wait, reason };
                    reading.stall(&stall).await?;
                    After::RetryAt(Instant::now() + wait)
                }
            };
            self.queue.finish(&aggregate, result.delivered, after);
            self.status.send_modify(|status| status.failed += 1);
            self.failures.pop();
        }
        Ok(())
    }

    fn is_last(&self, attempts: u32, rejected: bool) -> bool {
        rejected || attempts >= self.settings.attempts_max
    }

    /// Gives up lanes above this relay's share, once nothing of them is in flight or to be removed.
    async fn release_lanes(&mut self) -> Result<(), Trouble> {
        let mut lanes = self.lanes.leaving();
        lanes.retain(|lane| !self.is_busy(*lane));
        let Some(Connections { reading, .. }) = &self.connections else { return Ok(()) };
        if !lanes.is_empty() {
            self.lanes.release(reading, &lanes).await?;
            self.drop_lanes(&lanes);
        }
        Ok(())
    }

    fn is_busy(&self, lane: Lane) -> bool {
        self.queue.is_in_flight(lane) || self.to_remove.iter().any(|it| it.lane.lane == lane)
    }

    fn drop_ended_lanes(&mut self) {
        let ended = self.lanes.drop_ended(Instant::now());
        if !ended.is_empty() {
            tracing::warn!(lanes = ended.len(), "leases ended before they could be renewed");
            self.drop_lanes(&ended);
        }
    }

    fn drop_lanes(&mut self, lanes: &[Lane]) {
        lanes.iter().for_each(|lane| self.queue.drop_lane(*lane));
        self.reader.remove(lanes);
        self.to_remove.retain(|it| !lanes.contains(&it.lane.lane));
        self.failures.retain(|it| !lanes.contains(&it.result.lane.lane));
    }

    /// Reads events of aggregates that fell behind, between two rounds.
    async fn read_stalled_events(&mut self) -> Result<(), Trouble> {
        if self.reader.is_in_round() {
            return Ok(());
        }
        let Some(Connections { reading, .. }) = &self.connections else { return Ok(()) };
        for (aggregate, after) in self.queue.take_unread() {
            let Some(snapshot) = self.reader.snapshot(aggregate.lane()) else {
                self.queue.read_again(aggregate);
                continue;
            };
            let limit = AGGREGATE_EVENTS;
            match reading.read_aggregate(&aggregate, snapshot, after, limit).await {
                Ok(events) => {
                    let complete = events.len() < limit;
                    self.queue.add_read(&aggregate, events, complete);
                }
                Err(error) => {
                    self.queue.read_again(aggregate);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Reads a page of events if there is room, and removes delivered ones at the same time. Returns
    /// true if there may be more to read at once.
    async fn read_and_remove(&mut self) -> Result<bool, Trouble> {
        let wanted =
            self.has_room() && (self.reader.is_in_round() || Instant::now() >= self.read_at);
        let Some(Connections { reading, removing }) = &self.connections else { return Ok(false) };
        let (reader, to_remove, recovered) = (&mut self.reader, &self.to_remove, &self.recovered);
        let read = async {
            match wanted && !self.stopping {
                true => reader.read(reading).await.map(Some),
                false => Ok(None),
            }
        };
        let remove = async {
            if !to_remove.is_empty() {
                removing.remove(to_remove).await?;
            }
            if !recovered.is_empty() {
                removing.recovered(recovered).await?;
            }
            Ok::<_, DatabaseError>(())
        };
        let (page, removed) = tokio::join!(read, remove);
        removed?;
        self.to_remove.clear();
        self.recovered.clear();
        let page = match page {
            Ok(Some(page)) => page,
            Ok(None) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let count = page.events.len();
        for event in page.events {
            if self.reader.reads(event.lane) {
                self.queue.push(event);
            }
        }
        if !page.ended {
            return Ok(true);
        }
        self.after_round(count).await
    }

    /// After a round: reads on at once, or waits for a notification or the next poll.
    async fn after_round(&mut self, last_page: usize) -> Result<bool, Trouble> {
        let now = Instant::now();
        let Some(Connections { reading, .. }) = &self.connections else { return Ok(false) };
        let relay = self.lanes.relay();
        if last_page >= BUSY_EVENTS {
            if self.waiting_until > now {
                self.waiting_until = now;
                reading.wait(relay, Duration::ZERO).await?;
            }
            self.read_at = now;
            return Ok(true);
        }
        self.read_at = now + self.settings.poll;
        if self.waiting_until < now + self.settings.poll {
            self.waiting_until = now + NOTIFY_FOR;
            reading.wait(relay, NOTIFY_FOR).await?;
            // Events that were committed just before would not notify.
            self.read_at = now;
            return Ok(true);
        }
        Ok(false)
    }

    fn has_room(&self) -> bool {
        self.queue.len() < self.settings.buffer_events_max
            && self.queue.bytes() < self.settings.buffer_bytes_max
    }

    fn start_batches(&mut self) {
        let now = Instant::now();
        // While the sink is down, one batch at a time tries it.
        let most = if self.sink.down > 0 { 1 } else { self.settings.batches_max.max(1) };
        if self.sink.down > 0 && now < self.sink.try_at {
            return;
        }
        while self.batches.len() < most && !self.stopping {
            let lanes = &self.lanes;
            let may = |lane| lanes.may_deliver(lane, now);
            let events = self.queue.take_batch(self.settings.batch_events_max, now, may);
            if events.is_empty() {
                return;
            }
            let fences: BTreeMap<_, _> = events
                .iter()
                .filter_map(|event| Some((event.lane, lanes.fenced(event.lane, now)?.fence)))
                .collect();
            self.batches.start(events, fences);
        }
    }

    /// When there may be something to do without a notification or the end of a batch.
    fn next_step(&self) -> Instant {
        let mut next = self.lanes.renew_at();
        if self.has_room() {
            next = next.min(self.read_at);
        }
        if self.sink.down > 0 {
            next = next.min(self.sink.try_at.max(Instant::now()));
        }
        if let Some(due) = self.queue.next_due() {
            next = next.min(due);
        }
        next
    }

    fn database_failed(&mut self, trouble: &Trouble, failures: u32) {
        let reason = SinkError::of(trouble).0;
        tracing::warn!(reason, failures, "the outbox cannot be used, will try again");
        self.connections = None;
        self.report(Some(reason));
    }

    fn report(&self, database_down: Option<String>) {
        let (lanes, queued) = (self.lanes.live(Instant::now()).len(), self.queue.len());
        let (batches, parked) = (self.batches.len(), self.queue.parked().len());
        self.status.send_if_modified(|status| {
            let before = status.clone();
            status.lanes = lanes;
            status.queued = queued;
            status.batches = batches;
            status.parked = parked;
            status.database_down = database_down;
            *status != before
        });
    }

    /// Finishes the batches, and gives up the lanes.
    async fn stop(mut self) {
        self.stopping = true;
        let end = Instant::now() + self.settings.drain;
        self.lanes.leave_all();
        while self.batches.len() > 0 || !self.to_remove.is_empty() {
            if self.batches.len() > 0 {
                let Ok(results) = timeout_at(end, self.batches.next()).await else { break };
                self.take_results(results);
            }
            if let Ok(Err(trouble)) = timeout_at(end, self.step()).await {
                tracing::warn!(%trouble, "delivered events could not be removed: they will be delivered again");
                break;
            }
        }
        let leave = async {
            self.step().await?;
            match &self.connections {
                Some(Connections { reading, .. }) => Ok(reading.leave(self.lanes.relay()).await?),
                None => Ok::<_, Trouble>(()),
            }
        };
        let left = timeout_at(end, leave).await;
        if !matches!(left, Ok(Ok(()))) {
            tracing::warn!(
                "the relay could not say that it stops: its lanes are free when their leases end"
            );
        }
        self.report(None);
    }
}
