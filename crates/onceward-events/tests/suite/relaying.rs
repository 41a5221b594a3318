//! Relaying: every committed event once or more, in the order of its aggregate.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use onceward_events::{
    AggregateTypes, Event, EventId, LANES, OnFailure, Relay, RelaySettings, RelayStatus, Route,
};
use onceward_services::{Postgres, Server, or_skip};
use onceward_stores::postgres::Settings;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::common::{Fixture, event, eventually, plain, shared};
use super::recording_sink::RecordingSink;

/// A relay that runs until it is stopped, or dropped as in a crash.
struct Running {
    stop: Option<oneshot::Sender<()>>,
    status: watch::Receiver<RelayStatus>,
    task: JoinHandle<()>,
}

impl Running {
    async fn start(server: &Server, it: &Fixture, sink: &Arc<RecordingSink>) -> Self {
        Self::with(server, sink, settings(it)).await
    }

    async fn with(server: &Server, sink: &Arc<RecordingSink>, settings: RelaySettings) -> Self {
        let relay = Relay::open(server.url(), settings, sink.clone()).await.unwrap();
        let status = relay.status();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(relay.run(async { drop(stopped.await) }));
        Self { stop: Some(stop), status, task }
    }

    async fn stop(mut self) {
        drop(self.stop.take());
        (&mut self.task).await.unwrap();
    }

    fn status(&self) -> RelayStatus {
        self.status.borrow().clone()
    }
}

/// As in a crash: it says nothing, and its leases end by themselves.
impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Short times, so that tests see them pass.
fn settings(it: &Fixture) -> RelaySettings {
    RelaySettings {
        postgres: Settings { schema: it.schema.clone(), ..Settings::default() },
        lease: Duration::from_secs(2),
        poll: Duration::from_millis(200),
        backoff: Duration::from_millis(50),
        attempts_max: 3,
        ..RelaySettings::default()
    }
}

async fn publish(it: &mut Fixture, order: &str, event_type: &str) -> EventId {
    let tx = it.client.transaction().await.unwrap();
    let id = EventId::of_name(&format!("{order}/{event_type}"));
    let _ = it.outbox.publish(&tx, &event(order, event_type).with_id(id)).await.unwrap();
    tx.commit().await.unwrap();
    id
}

async fn is_empty(it: &Fixture) -> bool {
    let sql = format!("SELECT count(*) FROM {}.outbox_event", it.schema);
    it.client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0) == 0
}

#[tokio::test]
async fn events_are_delivered_in_the_order_of_their_aggregates_and_removed() {
    let Some(server) = shared() else { return };
    let (mut it, sink) = (Fixture::new(server).await, Arc::new(RecordingSink::default()));
    for number in 0..5 {
        publish(&mut it, "before", &format!("T{number}")).await;
    }
    let relay = Running::start(server, &it, &sink).await;
    for number in 0..50 {
        for order in ["a", "b", "c"] {
            publish(&mut it, order, &format!("T{number}")).await;
        }
    }
    eventually("all are removed", async || is_empty(&it).await).await;
    for (order, count) in [("before", 5), ("a", 50), ("b", 50), ("c", 50)] {
        let expected: Vec<_> = (0..count).map(|number| format!("T{number}")).collect();
        assert_eq!(sink.types_of(order), expected, "{order}");
    }
    assert!(sink.deliveries().values().all(|times| *times == 1), "once each");
    assert_eq!(relay.status().delivered, 155);
    relay.stop().await;
}

