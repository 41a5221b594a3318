//! Settling what is unknown, once or for one record.

use std::fmt;
use std::sync::Arc;

use super::checked_resolver::CheckedResolver;
use super::decision_log::{Decided, Decisions};
use super::resolution::Judgement;
use super::resolver::{Finding, Resolver};
use crate::intent::{INTERNAL_TENANT, RecordId};
use crate::record::{Record, Retention, State, StateName};
use crate::store::{FullStore, Query, StoreError, Verdict};

/// Settles unknown operations by asking a [`Resolver`].
#[derive(Clone)]
pub struct Recovery {
    store: Arc<dyn FullStore>,
    resolver: Arc<CheckedResolver>,
    decisions: Option<Decisions>,
}

/// What a round of [`Recovery`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// They had happened and are completed now.
    pub happened: usize,
    /// They had not happened and are free now.
    pub did_not_happen: usize,
    /// The resolver does not know either, or failed.
    pub still_unknown: usize,
    /// Somebody else settled them in the meantime.
    pub settled_elsewhere: usize,
}

impl Recovery {
    /// Recovery of a store's records by a resolver.
    pub fn new(store: Arc<dyn FullStore>, resolver: Arc<dyn Resolver>) -> Self {
        let resolver = Arc::new(CheckedResolver::new(Arc::clone(&store), resolver));
        Self { store, resolver, decisions: None }
    }

    /// Records the resolver's first use in the store: its [`Verdict::DidNotHappen`] counts for
    /// operations that are claimed from then on ([`Since::FirstUse`]). An engine does this before
    /// its first claim. Idempotent.
    pub async fn register(&self) -> Result<(), StoreError> {
        self.resolver.register().await.map(drop)
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.resolver.is_registered()
    }

    /// Writes every decision down before it is made.
    #[must_use]
    pub fn decisions(mut self, decisions: Decisions) -> Self {
        self.decisions = Some(decisions);
        self
    }

    /// Asks about every record whose outcome is unknown now, lapsed leases included.
    pub async fn run_once(&self, retention: Retention) -> Result<Recovered, StoreError> {
        let mut recovered = Recovered::default();
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

    /// Asks about one record that somebody was just told is unknown. If it is not written
    /// down so any more, the matter has moved on, and the resolver is not bothered.
    pub(crate) async fn recover_one(
        &self,
        id: &RecordId,
        retention: Retention,
    ) -> Result<Recovered, StoreError> {
        let mut recovered = Recovered::default();
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
        recovered: &mut Recovered,
    ) -> Result<(), StoreError> {
        let finding = self.ask(record).await;
        let judgement = Judgement { record, finding, by: self.resolver.name(), retention };
        match judgement.carry_out(&*self.store, self.decisions.as_ref()).await? {
            Some(Decided::Happened) => recovered.happened += 1,
            Some(Decided::DidNotHappen) => recovered.did_not_happen += 1,
            Some(Decided::Superseded) => recovered.settled_elsewhere += 1,
            // About stores, and never about an operation.
            Some(Decided::LossAccepted) => {}
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
