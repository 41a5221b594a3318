//! The resolver of a node: asks the ledger, over a network that loses and delays messages.

use std::sync::Arc;

use async_trait::async_trait;
use onceward_core::{BoxError, Finding, Record, Resolver, Since, Verdict};
use tokio::sync::oneshot;

use super::mutant::Mutant;
use super::node::Health;
use super::world::World;
use crate::history::Event;

/// A node's connection to the ledger, for questions.
pub(super) struct Authority {
    pub(super) world: Arc<World>,
    pub(super) health: Arc<Health>,
    pub(super) asker: Asker,
}

/// The part of the program that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// An engine, about an operation that it has just found unknown.
    Engine,
    /// The reconciler, about all of them.
    Reconciler,
}

impl Authority {
    /// Sends the question. It arrives or is lost, even if the asker has died.
    async fn ask(&self, record: &Record) -> Result<Verdict, BoxError> {
        let (reply, answer) = oneshot::channel();
        let (world, record) = (Arc::clone(&self.world), record.clone());
        tokio::spawn(async move {
            world.travel().await;
            if world.strikes("question to the resolver lost", world.plan.rates.lost) {
                return;
            }
            let verdict = if world.strikes("resolver did not know", world.plan.rates.unsure) {
                Verdict::StillUnknown
            } else {
                world.ledger.look_up(&record)
            };
            if world.strikes("resolver's answer lost", world.plan.rates.lost) {
                return;
            }
            world.travel().await;
            let _gone = reply.send(verdict);
        });
        match answer.await {
            Ok(verdict) => Ok(verdict),
            // As with the store: some connections notice the loss.
            Err(_) if self.world.dice.chance(0.5) => Err("the connection was lost".into()),
            Err(_) => std::future::pending().await,
        }
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.asker == Asker::Reconciler && self.world.mutant == Some(mutant)
    }
}

#[async_trait]
impl Resolver for Authority {
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError> {
        if self.asker == Asker::Reconciler {
            let (record, fence) = (record.id, record.fence);
            self.world.history.push(Event::Asked { record, fence });
        }
        self.health.gate().await;
        let verdict = self.ask(record).await?;
        self.health.gate().await;
        Ok(match verdict {
            Verdict::StillUnknown if self.has(Mutant::UnknownMeansNo) => Verdict::DidNotHappen,
            verdict => verdict,
        }
        .into())
    }

    /// The ledger books every effect there is.
    fn since(&self) -> Since {
        Since::Always
    }
}
