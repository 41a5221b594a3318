//! Waking whoever waits in this process for a settlement in another one.
//!
//! One connection subscribes to the channels of the records that somebody waits for. It is made
//! when the first one waits. A hint and no more: a message that is lost is made up for by the
//! engine, which looks again by itself.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use onceward_core::RecordId;
use parking_lot::Mutex;
use redis::aio::{PubSub, PubSubSink};
use redis::{Client, RedisResult};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;

use super::names::Names;

/// How long to rest after the n-th failure in a row.
const REST: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(5);
/// How long subscribing may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The records that somebody waits for, and the task that listens.
pub(super) struct Watch {
    shared: Arc<Shared>,
    orders: mpsc::UnboundedSender<Order>,
    listening: AbortHandle,
}

struct Shared {
    waited: Mutex<HashMap<RecordId, Arc<Waited>>>,
    names: Arc<Names>,
}

/// One record that somebody waits for.
struct Waited {
    settled: Notify,
    subscribed: watch::Sender<bool>,
}

/// Begin or end listening for a record.
enum Order {
    Subscribe(RecordId),
    Unsubscribe(RecordId),
}

impl Watch {
    /// Listens at the first of these servers that answers: in a cluster any will do, as messages
    /// reach all nodes.
    pub(super) fn new(servers: Vec<Client>, names: Arc<Names>) -> Self {
        let shared = Arc::new(Shared { waited: Mutex::default(), names });
        let (orders, received) = mpsc::unbounded_channel();
        let listener = Listener { servers, shared: Arc::downgrade(&shared), orders: received };
        Self { shared, orders, listening: tokio::spawn(listener.listen()).abort_handle() }
    }

    /// Waits for a record from now on.
    pub(super) fn watch(&self, id: &RecordId) -> Watcher<'_> {
        let mut waited = self.shared.waited.lock();
        let record = waited.entry(*id).or_insert_with(|| {
            // Fails only when the runtime is shutting down, and then nobody waits.
            let _ending = self.orders.send(Order::Subscribe(*id));
            Arc::new(Waited { settled: Notify::new(), subscribed: watch::Sender::new(false) })
        });
        Watcher { watch: self, id: *id, record: Arc::clone(record) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("waited", &self.shared.waited.lock().len()).finish()
    }
}

/// One who waits for a record.
pub(super) struct Watcher<'a> {
    watch: &'a Watch,
    id: RecordId,
    record: Arc<Waited>,
}

impl Watcher<'_> {
    /// Returns when settlements from now on are heard of.
    pub(super) async fn subscribed(&self) {
        let mut subscribed = self.record.subscribed.subscribe();
        // The sender lives as long as this.
        let _there = subscribed.wait_for(|it| *it).await;
    }

    /// The next word about the record.
    pub(super) fn settled(&self) -> tokio::sync::futures::Notified<'_> {
        self.record.settled.notified()
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        let mut waited = self.watch.shared.waited.lock();
        // The map's own and this one's.
        if Arc::strong_count(&self.record) == 2 {
            waited.remove(&self.id);
            let _ending = self.watch.orders.send(Order::Unsubscribe(self.id));
        }
    }
}

/// The task that listens, for as long as its store is there.
struct Listener {
    servers: Vec<Client>,
    shared: Weak<Shared>,
    orders: mpsc::UnboundedReceiver<Order>,
}

impl Listener {
    async fn listen(mut self) {
        let mut failures = 0;
        loop {
            if failures == 0 && !self.somebody_waits().await {
                return;
            }
            let server = &self.servers[failures % self.servers.len()];
            let connecting = tokio::time::timeout(PATIENCE, server.get_async_pubsub()).await;
            match connecting {
                Ok(Ok(connection)) => {
                    failures = 0;
                    if self.hear(connection).await.is_none() {
                        return;
                    }
                    failures += 1;
                }
                Ok(Err(_)) | Err(_) => failures += 1,
            }
            let rest = REST.saturating_mul(1 << failures.min(6)).min(REST_MAX);
            tokio::time::sleep(rest).await;
        }
    }

    /// Rests until there is something to listen for; false if there never will be.
    async fn somebody_waits(&mut self) -> bool {
        loop {
            match self.shared.upgrade() {
                None => return false,
                Some(shared) if !shared.waited.lock().is_empty() => return true,
                Some(_) => {}
            }
            if self.orders.recv().await.is_none() {
                return false;
            }
        }
    }

    /// Listens until the connection fails (`Some`) or the store is gone (`None`).
    async fn hear(&mut self, connection: PubSub) -> Option<()> {
        let (mut sink, mut messages) = connection.split();
        let all: Vec<_> = self.shared.upgrade()?.waited.lock().keys().copied().collect();
        for id in all {
            let listened_before = self.waited(&id).is_some_and(|it| *it.subscribed.borrow());
            if self.subscribe(&mut sink, &id).await.is_err() {
                return Some(());
            }
            // Something may have been said in between. Who waits for the first time looks by
            // itself.
            if listened_before {
                self.shared.upgrade()?.wake(&id);
            }
        }
        loop {
            tokio::select! {
                order = self.orders.recv() => {
                    if self.obey(&mut sink, order?).await.is_err() {
                        return Some(());
                    }
                }
                message = messages.next() => match message {
                    None => return Some(()),
                    Some(message) => {
                        if let Some(id) = Names::of_channel(message.get_channel_name()) {
                            self.shared.upgrade()?.wake(&id);
                        }
                    }
                },
            }
        }
    }

    async fn obey(&self, sink: &mut PubSubSink, order: Order) -> RedisResult<()> {
        match order {
            Order::Subscribe(id) => self.subscribe(sink, &id).await,
            Order::Unsubscribe(id) => match self.channel(&id) {
                // Somebody waits again by now.
                Some(_) if self.waited(&id).is_some() => Ok(()),
                Some(channel) => in_time(sink.unsubscribe(channel)).await,
                None => Ok(()),
            },
        }
    }

    async fn subscribe(&self, sink: &mut PubSubSink, id: &RecordId) -> RedisResult<()> {
        let (Some(channel), Some(waited)) = (self.channel(id), self.waited(id)) else {
            return Ok(());
        };
        in_time(sink.subscribe(channel)).await?;
        waited.subscribed.send_replace(true);
        Ok(())
    }

    fn channel(&self, id: &RecordId) -> Option<String> {
        self.shared.upgrade().map(|shared| shared.names.channel(id))
    }

    fn waited(&self, id: &RecordId) -> Option<Arc<Waited>> {
        self.shared.upgrade()?.waited.lock().get(id).cloned()
    }
}

impl Shared {
    fn wake(&self, id: &RecordId) {
        if let Some(record) = self.waited.lock().get(id) {
            record.settled.notify_waiters();
        }
    }
}

/// A server that does not answer is one that is gone.
async fn in_time(call: impl Future<Output = RedisResult<()>>) -> RedisResult<()> {
    let silence = || std::io::Error::from(std::io::ErrorKind::TimedOut).into();
    tokio::time::timeout(PATIENCE, call).await.unwrap_or_else(|_| Err(silence()))
}
