//! Handlers in PostgreSQL transactions.

use onceward_stores::postgres::PostgresStore;

use super::builder::LayerBuilder;
use crate::exchange::PermitKind;

impl<S> LayerBuilder<S> {
    /// Runs every protected handler in a transaction on this store: a [`PgTransaction`](crate::PgTransaction) in the
    /// request's extensions, and an axum extractor (feature `axum`). The rows that the handler
    /// writes and its reply are committed together.
    ///
    /// - A stored reply that is not an error commits both. A stored error (4xx, 5xx) commits the
    ///   reply and rolls the rows back.
    /// - A reply that is not stored rolls everything back, *unknown* or not; so do a panic and an
    ///   error of the handler. It is then known that nothing happened.
    /// - A failed commit is answered with [`RolledBack`](crate::Code::RolledBack), or with
    ///   [`OutcomeUnknown`](crate::Code::OutcomeUnknown) if it is not known whether it failed.
    ///
    /// Such a handler must have no effect outside its transaction. The engine's identity and policy
    /// are used, its store is not; there are no leases. A transaction holds a connection while its
    /// handler runs ([`transactions_max`](onceward_stores::postgres::Settings::transactions_max)).
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use onceward_core::Engine;
    /// use onceward_http::{Onceward, Operation};
    /// use onceward_stores::postgres::{PostgresStore, Settings};
    ///
    /// let store = PostgresStore::open("postgres://localhost/app", Settings::default()).await?;
    /// let store = Arc::new(store);
    /// let layer = Onceward::layer(Engine::new(store.clone()))
    ///     .transactions(&store)
    ///     .single_tenant()
    ///     .operation(Operation::post("/orders"))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn transactions(self, store: &PostgresStore) -> Self {
        let (identity, policy) = (self.engine().identity().clone(), self.engine().policy().clone());
        self.permits(PermitKind::InTransaction(store.transactions(identity, policy)))
    }
}
