//! Shutdown: running requests are finished or marked as unknown.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use example_production::{Orders, Settings, app, engine, serve};
use example_walk::{App, Program, Response};
use onceward::{Drained, MemoryStore};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

const ORDER: &str = r#"{"customerId":"25dfc44e-3ed7-4eb4-b412-6a6df8c6d355","amount":99.99}"#;
const HEADERS: &[(&str, &str)] =
    &[("x-tenant-id", "2b8de313-9c3c-4a15-a9b8-0cd1e34be3da"), ("idempotency-key", "order-123")];

/// Starts a service. Returns it with a channel that stops it and the result of its drain.
async fn start(
    orders: &Orders,
    drain_max: Duration,
) -> (App, oneshot::Sender<()>, JoinHandle<Drained>) {
    let settings = Settings::default();
    let engine = engine(Arc::new(MemoryStore::new()), &settings).unwrap();
    let router = app(engine.clone(), orders.clone(), &settings).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (stop, stopped) = oneshot::channel();
    let stopped = async { stopped.await.unwrap() };
    let serving = async move { serve(listener, router, engine, drain_max, stopped).await };
    (App::at(&address), stop, tokio::spawn(serving))
}

/// Sends an order twice, and returns the request that runs until the database is unlocked. The other
/// one gets 409, which shows that this one has started.
async fn running_request(app: &App) -> JoinSet<Response> {
    let mut both = JoinSet::new();
    for _ in 0..2 {
        let app = app.clone();
        both.spawn(async move { app.post("/api/orders", HEADERS, ORDER).await });
    }
    assert_eq!(both.join_next().await.unwrap().unwrap().status, 409);
    both
}

#[tokio::test]
async fn running_requests_are_finished() {
    let orders = Orders::default();
    let database = orders.lock().await;
    let (app, stop, serving) = start(&orders, Duration::from_secs(60)).await;
    let mut running = running_request(&app).await;
    stop.send(()).unwrap();
    drop(database);
    assert_eq!(running.join_next().await.unwrap().unwrap().status, 201);
    assert_eq!(serving.await.unwrap(), Drained::Finished);
    assert_eq!(orders.lock().await.len(), 1);
}

#[tokio::test]
async fn requests_that_do_not_finish_are_marked_unknown() {
    let orders = Orders::default();
    let _database = orders.lock().await;
    let (app, stop, serving) = start(&orders, Duration::ZERO).await;
    let _running = running_request(&app).await;
    stop.send(()).unwrap();
    assert_eq!(serving.await.unwrap(), Drained::CutOff { marked: 1 });
}

#[cfg(unix)]
#[test]
fn sigterm_stops_the_program_gracefully() {
    let program = Program::start(env!("CARGO_BIN_EXE_example-production"), &[("PORT", "0")]);
    program.address();
    let (printed, status) = program.terminate();
    assert_eq!(printed, ["stopped: Finished"]);
    assert!(status.success(), "{status}");
}

#[test]
fn an_invalid_setting_ends_the_program_with_its_name_and_value() {
    for (name, value) in [("PORT", "many"), ("ONCEWARD_TTL", "soon"), ("ONCEWARD_LEASE", "2d")] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_example-production"));
        let output = program.env_clear().env("PORT", "0").env(name, value).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(name), "{error}");
        let shown = if name == "ONCEWARD_LEASE" { "172800s" } else { value };
        assert!(error.contains(shown), "{error}");
    }
}
