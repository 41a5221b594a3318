//! Notifications of settlements: `LISTEN` on a connection of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::RecordId;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The part of an id that a notification contains: enough to tell records apart, and a valid
/// payload.
type NotificationKey = [u8; 16];

/// Waiters by record, and the connection that listens for them. It is made for the first waiter,
/// and made again when it breaks.
#[derive(Debug)]
pub(super) struct Notifications {
    source: Option<ListenSource>,
    waiters: Arc<Waiters>,
    listener: Mutex<Option<AbortHandle>>,
}

/// The address and the channel to listen at.
#[derive(Clone)]
pub(super) struct ListenSource {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) channel: String,
}

#[derive(Debug, Default)]
struct Waiters {
    records: Mutex<HashMap<NotificationKey, Arc<Notify>>>,
}

/// Time before the connection is made again. Waiters poll meanwhile.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);

impl Notifications {
    pub(super) fn new(source: Option<ListenSource>) -> Self {
        Self { source, waiters: Arc::default(), listener: Mutex::default() }
    }

    /// Registers a waiter for a record; `None` if there are no notifications.
    pub(super) fn wait_for(&self, id: &RecordId) -> Option<Waiter<'_>> {
        self.listen()?;
        let key = notification_key(id);
        let heard = Arc::clone(self.waiters.records.lock().entry(key).or_default());
        Some(Waiter { waiters: &self.waiters, key, heard })
    }

    fn listen(&self) -> Option<()> {
        let source = self.source.as_ref()?;
        let mut listener = self.listener.lock();
        if listener.as_ref().is_none_or(AbortHandle::is_finished) {
            let task = tokio::spawn(listen(source.clone(), Arc::clone(&self.waiters)));
            *listener = Some(task.abort_handle());
        }
        Some(())
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.lock().take() {
            listener.abort();
        }
    }
}

impl std::fmt::Debug for ListenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenSource").field("channel", &self.channel).finish_non_exhaustive()
    }
}

/// One waiter, until it is dropped.
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    key: NotificationKey,
    heard: Arc<Notify>,
}

impl Waiter<'_> {
    /// Runs `mark`, which makes sure that the settlement notifies, and then waits for it. `mark`
    /// returns false if there is nothing to wait for.
    pub(super) async fn wait_after(&self, mark: impl Future<Output = bool>) {
        let heard = self.heard.notified();
        tokio::pin!(heard);
        // Receives notifications that arrive while `mark` runs.
        heard.as_mut().enable();
        if mark.await {
            heard.await;
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut records = self.waiters.records.lock();
        // One reference is the map's, and one this waiter's.
        if Arc::strong_count(&self.heard) <= 2 {
            records.remove(&self.key);
        }
    }
}

impl Waiters {
    fn wake(&self, payload: &str) {
        let key = u128::from_str_radix(payload, 16).map(u128::to_be_bytes);
        let heard = key.ok().and_then(|key| self.records.lock().get(&key).cloned());
        if let Some(heard) = heard {
            heard.notify_waiters();
        }
    }

    fn wake_all(&self) {
        for heard in self.records.lock().values() {
            heard.notify_waiters();
        }
    }
}

async fn listen(source: ListenSource, waiters: Arc<Waiters>) {
    loop {
        if let Err(error) = listen_until_error(&source, &waiters).await {
            tracing::debug!(%error, "listening for settlements");
        }
        tokio::time::sleep(RECONNECT_AFTER).await;
    }
}

/// Listens until the connection ends.
async fn listen_until_error(
    source: &ListenSource,
    waiters: &Waiters,
) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = source.config.connect(source.tls.clone()).await?;
    let listen = format!("LISTEN \"{}\"", source.channel);
    let subscribe = async {
        client.batch_execute(&listen).await?;
        // Earlier notifications are lost, so every waiter checks once.
        waiters.wake_all();
        std::future::pending::<Result<(), tokio_postgres::Error>>().await
    };
    tokio::pin!(subscribe);
    loop {
        let message = std::future::poll_fn(|context| connection.poll_message(context));
        tokio::select! {
            message = message => match message {
                Some(Ok(AsyncMessage::Notification(it))) => waiters.wake(it.payload()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
            failed = &mut subscribe => return failed,
        }
    }
}

fn notification_key(id: &RecordId) -> NotificationKey {
    let mut key = [0; 16];
    key.copy_from_slice(&id.as_bytes()[..16]);
    key
}
