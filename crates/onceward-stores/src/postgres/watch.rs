//! Hearing that a record was settled: `LISTEN` on a connection of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::RecordId;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What a notification carries of an id: enough to tell records apart, and a valid payload.
type Name = [u8; 16];

/// Who waits for which records, and the connection that hears of them. That one is made when
/// the first one waits, and made again when it breaks.
#[derive(Debug)]
pub(super) struct Watch {
    source: Option<Source>,
    waiting: Arc<Waiting>,
    listener: Mutex<Option<AbortHandle>>,
}

/// Where to listen.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) channel: String,
}

#[derive(Debug, Default)]
struct Waiting {
    records: Mutex<HashMap<Name, Arc<Notify>>>,
}

/// How long after a failure the connection is tried again. Waiters poll meanwhile.
const AGAIN: Duration = Duration::from_secs(1);

impl Watch {
    pub(super) fn new(source: Option<Source>) -> Self {
        Self { source, waiting: Arc::default(), listener: Mutex::default() }
    }

    /// Waits for a record; `None` where nothing will be heard.
    pub(super) fn wait_for(&self, id: &RecordId) -> Option<Wait<'_>> {
        self.listen()?;
        let name = name(id);
        let heard = Arc::clone(self.waiting.records.lock().entry(name).or_default());
        Some(Wait { waiting: &self.waiting, name, heard })
    }

    fn listen(&self) -> Option<()> {
        let source = self.source.as_ref()?;
        let mut listener = self.listener.lock();
        if listener.as_ref().is_none_or(AbortHandle::is_finished) {
            let task = tokio::spawn(listen(source.clone(), Arc::clone(&self.waiting)));
            *listener = Some(task.abort_handle());
        }
        Some(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.lock().take() {
            listener.abort();
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("channel", &self.channel).finish_non_exhaustive()
    }
}

/// One waiter. Dropped, it waits no more.
pub(super) struct Wait<'a> {
    waiting: &'a Waiting,
    name: Name,
    heard: Arc<Notify>,
}

impl Wait<'_> {
    /// Runs `mark`, which makes sure that the settlement will be told, and then waits for it.
    /// `mark` says whether there is anything to wait for.
    pub(super) async fn after(&self, mark: impl Future<Output = bool>) {
        let heard = self.heard.notified();
        tokio::pin!(heard);
        // What is told while the mark is on its way is heard.
        heard.as_mut().enable();
        if mark.await {
            heard.await;
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut records = self.waiting.records.lock();
        // The map has one, and we have one.
        if Arc::strong_count(&self.heard) <= 2 {
            records.remove(&self.name);
        }
    }
}

impl Waiting {
    fn wake(&self, payload: &str) {
        let name = u128::from_str_radix(payload, 16).map(u128::to_be_bytes);
        let heard = name.ok().and_then(|name| self.records.lock().get(&name).cloned());
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

async fn listen(source: Source, waiting: Arc<Waiting>) {
    loop {
        if let Err(error) = hear(&source, &waiting).await {
            tracing::debug!(%error, "listening for settlements");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Listens until the connection ends.
async fn hear(source: &Source, waiting: &Waiting) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = source.config.connect(source.tls.clone()).await?;
    let listen = format!("LISTEN \"{}\"", source.channel);
    let subscribe = async {
        client.batch_execute(&listen).await?;
        // What was told before is lost: everybody looks once.
        waiting.wake_all();
        std::future::pending::<Result<(), tokio_postgres::Error>>().await
    };
    tokio::pin!(subscribe);
    loop {
        let message = std::future::poll_fn(|context| connection.poll_message(context));
        tokio::select! {
            message = message => match message {
                Some(Ok(AsyncMessage::Notification(it))) => waiting.wake(it.payload()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
            failed = &mut subscribe => return failed,
        }
    }
}

fn name(id: &RecordId) -> Name {
    let mut name = [0; 16];
    name.copy_from_slice(&id.as_bytes()[..16]);
    name
}