/// A cursor over positions would have passed it; waiting for it would hold up everything else.
#[tokio::test]
async fn a_transaction_that_commits_late_is_neither_lost_nor_waited_for() {
    let Some(server) = shared() else { return };
    let (mut it, sink) = (Fixture::new(server).await, Arc::new(RecordingSink::default()));
    let relay = Running::start(server, &it, &sink).await;
    let (mut late, mut idle) = (plain(server).await, plain(server).await);
    // One open transaction has published, and one has not.
    let late = late.transaction().await.unwrap();
    let created = event("late", "Created").with_id(EventId::of_name("late"));
    let _ = it.outbox.publish(&late, &created).await.unwrap();
    let idle = idle.transaction().await.unwrap();
    idle.batch_execute("SELECT pg_current_xact_id()").await.unwrap();
    for round in 0..5 {
        for number in 0..20 {
            publish(&mut it, "other", &format!("T{round}-{number}")).await;
        }
        let delivered = (round + 1) * 20;
        eventually("others go on", async || sink.types_of("other").len() == delivered).await;
    }
    assert!(sink.types_of("late").is_empty());
    late.commit().await.unwrap();
    eventually("it is delivered", async || sink.types_of("late") == ["Created"]).await;
    eventually("all are removed", async || is_empty(&it).await).await;
    assert!(sink.deliveries().values().all(|times| *times == 1));
    drop(idle);
    relay.stop().await;
}

#[tokio::test]
async fn what_is_rolled_back_is_never_delivered() {
    let Some(server) = shared() else { return };
    let (mut it, sink) = (Fixture::new(server).await, Arc::new(RecordingSink::default()));
    let relay = Running::start(server, &it, &sink).await;
    for number in 0..20 {
        let tx = it.client.transaction().await.unwrap();
        let id = EventId::of_name(&format!("abandoned {number}"));
        let _ = it.outbox.publish(&tx, &event("a", "Abandoned").with_id(id)).await.unwrap();
        tx.rollback().await.unwrap();
        publish(&mut it, "a", &format!("T{number}")).await;
    }
    eventually("all are removed", async || is_empty(&it).await).await;
    assert_eq!(sink.types_of("a"), (0..20).map(|it| format!("T{it}")).collect::<Vec<_>>());
    relay.stop().await;
}

#[tokio::test]
async fn a_failing_event_parks_its_aggregate_and_no_other() {
    let Some(server) = shared() else { return };
    let (mut it, sink) = (Fixture::new(server).await, Arc::new(RecordingSink::default()));
    sink.refuse("Poison");
    let relay = Running::start(server, &it, &sink).await;
    for event_type in ["First", "Poison", "Third"] {
        publish(&mut it, "a", event_type).await;
    }
    eventually("it is parked", async || relay.status().parked == 1).await;
    assert_eq!(relay.status().failed, 3, "attempts_max");
    publish(&mut it, "a", "Fourth").await;
    publish(&mut it, "b", "Other").await;
    eventually("others go on", async || sink.types_of("b") == ["Other"]).await;
    assert_eq!(sink.types_of("a"), ["First"]);
    let sql = format!("SELECT state, attempts, reason FROM {}.outbox_stalled", it.schema);
    let row = it.client.query_one(&sql, &[]).await.unwrap();
    let (state, attempts): (String, i32) = (row.get(0), row.get(1));
    assert_eq!((&*state, attempts, row.get(2)), ("parked", 3, "refused on demand"));

    // An operator lets it go on once the sink accepts it.
    sink.accept();
    it.client.batch_execute(&format!("DELETE FROM {}.outbox_stalled", it.schema)).await.unwrap();
    eventually("it goes on", async || sink.types_of("a").len() == 4).await;
    assert_eq!(sink.types_of("a"), ["First", "Poison", "Third", "Fourth"]);
    eventually("all are removed", async || is_empty(&it).await).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_parked_aggregate_stays_parked_for_the_next_relay() {
    let Some(server) = shared() else { return };
    let (mut it, sink) = (Fixture::new(server).await, Arc::new(RecordingSink::default()));
    sink.reject("Poison");
    let relay = Running::start(server, &it, &sink).await;
    publish(&mut it, "a", "Poison").await;
    eventually("it is parked", async || relay.status().parked == 1).await;
    assert_eq!(relay.status().failed, 1, "what is rejected is not tried again");
    relay.stop().await;
    let relay = Running::start(server, &it, &sink).await;
    publish(&mut it, "a", "Second").await;
    publish(&mut it, "b", "Other").await;
    eventually("others go on", async || sink.types_of("b") == ["Other"]).await;
    eventually("it is known", async || relay.status().parked == 1).await;
    assert!(sink.types_of("a").is_empty());
    relay.stop().await;
}

#[tokio::test]
async fn a_dead_letter_leaves_its_aggregate_going_on() {
    let Some(server) = shared() else { return };
    let (mut it, sink) = (Fixture::new(server).await, Arc::new(RecordingSink::default()));
    sink.refuse("Poison");
    let settings = RelaySettings { on_failure: OnFailure::DeadLetter, ..settings(&it) };
    let relay = Running::with(server, &sink, settings).await;
    for event_type in ["First", "Poison", "Third"] {
        publish(&mut it, "a", event_type).await;
    }
    eventually("it goes on", async || sink.types_of("a") == ["First", "Third"]).await;
    eventually("all are removed", async || is_empty(&it).await).await;
    let sql = format!("SELECT type, attempts, reason FROM {}.outbox_dead", it.schema);
    let row = it.client.query_one(&sql, &[]).await.unwrap();
    let (event_type, attempts): (String, i32) = (row.get(0), row.get(1));
    assert_eq!((&*event_type, attempts, row.get(2)), ("Poison", 3, "refused on demand"));
    let sql = format!("SELECT count(*) FROM {}.outbox_stalled", it.schema);
    assert_eq!(it.client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0), 0);
    relay.stop().await;
}

