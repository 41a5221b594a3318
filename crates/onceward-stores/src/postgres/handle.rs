//! What work holds of a transaction that somebody else ends.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object};
use tokio::sync::{RwLock, RwLockReadGuard};
use tokio::time::timeout;
use tokio_postgres::Client;

/// A transaction to work in. It can be cloned and sent anywhere, and is ended by whoever made
/// it: statements in time are part of it, later ones are refused.
///
/// ```no_run
/// # use onceward_stores::postgres::TransactionHandle;
/// # async fn example(tx: TransactionHandle) -> Result<(), Box<dyn std::error::Error>> {
/// let client = tx.client().await?;
/// client.execute("INSERT INTO orders (amount) VALUES ($1)", &[&"12.50"]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TransactionHandle(Arc<Slot>);

/// The transaction has ended: nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the transaction has ended with its response; nothing was sent")]
pub struct TransactionEnded;

/// The connection of a transaction, which does not end while this is held. All of the client's
/// statements are part of it. There is no way to begin another one; for a part that may fail,
/// send `SAVEPOINT`.
#[derive(Debug)]
pub struct PgClient<'a>(RwLockReadGuard<'a, Client>);

struct Slot {
    lent: RwLock<Option<Lent>>,
    /// Set where somebody did not let go of the connection in time.
    ended: AtomicBool,
}

impl TransactionHandle {
    pub(super) fn new(lent: Lent) -> Self {
        Self(Arc::new(Slot { lent: RwLock::new(Some(lent)), ended: AtomicBool::new(false) }))
    }

    /// The connection, as long as the transaction goes on. Let go of it before the response:
    /// the commit waits for that, and not for long.
    ///
    /// # Errors
    ///
    /// If the transaction has ended.
    pub async fn client(&self) -> Result<PgClient<'_>, TransactionEnded> {
        let lent = self.0.lent.read().await;
        if self.0.ended.load(Ordering::SeqCst) {
            return Err(TransactionEnded);
        }
        let client = RwLockReadGuard::try_map(lent, |lent| lent.as_deref().map(|it| &**it));
        client.map(PgClient).map_err(|_| TransactionEnded)
    }

    /// Takes the connection back: from now on nobody else sends anything. `None` if somebody
    /// does not let go of it in time; then the transaction can only be rolled back, and is when
    /// they do.
    pub(super) async fn take_back(&self, limit: Duration) -> Option<Lent> {
        match timeout(limit, self.0.lent.write()).await {
            Ok(mut lent) => lent.take(),
            Err(_) => {
                self.0.ended.store(true, Ordering::SeqCst);
                None
            }
        }
    }

    /// Ends it where nobody said how: it is rolled back.
    pub(super) fn abandon(&self) {
        self.0.ended.store(true, Ordering::SeqCst);
        if let Ok(mut lent) = self.0.lent.try_write() {
            drop(lent.take());
        }
    }
}

impl fmt::Debug for TransactionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransactionHandle(…)")
    }
}

impl Deref for PgClient<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0
    }
}

/// A connection with a transaction on it. Dropped, it is closed, which rolls back: nobody gets
/// it with something open.
pub(super) struct Lent(Option<Object>);

impl Lent {
    pub(super) fn new(object: Object) -> Self {
        Self(Some(object))
    }

    /// Gives it back to its pool, when nothing is open on it.
    pub(super) fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Deref for Lent {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        let Some(object) = &self.0 else { unreachable!("taken only by what consumes it") };
        object
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}
