//! The process of a command: its runtime and its signals.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The runtime of everything outside the serving threads: the store's callbacks, the sweeper,
/// signals.
pub(super) fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// A signal's meaning.
pub(super) enum Event {
    /// SIGHUP.
    Reload,
    /// SIGTERM or Ctrl-C.
    Stop,
}

/// Signals of a serving command.
pub(super) struct Signals {
    hang_up: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            hang_up: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(super) async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.hang_up.recv() => Event::Reload,
            _ = self.terminate.recv() => Event::Stop,
            _ = self.interrupt.recv() => Event::Stop,
        }
    }
}
