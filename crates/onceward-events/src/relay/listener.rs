//! Notifications of new events: `LISTEN` on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use onceward_stores::postgres::{OpenError, Server, Settings};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_postgres::AsyncMessage;

/// Time before the connection is made again. The relay polls meanwhile.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// Wakes the relay when events are published. Ends when it is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    woken: Arc<Notify>,
    task: AbortHandle,
}

impl Listener {
    pub(super) fn start(server: Server, settings: Settings, channel: String) -> Self {
        let woken = Arc::new(Notify::new());
        let task = tokio::spawn(listen(server, settings, channel, Arc::clone(&woken)));
        Self { woken, task: task.abort_handle() }
    }

    /// Returns after a notification, also one that came since the last call.
    pub(super) async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(server: Server, settings: Settings, channel: String, woken: Arc<Notify>) {
    loop {
        if let Err(error) = listen_until_error(&server, &settings, &channel, &woken).await {
            tracing::debug!(%error, "listening for events");
        }
        tokio::time::sleep(RECONNECT_AFTER).await;
    }
}

async fn listen_until_error(
    server: &Server,
    settings: &Settings,
    channel: &str,
    woken: &Notify,
) -> Result<(), OpenError> {
    let (client, mut connection) = server.connect_raw(settings).await?;
    let listen = format!("LISTEN \"{channel}\"");
    let subscribe = async {
        let subscribed = client.batch_execute(&listen).await;
        // Earlier notifications are lost, so the relay looks once.
        woken.notify_one();
        match subscribed {
            Ok(()) => std::future::pending().await,
            Err(error) => error,
        }
    };
    tokio::pin!(subscribe);
    loop {
        let message = std::future::poll_fn(|context| connection.poll_message(context));
        tokio::select! {
            message = message => match message {
                Some(Ok(AsyncMessage::Notification(_))) => woken.notify_one(),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(OpenError::unreachable(error)),
                None => return Ok(()),
            },
            error = &mut subscribe => return Err(OpenError::unreachable(error)),
        }
    }
}
