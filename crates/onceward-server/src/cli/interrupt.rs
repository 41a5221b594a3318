//! Ctrl-C, handled between the steps of long work and never within a step that changes something.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listener for Ctrl-C and SIGTERM. While it exists, they do not end the process.
pub(super) struct Interrupt {
    interrupt: Signal,
    terminate: Signal,
}

/// Ctrl-C or SIGTERM arrived.
#[derive(Debug)]
pub(super) struct Interrupted;

impl Interrupt {
    pub(super) fn listen() -> std::io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// Runs cancellable work, until it is done or interrupted.
    pub(super) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Interrupted> {
        tokio::select! {
            // Signals first, even if the work is always ready.
            biased;
            _ = self.interrupt.recv() => Err(Interrupted),
            _ = self.terminate.recv() => Err(Interrupted),
            done = work => Ok(done),
        }
    }
}
