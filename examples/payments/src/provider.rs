//! Simulated payment provider, on its own port. It can decline cards, lose requests and responses,
//! and be unreachable.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The payment provider, with its ledger of charges. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Provider {
    ledger: Arc<Mutex<Ledger>>,
}

#[derive(Debug, Default)]
struct Ledger {
    charges: Vec<Charge>,
    /// Keys whose first request was lost.
    lost_keys: BTreeSet<String>,
    /// Charges again for a key that was charged before.
    ignores_keys: bool,
}

/// A charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Charge {
    /// The provider's id of the charge.
    pub id: String,
    /// The `Idempotency-Key` of the request.
    pub key: String,
    /// The amount.
    pub amount_cents: u64,
}

/// Request body of POST /charges, and of the shop's POST /orders.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewCharge {
    /// The amount.
    pub amount_cents: u64,
    /// A test card: `tok_ok`, `tok_declined`, `tok_lost_request` or `tok_lost_answer`.
    pub card: String,
}

impl Provider {
    /// A provider that ignores idempotency keys: it charges every request, so that a test sees
    /// each request that is sent twice.
    pub fn without_idempotency() -> Self {
        let ledger = Ledger { ignores_keys: true, ..Ledger::default() };
        Self { ledger: Arc::new(Mutex::new(ledger)) }
    }

    /// All charges so far.
    pub fn charges(&self) -> Vec<Charge> {
        self.ledger().charges.clone()
    }

    /// Routes of the provider's API.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/charges", post(charge).get(list))
            .route("/charges/{key}", get(find))
            .with_state(self.clone())
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes one charge per key, as real providers do.
async fn charge(
    State(provider): State<Provider>,
    headers: HeaderMap,
    Json(new): Json<NewCharge>,
) -> Response {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let Some(key) = key.map(str::to_owned) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let mut ledger = provider.ledger();
    let known = ledger.charges.iter().find(|charge| charge.key == key);
    if let Some(charge) = known.filter(|_| !ledger.ignores_keys) {
        println!("  provider: {key} was charged before, as {}", charge.id);
        return Json(charge).into_response();
    }
    match new.card.as_str() {
        "tok_declined" => {
            println!("  provider: {key} declined");
            return StatusCode::PAYMENT_REQUIRED.into_response();
        }
        "tok_lost_request" if ledger.lost_keys.insert(key.clone()) => {
            println!("  provider: {key} dropped before the charge");
            return drop_connection();
        }
        _ => {}
    }
    let id = format!("ch_{}", ledger.charges.len() + 1);
    let charge = Charge { id, key, amount_cents: new.amount_cents };
    println!("  provider: {} charged {} cents as {}", charge.key, charge.amount_cents, charge.id);
    ledger.charges.push(charge.clone());
    if new.card == "tok_lost_answer" {
        println!("  provider: response of {} dropped", charge.id);
        return drop_connection();
    }
    (StatusCode::CREATED, Json(charge)).into_response()
}

async fn list(State(provider): State<Provider>) -> Json<Vec<Charge>> {
    Json(provider.charges())
}

async fn find(State(provider): State<Provider>, Path(key): Path<String>) -> Response {
    let found = provider.charges().into_iter().find(|charge| charge.key == key);
    println!("  provider: lookup of {key}: {}", found.as_ref().map_or("none", |it| &it.id));
    found.map_or_else(|| StatusCode::NOT_FOUND.into_response(), |it| Json(it).into_response())
}

/// A body that fails before its first byte: the server drops the connection.
fn drop_connection() -> Response {
    let broken = io::Error::from(io::ErrorKind::ConnectionReset);
    let stream = futures_util::stream::iter([Err::<bytes::Bytes, _>(broken)]);
    Body::from_stream(stream).into_response()
}

/// The provider's HTTP server, which can be stopped and restarted.
#[derive(Debug)]
pub struct ProviderServer {
    router: Router,
    address: SocketAddr,
    task: tokio::sync::Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl ProviderServer {
    /// Starts the server. Port 0 uses a free port, which a restart uses again.
    pub async fn start(provider: &Provider, port: u16) -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let (router, address) = (provider.router(), listener.local_addr()?);
        let task = tokio::spawn(axum::serve(listener, router.clone()).into_future());
        let task = tokio::sync::Mutex::new(Some(task));
        Ok(Arc::new(Self { router, address, task }))
    }

    /// Address of the server, also while it is stopped.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the server: new connections are refused.
    pub async fn stop(&self) {
        if let Some(task) = self.task.lock().await.take() {
            task.abort();
            let _aborted = task.await;
        }
    }

    /// Starts the server again, on the same address.
    pub async fn restart(&self) -> io::Result<()> {
        let mut task = self.task.lock().await;
        if task.is_none() {
            let listener = TcpListener::bind(self.address).await?;
            *task = Some(tokio::spawn(axum::serve(listener, self.router.clone()).into_future()));
        }
        Ok(())
    }
}