#[tokio::test]
async fn a_sink_that_is_down_costs_no_attempt_and_no_event() {
    let Some(server) = shared() else { return };
    let (mut it, sink) = (Fixture::new(server).await, Arc::new(RecordingSink::default()));
    sink.set_down(true);
    let relay = Running::start(server, &it, &sink).await;
    for number in 0..30 {
        publish(&mut it, &(number % 3).to_string(), &format!("T{number}")).await;
    }
    eventually("it is noticed", async || relay.status().sink_down.is_some()).await;
    eventually("it is tried again", async || sink.calls() > 4).await;
    assert_eq!((relay.status().failed, relay.status().parked), (0, 0));
    sink.set_down(false);
    eventually("all are removed", async || is_empty(&it).await).await;
    assert_eq!(sink.first_deliveries().len(), 30);
    assert_eq!(relay.status().sink_down, None);
    relay.stop().await;
}

#[tokio::test]
async fn relays_divide_the_lanes_and_one_that_dies_is_replaced() {
    let Some(server) = shared() else { return };
    let (mut it, sink) = (Fixture::new(server).await, Arc::new(RecordingSink::default()));
    sink.delay(Duration::from_millis(5));
    let first = Running::start(server, &it, &sink).await;
    eventually("it has all", async || first.status().lanes == usize::from(LANES)).await;
    let second = Running::start(server, &it, &sink).await;
    let shared_out = async || first.status().lanes == 32 && second.status().lanes == 32;
    eventually("they share", shared_out).await;
    for number in 0..200 {
        publish(&mut it, &(number % 10).to_string(), &format!("T{number:03}")).await;
        if number == 100 {
            first.task.abort();
        }
    }
    eventually("the other has all", async || second.status().lanes == usize::from(LANES)).await;
    eventually("all are removed", async || is_empty(&it).await).await;
    for order in 0..10 {
        let expected: Vec<_> = (0..20).map(|it| format!("T{:03}", it * 10 + order)).collect();
        assert_eq!(sink.types_of(&order.to_string()), expected);
    }
    // One that stops gives its lanes back at once: its lease is not waited for.
    second.stop().await;
    let long = RelaySettings { lease: Duration::from_secs(600), ..settings(&it) };
    let third = Running::with(server, &sink, long).await;
    eventually("they are free", async || third.status().lanes == usize::from(LANES)).await;
    third.stop().await;
}

