//! The network between nodes and store. A message may be lost, late or doubled, and travels on
//! when its sender has died.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use onceward_core::{
    Claim, ClaimRequest, Effect, Fenced, Imported, InvalidateRequest, Lease, Page, Purged, Query,
    Record, RecordId, RenewRequest, ResolveRequest, SettleRequest, Stats, Store, StoreAdmin,
    StoreError, StoreErrorKind,
};
use tokio::sync::oneshot;

use super::mutant;
use super::node::Health;
use super::world::World;

/// A node's connection to the store.
pub(super) struct Link {
    pub(super) world: Arc<World>,
    pub(super) health: Arc<Health>,
}

/// A call as it travels.
#[derive(Debug, Clone)]
enum Message {
    Claim(ClaimRequest),
    Renew(RenewRequest),
    Settle(SettleRequest),
    Get(RecordId),
    List(Query),
    Resolve(ResolveRequest),
}

#[derive(Debug)]
enum Reply {
    Claim(Claim),
    Renew(Fenced<Lease>),
    Settle(Fenced<()>),
    Get(Option<Box<Record>>),
    List(Page),
    Resolve(Fenced<()>),
}

impl Link {
    /// Sends a message. Whether or not the caller still waits, it arrives or is lost.
    async fn send(&self, message: Message) -> Result<Reply, StoreError> {
        self.health.gate().await;
        let (reply, answer) = oneshot::channel();
        tokio::spawn(deliver(Arc::clone(&self.world), message, reply));
        let answer = answer.await;
        self.health.gate().await;
        match answer {
            Ok(answer) => answer,
            // Lost: some connections notice, with others the caller waits for its timeout.
            Err(_) if self.world.dice.chance(0.5) => {
                Err(error(StoreErrorKind::Unavailable, Effect::MayHaveBeenApplied))
            }
            Err(_) => std::future::pending().await,
        }
    }
}

async fn deliver(
    world: Arc<World>,
    message: Message,
    reply: oneshot::Sender<Result<Reply, StoreError>>,
) {
    world.travel().await;
    if world.occurs("store refused service", world.store_is_down()) {
        let _gone = reply.send(Err(error(StoreErrorKind::Unavailable, Effect::NotApplied)));
        return;
    }
    if world.strikes("request to the store lost", world.plan.rates.lost) {
        return;
    }
    if world.strikes("request to the store doubled", world.plan.rates.doubled) {
        let (world, message) = (Arc::clone(&world), message.clone());
        tokio::spawn(async move {
            tokio::time::sleep(world.dice.millis(1..world.lease_ms() * 2)).await;
            let _reply_is_lost = apply(&world, message).await;
        });
    }
    let answer = apply(&world, message).await;
    if world.strikes("reply of the store lost", world.plan.rates.lost) {
        return;
    }
    world.travel().await;
    let _gone = reply.send(answer);
}

async fn apply(world: &World, message: Message) -> Result<Reply, StoreError> {
    match message {
        Message::Claim(request) => world.store.claim(&request).await.map(Reply::Claim),
        Message::Renew(request) => world.store.renew(&request).await.map(Reply::Renew),
        Message::Settle(request) => world.store.settle(&request).await.map(Reply::Settle),
        Message::Get(id) => world.store.get(&id).await.map(|it| Reply::Get(it.map(Box::new))),
        Message::List(query) => world.store.list(&query).await.map(Reply::List),
        Message::Resolve(request) => world.store.resolve(&request).await.map(Reply::Resolve),
    }
}

fn error(kind: StoreErrorKind, effect: Effect) -> StoreError {
    StoreError::new("simulated", kind, effect)
}

#[async_trait]
impl Store for Link {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        match self.send(Message::Claim(request.clone())).await? {
            Reply::Claim(claim) => Ok(mutant::question_granted(&self.world, request, claim)),
            other => unreachable!("{other:?} in reply to a claim"),
        }
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        match self.send(Message::Renew(*request)).await? {
            Reply::Renew(fenced) => Ok(fenced),
            other => unreachable!("{other:?} in reply to a renewal"),
        }
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        match self.send(Message::Settle(request.clone())).await? {
            Reply::Settle(fenced) => Ok(fenced),
            other => unreachable!("{other:?} in reply to a settlement"),
        }
    }
}

#[async_trait]
impl StoreAdmin for Link {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        match self.send(Message::Get(*id)).await? {
            Reply::Get(record) => Ok(record.map(|record| *record)),
            other => unreachable!("{other:?} in reply to a look-up"),
        }
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        match self.send(Message::List(query.clone())).await? {
            Reply::List(page) => Ok(page),
            other => unreachable!("{other:?} in reply to a listing"),
        }
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        match self.send(Message::Resolve(request.clone())).await? {
            Reply::Resolve(fenced) => Ok(fenced),
            other => unreachable!("{other:?} in reply to evidence"),
        }
    }

    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        self.world.store.invalidate(request).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        self.world.store.purge(limit).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.world.store.stats().await
    }

    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        self.world.store.import(record).await
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link(…)")
    }
}
