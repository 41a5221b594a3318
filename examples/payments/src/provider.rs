//! A payment provider that can lose answers, decline and be out of reach. It stands for a
//! company elsewhere: a server of its own, on a port of its own.

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

/// The provider's own books.
#[derive(Debug, Clone, Default)]
pub struct Provider {
    books: Arc<Mutex<Books>>,
}

#[derive(Debug, Default)]
struct Books {
    charges: Vec<Charge>,
    /// Keys whose first request or answer was lost already.
    lost: BTreeSet<String>,
    /// Whether a key that comes again is charged again.
    forgets_keys: bool,
}

/// Money that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Charge {
    /// The provider's name for it.
    pub id: String,
    /// The key under which it was asked for.
    pub key: String,
    /// How much.
    pub amount_cents: u64,
}

/// What a merchant asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewCharge {
    /// How much.
    pub amount_cents: u64,
    /// Cards for trying things out: `tok_ok`, `tok_declined`, `tok_lost_request` and
    /// `tok_lost_answer`.
    pub card: String,
}

impl Provider {
    /// One that charges whatever comes, under a known key too: the strictest witness of who
    /// asks twice.
    pub fn that_forgets_keys() -> Self {
        let books = Books { forgets_keys: true, ..Books::default() };
        Self { books: Arc::new(Mutex::new(books)) }
    }

    /// All charges so far.
    pub fn charges(&self) -> Vec<Charge> {
        self.books().charges.clone()
    }

    /// The provider's API.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/charges", post(charge).get(list))
            .route("/charges/{key}", get(find))
            .with_state(self.clone())
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One charge per key, as every provider worth its money has it.
async fn charge(
    State(provider): State<Provider>,
    headers: HeaderMap,
    Json(new): Json<NewCharge>,
) -> Response {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let Some(key) = key.map(str::to_owned) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let mut books = provider.books();
    let known = books.charges.iter().find(|charge| charge.key == key);
    if let Some(charge) = known.filter(|_| !books.forgets_keys) {
        println!("  provider: {key} again: it is {}", charge.id);
        return Json(charge).into_response();
    }
    match new.card.as_str() {
        "tok_declined" => {
            println!("  provider: {key} declined");
            return StatusCode::PAYMENT_REQUIRED.into_response();
        }
        "tok_lost_request" if books.lost.insert(key.clone()) => {
            println!("  provider: {key} got lost before anything happened");
            return hang_up();
        }
        _ => {}
    }
    let id = format!("ch_{}", books.charges.len() + 1);
    let charge = Charge { id, key, amount_cents: new.amount_cents };
    println!("  provider: {} charged {} cents as {}", charge.key, charge.amount_cents, charge.id);
    books.charges.push(charge.clone());
    if new.card == "tok_lost_answer" {
        println!("  provider: {} got lost on the way back", charge.id);
        return hang_up();
    }
    (StatusCode::CREATED, Json(charge)).into_response()
}

async fn list(State(provider): State<Provider>) -> Json<Vec<Charge>> {
    Json(provider.charges())
}

async fn find(State(provider): State<Provider>, Path(key): Path<String>) -> Response {
    let found = provider.charges().into_iter().find(|charge| charge.key == key);
    println!("  provider: asked about {key}: {}", found.as_ref().map_or("none", |it| &it.id));
    found.map_or_else(|| StatusCode::NOT_FOUND.into_response(), |it| Json(it).into_response())
}

/// A body that fails before its first byte: the server drops the connection.
fn hang_up() -> Response {
    let broken = io::Error::from(io::ErrorKind::ConnectionReset);
    let stream = futures_util::stream::iter([Err::<bytes::Bytes, _>(broken)]);
    Body::from_stream(stream).into_response()
}

/// The provider's connection to the world, which can be cut.
#[derive(Debug)]
pub struct Line {
    router: Router,
    address: SocketAddr,
    serving: tokio::sync::Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl Line {
    /// Connects a provider; port 0 takes any free one, and the line keeps it.
    pub async fn open(provider: &Provider, port: u16) -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let (router, address) = (provider.router(), listener.local_addr()?);
        let serving = tokio::spawn(axum::serve(listener, router.clone()).into_future());
        let serving = tokio::sync::Mutex::new(Some(serving));
        Ok(Arc::new(Self { router, address, serving }))
    }

    /// Where it is, or was.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nobody reaches the provider.
    pub async fn cut(&self) {
        if let Some(serving) = self.serving.lock().await.take() {
            serving.abort();
            let _aborted = serving.await;
        }
    }

    /// As before.
    pub async fn mend(&self) -> io::Result<()> {
        let mut serving = self.serving.lock().await;
        if serving.is_none() {
            let listener = TcpListener::bind(self.address).await?;
            *serving = Some(tokio::spawn(axum::serve(listener, self.router.clone()).into_future()));
        }
        Ok(())
    }
}
