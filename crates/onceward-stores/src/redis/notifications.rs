//! Wakes waiters of this process when another process settles their record.
//!
//! One connection subscribes to the channels of the awaited records. It is made for the first
//! waiter. Notifications are hints: the engine polls too, so a lost message only delays it.

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

use super::key_names::KeyNames;

/// Pause after the first failure; it doubles with each further one.
const RETRY_AFTER: Duration = Duration::from_millis(100);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);
/// Longest time for connecting or subscribing.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The awaited records, and the task that listens.
pub(super) struct Notifications {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedSender<Command>,
    listening: AbortHandle,
}

struct Shared {
    awaited: Mutex<HashMap<RecordId, Arc<AwaitedRecord>>>,
    names: Arc<KeyNames>,
}

/// A record with waiters.
struct AwaitedRecord {
    settled: Notify,
    subscribed: watch::Sender<bool>,
}

/// A change of the subscriptions.
enum Command {
    Subscribe(RecordId),
    Unsubscribe(RecordId),
}

impl Notifications {
    /// Listens at the first of these servers that answers. In a cluster any will do, as messages
    /// reach all nodes.
    pub(super) fn new(servers: Vec<Client>, names: Arc<KeyNames>) -> Self {
        let shared = Arc::new(Shared { awaited: Mutex::default(), names });
        let (commands, received) = mpsc::unbounded_channel();
        let listener = Listener { servers, shared: Arc::downgrade(&shared), commands: received };
        Self { shared, commands, listening: tokio::spawn(listener.listen()).abort_handle() }
    }

    /// Registers a waiter for a record.
    pub(super) fn wait_for(&self, id: &RecordId) -> Waiter<'_> {
        let mut awaited = self.shared.awaited.lock();
        let record = awaited.entry(*id).or_insert_with(|| {
            // Fails only while the runtime shuts down.
            let _ending = self.commands.send(Command::Subscribe(*id));
            Arc::new(AwaitedRecord {
                settled: Notify::new(),
                subscribed: watch::Sender::new(false),
            })
        });
        Waiter { watch: self, id: *id, record: Arc::clone(record) }
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifications").field("awaited", &self.shared.awaited.lock().len()).finish()
    }
}

/// One waiter for a record.
pub(super) struct Waiter<'a> {
    watch: &'a Notifications,
    id: RecordId,
    record: Arc<AwaitedRecord>,
}

impl Waiter<'_> {
    /// Returns once settlements are received.
    pub(super) async fn subscribed(&self) {
        let mut subscribed = self.record.subscribed.subscribe();
        // Cannot fail: the sender lives as long as this.
        let _there = subscribed.wait_for(|it| *it).await;
    }

    /// The next notification about the record.
    pub(super) fn settled(&self) -> tokio::sync::futures::Notified<'_> {
        self.record.settled.notified()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut awaited = self.watch.shared.awaited.lock();
        // One reference is the map's, and one this waiter's.
        if Arc::strong_count(&self.record) == 2 {
            awaited.remove(&self.id);
            let _ending = self.watch.commands.send(Command::Unsubscribe(self.id));
        }
    }
}

/// The task that listens while its store exists.
struct Listener {
    servers: Vec<Client>,
    shared: Weak<Shared>,
    commands: mpsc::UnboundedReceiver<Command>,
}

impl Listener {
    async fn listen(mut self) {
        let mut failures = 0;
        loop {
            if failures == 0 && !self.wait_for_waiter().await {
                return;
            }
            let server = &self.servers[failures % self.servers.len()];
            let connecting = tokio::time::timeout(TIMEOUT, server.get_async_pubsub()).await;
            match connecting {
                Ok(Ok(connection)) => {
                    failures = 0;
                    if self.receive(connection).await.is_none() {
                        return;
                    }
                    failures += 1;
                }
                Ok(Err(_)) | Err(_) => failures += 1,
            }
            let pause = RETRY_AFTER.saturating_mul(1 << failures.min(6)).min(RETRY_AFTER_MAX);
            tokio::time::sleep(pause).await;
        }
    }

    /// Waits until there is a record to listen for; false if the store is gone.
    async fn wait_for_waiter(&mut self) -> bool {
        loop {
            match self.shared.upgrade() {
                None => return false,
                Some(shared) if !shared.awaited.lock().is_empty() => return true,
                Some(_) => {}
            }
            if self.commands.recv().await.is_none() {
                return false;
            }
        }
    }

    /// Receives until the connection fails (`Some`) or the store is gone (`None`).
    async fn receive(&mut self, connection: PubSub) -> Option<()> {
        let (mut sink, mut messages) = connection.split();
        let all: Vec<_> = self.shared.upgrade()?.awaited.lock().keys().copied().collect();
        for id in all {
            let listened_before = self.awaited(&id).is_some_and(|it| *it.subscribed.borrow());
            if self.subscribe(&mut sink, &id).await.is_err() {
                return Some(());
            }
            // A message may have been lost in between. New waiters read the record themselves.
            if listened_before {
                self.shared.upgrade()?.wake(&id);
            }
        }
        loop {
            tokio::select! {
                command = self.commands.recv() => {
                    if self.apply(&mut sink, command?).await.is_err() {
                        return Some(());
                    }
                }
                message = messages.next() => match message {
                    None => return Some(()),
                    Some(message) => {
                        if let Some(id) = KeyNames::of_channel(message.get_channel_name()) {
                            self.shared.upgrade()?.wake(&id);
                        }
                    }
                },
            }
        }
    }

    async fn apply(&self, sink: &mut PubSubSink, command: Command) -> RedisResult<()> {
        match command {
            Command::Subscribe(id) => self.subscribe(sink, &id).await,
            Command::Unsubscribe(id) => match self.channel(&id) {
                // A new waiter came meanwhile.
                Some(_) if self.awaited(&id).is_some() => Ok(()),
                Some(channel) => in_time(sink.unsubscribe(channel)).await,
                None => Ok(()),
            },
        }
    }

    async fn subscribe(&self, sink: &mut PubSubSink, id: &RecordId) -> RedisResult<()> {
        let (Some(channel), Some(awaited)) = (self.channel(id), self.awaited(id)) else {
            return Ok(());
        };
        in_time(sink.subscribe(channel)).await?;
        awaited.subscribed.send_replace(true);
        Ok(())
    }

    fn channel(&self, id: &RecordId) -> Option<String> {
        self.shared.upgrade().map(|shared| shared.names.channel(id))
    }

    fn awaited(&self, id: &RecordId) -> Option<Arc<AwaitedRecord>> {
        self.shared.upgrade()?.awaited.lock().get(id).cloned()
    }
}

impl Shared {
    fn wake(&self, id: &RecordId) {
        if let Some(record) = self.awaited.lock().get(id) {
            record.settled.notify_waiters();
        }
    }
}

/// A server that does not answer in time counts as gone.
async fn in_time(call: impl Future<Output = RedisResult<()>>) -> RedisResult<()> {
    let silence = || std::io::Error::from(std::io::ErrorKind::TimedOut).into();
    tokio::time::timeout(TIMEOUT, call).await.unwrap_or_else(|_| Err(silence()))
}
