//! The Redis in front of the store. Any key may be missing, and nothing depends on it.

use std::time::Duration;

use onceward_core::{RecordId, StoreError};
use parking_lot::Mutex;
use redis::{Cmd, RedisError, Value, cmd};
use tokio::time::Instant;

use super::settings::Settings;
use crate::redis as store;
use crate::redis::connection::{Address, Connections};

/// Value of a removed entry. It keeps out a late *busy*, for a while, of a process that read the
/// record before.
const GONE: &[u8] = b"-";

pub(super) struct Cache {
    connections: Connections,
    prefix: String,
    gone_for: Duration,
    pause: Duration,
    /// The last failure; Redis is not called for a pause after it.
    failed: Mutex<Option<Instant>>,
}

/// How an entry is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// Always: the state is final.
    Final,
    /// Only if the key is not there.
    Busy,
}

impl Cache {
    pub(super) fn new(address: &Address, settings: &Settings) -> Result<Self, RedisError> {
        store::choose_provider();
        let connection_settings = store::Settings {
            timeout: settings.timeout,
            connections: settings.connections.max(1),
            tls: settings.tls.clone(),
            ..store::Settings::default()
        };
        Ok(Self {
            connections: Connections::new(address, &connection_settings)?,
            prefix: settings.prefix.clone(),
            gone_for: settings.busy * 2,
            pause: settings.pause,
            failed: Mutex::default(),
        })
    }

    pub(super) async fn get(&self, id: &RecordId) -> Option<Vec<u8>> {
        let mut command = cmd("GET");
        command.arg(self.name(id));
        match self.ask(&command).await? {
            Value::BulkString(entry) if entry != GONE => Some(entry.to_vec()),
            _ => None,
        }
    }

    pub(super) async fn put(&self, id: &RecordId, entry: &[u8], put: Put, keep: Duration) {
        let mut command = self.set(id, entry, keep);
        if put == Put::Busy {
            command.arg("NX");
        }
        self.ask(&command).await;
    }

    /// Removes the entry. Returns whether Redis did so.
    pub(super) async fn forget(&self, id: &RecordId) -> bool {
        if self.gone_for.is_zero() {
            let mut command = cmd("DEL");
            command.arg(self.name(id));
            self.ask(&command).await.is_some()
        } else {
            self.ask(&self.set(id, GONE, self.gone_for)).await.is_some()
        }
    }

    fn set(&self, id: &RecordId, value: &[u8], keep: Duration) -> Cmd {
        let mut command = cmd("SET");
        let millis = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX).max(1);
        command.arg(self.name(id)).arg(value).arg("PX").arg(millis);
        command
    }

    fn name(&self, id: &RecordId) -> String {
        format!("{}:{}", self.prefix, store::codec::hex(id.as_bytes()))
    }

    /// Sends a command, unless one failed a moment ago. After a failure PostgreSQL answers.
    async fn ask(&self, command: &Cmd) -> Option<Value> {
        if self.failed.lock().is_some_and(|at| at.elapsed() < self.pause) {
            return None;
        }
        match self.connections.call(command).await {
            Ok(value) => {
                if self.failed.lock().take().is_some() {
                    tracing::info!("the cache answers again");
                }
                Some(value)
            }
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }

    fn fail(&self, error: &StoreError) {
        if self.failed.lock().replace(Instant::now()).is_none() {
            tracing::warn!(%error, "the cache does not answer; PostgreSQL answers everything");
        }
    }
}
