//! The work's access to a transaction that its caller ends.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object};
use tokio::sync::{RwLock, RwLockReadGuard};
use tokio::time::timeout;
use tokio_postgres::Client;

/// A transaction to work in. It can be cloned and sent anywhere. The owner of the transaction ends
/// it: statements before that are part of it, later ones are refused.
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
pub struct TransactionHandle(Arc<SharedConnection>);

/// The transaction has ended. The statement was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the transaction has ended with its response; nothing was sent")]
pub struct TransactionEnded;

/// The connection of a transaction, which does not end while this is held. All statements of the
/// client are part of the transaction. It cannot begin another one; for a part that may fail, send
/// `SAVEPOINT`.
#[derive(Debug)]
pub struct PgClient<'a>(RwLockReadGuard<'a, Client>);

struct SharedConnection {
    connection: RwLock<Option<TransactionConnection>>,
    /// True if the connection was not released in time.
    ended: AtomicBool,
}

impl TransactionHandle {
    pub(super) fn new(connection: TransactionConnection) -> Self {
        Self(Arc::new(SharedConnection {
            connection: RwLock::new(Some(connection)),
            ended: AtomicBool::new(false),
        }))
    }

    /// The connection, while the transaction lasts. Release it before the response: the commit
    /// waits for that, but not for long.
    ///
    /// # Errors
    ///
    /// If the transaction has ended.
    pub async fn client(&self) -> Result<PgClient<'_>, TransactionEnded> {
        let connection = self.0.connection.read().await;
        if self.0.ended.load(Ordering::SeqCst) {
            return Err(TransactionEnded);
        }
        let client = RwLockReadGuard::try_map(connection, |connection| {
            connection.as_deref().map(|it| &**it)
        });
        client.map(PgClient).map_err(|_| TransactionEnded)
    }

    /// Takes the connection back, so that the work can send no more statements. `None` if the work
    /// does not release it in time. Then the transaction can only be rolled back, which happens on
    /// release.
    pub(super) async fn take_back(&self, limit: Duration) -> Option<TransactionConnection> {
        match timeout(limit, self.0.connection.write()).await {
            Ok(mut connection) => connection.take(),
            Err(_) => {
                self.0.ended.store(true, Ordering::SeqCst);
                None
            }
        }
    }

    /// Ends a transaction that was dropped: it is rolled back.
    pub(super) fn abandon(&self) {
        self.0.ended.store(true, Ordering::SeqCst);
        if let Ok(mut connection) = self.0.connection.try_write() {
            drop(connection.take());
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

/// A connection with a transaction on it. Dropped, it is closed, which rolls back: a connection
/// with an open transaction never returns to its pool.
pub(super) struct TransactionConnection(Option<Object>);

impl TransactionConnection {
    pub(super) fn new(object: Object) -> Self {
        Self(Some(object))
    }

    /// Returns the connection to its pool, after the transaction has ended.
    pub(super) fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Deref for TransactionConnection {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        let Some(object) = &self.0 else { unreachable!("taken only on consumption") };
        object
    }
}

impl Drop for TransactionConnection {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}