#[tokio::test]
async fn a_relay_that_stops_finishes_its_batches() {
    let Some(server) = shared() else { return };
    let (mut it, sink) = (Fixture::new(server).await, Arc::new(RecordingSink::default()));
    sink.delay(Duration::from_millis(300));
    publish(&mut it, "a", "First").await;
    let relay = Running::start(server, &it, &sink).await;
    eventually("it is in flight", async || sink.calls() == 1).await;
    relay.stop().await;
    assert_eq!(sink.types_of("a"), ["First"]);
    assert!(is_empty(&it).await, "and removed");
}

#[tokio::test]
async fn a_database_that_restarts_loses_and_reorders_nothing() {
    let Some(server) = or_skip(Postgres::default().start()) else { return };
    let (mut it, sink) = (Fixture::new(&server).await, Arc::new(RecordingSink::default()));
    sink.delay(Duration::from_millis(3));
    let relay = Running::start(&server, &it, &sink).await;
    for round in 0..3 {
        for number in 0..40 {
            publish(&mut it, &(number % 4).to_string(), &format!("T{round}-{number:02}")).await;
        }
        server.kill().unwrap();
        server.restart().unwrap();
        it.client = plain(&server).await;
    }
    eventually("all are removed", async || is_empty(&it).await).await;
    for order in 0..4 {
        let expected: Vec<_> = (0..3)
            .flat_map(|round| {
                (0..10).map(move |number| format!("T{round}-{:02}", number * 4 + order))
            })
            .collect();
        assert_eq!(sink.types_of(&order.to_string()), expected);
    }
    relay.stop().await;
}

#[tokio::test]
async fn each_sink_gets_the_aggregate_types_of_its_route() {
    let Some(server) = shared() else { return };
    let mut it = Fixture::new(server).await;
    let (orders, others) = (Arc::new(RecordingSink::default()), Arc::new(RecordingSink::default()));
    let route = |name: &str, types| {
        let route = Route { name: name.to_owned(), types };
        RelaySettings { route, ..settings(&it) }
    };
    let order: BTreeSet<_> = ["order".to_owned()].into();
    let routes = [
        (&orders, route("orders", AggregateTypes::Only(order.clone()))),
        (&others, route("others", AggregateTypes::AllBut(order))),
    ];
    let mut relays = Vec::new();
    for (sink, settings) in routes {
        relays.push(Running::with(server, sink, settings).await);
    }
    // One sink that is down does not hold up the other.
    others.set_down(true);
    let tx = it.client.transaction().await.unwrap();
    let customer = Event::json("customer", "1", "Moved", "x").unwrap();
    let both = [
        event("1", "Created").with_id(EventId::of_name("order")),
        customer.with_id(EventId::of_name("customer")),
    ];
    let _ = it.outbox.publish_all(&tx, &both).await.unwrap();
    tx.commit().await.unwrap();
    eventually("its sink has it", async || orders.first_deliveries().len() == 1).await;
    others.set_down(false);
    eventually("its sink has it", async || others.first_deliveries().len() == 1).await;
    eventually("all are removed", async || is_empty(&it).await).await;
    assert_eq!(orders.first_deliveries()[0].event_type, "Created");
    assert_eq!(others.first_deliveries()[0].event_type, "Moved");
    for relay in relays {
        relay.stop().await;
    }
}

#[tokio::test]
async fn an_event_wakes_a_relay_that_waits() {
    let Some(server) = shared() else { return };
    let (mut it, sink) = (Fixture::new(server).await, Arc::new(RecordingSink::default()));
    let settings = RelaySettings {
        poll: Duration::from_secs(600),
        lease: Duration::from_secs(600),
        ..settings(&it)
    };
    let relay = Running::with(server, &sink, settings).await;
    eventually("it has all", async || relay.status().lanes == usize::from(LANES)).await;
    let sql = format!(
        "SELECT count(*) FROM {}.outbox_relay WHERE waiting_until > clock_timestamp()",
        it.schema
    );
    let waits = async || it.client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0) == 1;
    eventually("it waits", waits).await;
    publish(&mut it, "a", "First").await;
    eventually("it is delivered", async || sink.types_of("a") == ["First"]).await;
    relay.stop().await;
}
