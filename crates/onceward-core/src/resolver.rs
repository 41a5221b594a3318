//! Finding out what happened when nobody knows.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::decision::{Decided, Decision, Decisions, INTERNAL_TENANT};
use crate::intent::RecordId;
use crate::outcome::Outcome;
use crate::record::{Record, Retention, State, StateName};
use crate::since::{CheckedResolver, Since};
use crate::store::{Fenced, FullStore, Query, ResolveRequest, StoreAdmin, StoreError, Verdict};

/// Any error of user code.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Looks at the authority (the business table, the payment provider) and says whether an
/// operation happened.
///
/// [`Verdict::DidNotHappen`] is a promise about the future too: the intent will run again,
/// so an effect of the old attempt must not arrive any more. A look-up that finds nothing
/// is enough only where the effect checks its fence, or when the authority has been told
/// to refuse the operation from now on. Otherwise say [`Verdict::StillUnknown`].
#[async_trait]
pub trait Resolver: Send + Sync + 'static {
    /// What happened to this operation? An `Err` counts as still unknown.
    async fn resolve(&self, record: &Record) -> Result<Finding, BoxError>;

    /// Its name in the trail of decisions.
    fn name(&self) -> &str {
        "resolver"
    }

    /// Where it looks: an address, a query, a table. A resolver that looks elsewhere is another
    /// one, whose [`Since::FirstUse`] begins anew. Stored as text: no passwords.
    fn address(&self) -> String {
        String::new()
    }

    /// The operations for which its [`Verdict::DidNotHappen`] counts. For older ones it is taken
    /// as [`Verdict::StillUnknown`].
    fn since(&self) -> Since {
        Since::FirstUse
    }

    /// Whether it says [`Verdict::DidNotHappen`] because it finds nothing, as a query does that
    /// returns no row. A query on the wrong table finds nothing either, so this counts only while
    /// the resolver says of an operation that was completed that it happened.
    fn goes_by_absence(&self) -> bool {
        false
    }
}

/// What a [`Resolver`] says, and what it has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What happened.
    pub verdict: Verdict,
    /// What it goes by, for people: no secrets.
    pub evidence: String,
}

impl Finding {
    /// A verdict with what it goes by.
    pub fn new(verdict: Verdict, evidence: impl Into<String>) -> Self {
        Self { verdict, evidence: evidence.into() }
    }
}

impl From<Verdict> for Finding {
    fn from(verdict: Verdict) -> Self {
        Self::new(verdict, "")
    }
}

/// Makes the reply to a replay from a stored reference, where the reply itself is too
/// sensitive or too large to keep.
#[async_trait]
pub trait Rebuilder: Send + Sync + 'static {
    /// The reply behind a [`Content::Reference`](crate::Content::Reference).
    async fn rebuild(&self, reference: &Outcome) -> Result<Outcome, BoxError>;
}

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

/// What somebody who knows has found out about a record, and how long to keep that.
pub(crate) struct Judgement<'a> {
    pub(crate) record: &'a Record,
    pub(crate) finding: Finding,
    /// Who found it out.
    pub(crate) by: &'a str,
    pub(crate) retention: Retention,
}

impl Judgement<'_> {
    /// Settles the record by it, if its fence is still the one that was asked about. A decision
    /// is written down before it counts. `None` where nobody knows.
    pub(crate) async fn carry_out<S: StoreAdmin + ?Sized>(
        self,
        store: &S,
        decisions: Option<&Decisions>,
    ) -> Result<Option<Decided>, StoreError> {
        let Self { record, finding: Finding { verdict, evidence }, by, retention } = self;
        let Some(decided) = Decided::by_verdict(&verdict) else { return Ok(None) };
        let (operation, fence, by) = (record.operation, record.fence, by.to_owned());
        let decision = Decision { operation, fence, decided, by, evidence };
        if let Some(decisions) = decisions {
            decisions.write(&decision).await?;
        }
        let request = ResolveRequest { id: record.id, fence, verdict, retention };
        if store.resolve(&request).await? == Fenced::Applied(()) {
            return Ok(Some(decided));
        }
        let decided = Decided::Superseded;
        if let Some(decisions) = decisions {
            decisions.write(&Decision { decided, ..decision }).await?;
        }
        Ok(Some(decided))
    }
}
