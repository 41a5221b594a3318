//! Ctrl-C, between the steps of long work and never inside of one that changes something.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears Ctrl-C, and SIGTERM, from now on.
pub(super) struct Interrupt {
    interrupt: Signal,
    terminate: Signal,
}

/// Somebody wants it to end.
#[derive(Debug)]
pub(super) struct Interrupted;

impl Interrupt {
    pub(super) fn listen() -> std::io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// Does something that may be left off at any point.
    pub(super) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Interrupted> {
        tokio::select! {
            // Heard first, even if there is always something to do.
            biased;
            _ = self.interrupt.recv() => Err(Interrupted),
            _ = self.terminate.recv() => Err(Interrupted),
            done = work => Ok(done),
        }
    }
}
