//! The least that a layer can do and still replay: it holds both bodies, hashes the request's
//! bytes, and keeps the answer in a map. It is the limit beside which Onceward is measured.
//!
//! A request that was cut off blocks its key for ever, the same JSON written in another way is
//! another request, and nothing ever leaves the map: not for use.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, request};
use axum::middleware::Next;
use axum::response::Response;
use sha2::{Digest as _, Sha256};

use crate::orders::{KEY, TENANT};
use crate::subject::HELD_BYTES_MAX;

/// Enough that two threads rarely meet.
const SHARDS: usize = 32;

/// Says that an answer is one from before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Tenant and key.
type Name = (String, String);

#[derive(Default)]
pub(crate) struct Table {
    hasher: RandomState,
    shards: [Mutex<HashMap<Name, StoredReply>>; SHARDS],
}

struct StoredReply {
    request: [u8; 32],
    /// `None` while it runs.
    reply: Option<Reply>,
}

#[derive(Clone)]
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Table {
    fn shard(&self, name: &Name) -> MutexGuard<'_, HashMap<Name, StoredReply>> {
        let shard = self.hasher.hash_one(name) as usize % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the stored answer, or `None` if the request is to run.
    fn begin(&self, name: &Name, request: [u8; 32]) -> Result<Option<Reply>, StatusCode> {
        match self.shard(name).entry(name.clone()) {
            Entry::Vacant(free) => {
                free.insert(StoredReply { request, reply: None });
                Ok(None)
            }
            Entry::Occupied(known) if known.get().request != request => {
                Err(StatusCode::UNPROCESSABLE_ENTITY)
            }
            Entry::Occupied(known) => match &known.get().reply {
                Some(reply) => Ok(Some(reply.clone())),
                None => Err(StatusCode::CONFLICT),
            },
        }
    }

    fn end(&self, name: &Name, reply: Reply) {
        if let Some(known) = self.shard(name).get_mut(name) {
            known.reply = Some(reply);
        }
    }
}

impl From<Reply> for Response {
    fn from(reply: Reply) -> Self {
        let mut response = Self::new(reply.body.into());
        *response.status_mut() = reply.status;
        *response.headers_mut() = reply.headers;
        response
    }
}

/// The layer, as axum's middleware.
pub(crate) async fn guard(
    State(table): State<Arc<Table>>,
    request: Request,
    next: Next,
) -> Result<Response, StatusCode> {
    let (head, body) = request.into_parts();
    let name = (text(&head, &TENANT)?, text(&head, &KEY)?);
    let body = to_bytes(body, HELD_BYTES_MAX).await.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    if let Some(mut reply) = table.begin(&name, Sha256::digest(&body).into())? {
        reply.headers.insert(REPLAYED, HeaderValue::from_static("true"));
        return Ok(reply.into());
    }
    let (head, body) = next.run(Request::from_parts(head, body.into())).await.into_parts();
    let body = to_bytes(body, HELD_BYTES_MAX).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    let reply = Reply { status: head.status, headers: head.headers, body };
    table.end(&name, reply.clone());
    Ok(reply.into())
}

fn text(head: &request::Parts, name: &HeaderName) -> Result<String, StatusCode> {
    let value = head.headers.get(name).and_then(|value| value.to_str().ok());
    value.map(str::to_owned).ok_or(StatusCode::BAD_REQUEST)
}
