//! Recovery: settles unknown records by asking a resolver, once.

use std::fmt;
use std::sync::Arc;

use super::checked_resolver::CheckedResolver;
use super::decision_log::{DecisionKind, DecisionLog};
use super::record_finding::RecordFinding;
use super::resolver::{Finding, Resolver};
use crate::intent::{INTERNAL_TENANT, RecordId};
use crate::record::{Record, Retention, State, StateName};
use crate::store::{FullStore, Query, StoreError, Verdict};

/// Settles unknown operations by asking a [`Resolver`]: all of them once, or the one that an
/// engine has just found unknown.
#[derive(Clone)]
pub struct Recovery {
    store: Arc<dyn FullStore>,
    resolver: Arc<CheckedResolver>,
    decisions: Option<DecisionLog>,
}

/// Report of a [`Recovery`] round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryRound {
    /// Operations that had happened and are completed now.
    pub happened: usize,
    /// Operations that had not happened; their keys are free now.
    pub did_not_happen: usize,
    /// Operations of which the resolver does not know, or for which it failed.
    pub still_unknown: usize,
    /// Operations that were settled meanwhile in another way.
    pub settled_elsewhere: usize,
}

impl Recovery {
    /// Recovery of a store's records by a resolver.
    pub fn new(store: Arc<dyn FullStore>, resolver: Arc<dyn Resolver>) -> Self {
        let resolver = Arc::new(CheckedResolver::new(Arc::clone(&store), resolver));
        Self { store, resolver, decisions: None }
    }

    /// Stores the time of the resolver's first use: its [`Verdict::DidNotHappen`] counts for
    /// operations that are claimed from then on ([`Since::FirstUse`](crate::Since::FirstUse)). An
    /// engine does this before its first claim. Idempotent.
    pub async fn register(&self) -> Result<(), StoreError> {
        self.resolver.register().await.map(drop)
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.resolver.is_registered()
    }

    /// Logs every decision before it is applied.
    #[must_use]
    pub fn decisions(mut self, decisions: DecisionLog) -> Self {
        self.decisions = Some(decisions);
        self
    }

    /// Asks about every record that is unknown now, lapsed leases included.
    pub async fn run_once(&self, retention: Retention) -> Result<RecoveryRound, StoreError> {
        let mut recovered = RecoveryRound::default();
        let mut query = Query { standing: Some(StateName::Unknown), ..Query::default() };
        loop {
            let page = self.store.list(&query).await?;
            for record in page.records.iter().filter(|it| it.scope.tenant() != INTERNAL_TENANT) {
                self.recover(record, retention, &mut recovered).await?;
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(recovered),
            }
        }
    }

    /// Asks about one record that was just found unknown. If its stored state has changed since,
    /// the resolver is not asked.
    pub(crate) async fn recover_one(
        &self,
        id: &RecordId,
        retention: Retention,
    ) -> Result<RecoveryRound, StoreError> {
        let mut recovered = RecoveryRound::default();
        match self.store.get(id).await? {
            Some(record) if record.state == State::Unknown => {
                self.recover(&record, retention, &mut recovered).await?;
            }
            _ => recovered.settled_elsewhere += 1,
        }
        Ok(recovered)
    }

    /// Asks about a record and settles it by the verdict, under the fence it was read with.
    async fn recover(
        &self,
        record: &Record,
        retention: Retention,
        recovered: &mut RecoveryRound,
    ) -> Result<(), StoreError> {
        let finding = self.ask(record).await;
        let finding = RecordFinding { record, finding, by: self.resolver.name(), retention };
        match finding.apply(&*self.store, self.decisions.as_ref()).await? {
            Some(DecisionKind::Happened) => recovered.happened += 1,
            Some(DecisionKind::DidNotHappen) => recovered.did_not_happen += 1,
            Some(DecisionKind::Superseded) => recovered.settled_elsewhere += 1,
            // Only for stores, never for an operation.
            Some(DecisionKind::LossAccepted) => {}
            None => recovered.still_unknown += 1,
        }
        Ok(())
    }

    async fn ask(&self, record: &Record) -> Finding {
        self.resolver.resolve(record).await.unwrap_or_else(|error| {
            tracing::warn!(operation = %record.operation, error = %error, "the resolver failed");
            Verdict::StillUnknown.into()
        })
    }
}

impl fmt::Debug for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recovery(…)")
    }
}
