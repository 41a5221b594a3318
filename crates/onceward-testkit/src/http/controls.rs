//! Trouble that the suite can cause at our own servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use crate::clock::ManualClock;
use crate::faulty::{Call, Fault, FaultyStore};

/// A failure that the suite can cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// From now on every claim fails before it is applied, until healed.
    ClaimsFail,
    /// The next claim is applied and its reply is lost.
    ClaimReplyLost,
    /// From now on no settlement is applied, until healed.
    SettlesFail,
    /// The next settlement is applied and its reply is lost.
    SettleReplyLost,
    /// The next settlement is applied and its reply never comes.
    SettleHangs,
    /// The store's clock advances by this time.
    TimePasses(Duration),
    /// The server dies with all that it was doing, and is back at the same address on the
    /// same store when this returns.
    Crash,
    /// The gateway's upstream refuses connections, until healed.
    UpstreamRefuses,
}

/// The server has no hook for that trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no hook for that trouble")]
pub struct NotOffered;

/// Causes trouble at a server.
#[async_trait]
pub trait Controls: Send + Sync {
    /// Causes it; when this returns, the next request meets it.
    async fn cause(&self, trouble: Trouble) -> Result<(), NotOffered>;

    /// Ends trouble that goes on. Idempotent.
    async fn heal(&self);
}

/// [`Controls`] for a server in this process, on a [`FaultyStore`] and a [`ManualClock`], or on
/// any other time that can be made to pass.
#[derive(Clone)]
pub struct StoreControls {
    store: Arc<FaultyStore>,
    pass: Arc<dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync>,
    crash: Option<Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>>,
}

impl StoreControls {
    /// Controls of a server that uses this store, on this clock.
    pub fn new(store: Arc<FaultyStore>, clock: ManualClock) -> Self {
        Self::passing_by(store, move |time| {
            clock.advance(time);
            std::future::ready(())
        })
    }

    /// Controls of a server that uses this store, whose time passes so.
    pub fn passing_by<F>(
        store: Arc<FaultyStore>,
        pass: impl Fn(Duration) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { store, pass: Arc::new(move |time| Box::pin(pass(time))), crash: None }
    }

    /// How the server dies and comes back; see [`Trouble::Crash`].
    #[must_use]
    pub fn crashing_by<F>(mut self, crash: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.crash = Some(Arc::new(move || Box::pin(crash())));
        self
    }
}

#[async_trait]
impl Controls for StoreControls {
    async fn cause(&self, trouble: Trouble) -> Result<(), NotOffered> {
        match trouble {
            Trouble::ClaimsFail => self.store.on_every(Call::Claim, Fault::Fail),
            Trouble::ClaimReplyLost => self.store.on_next(1, Call::Claim, Fault::LoseReply),
            Trouble::SettlesFail => self.store.on_every(Call::Settle, Fault::Fail),
            Trouble::SettleReplyLost => self.store.on_next(1, Call::Settle, Fault::LoseReply),
            Trouble::SettleHangs => self.store.on_next(1, Call::Settle, Fault::Hang),
            Trouble::TimePasses(time) => (self.pass)(time).await,
            Trouble::Crash => self.crash.as_ref().ok_or(NotOffered)?().await,
            Trouble::UpstreamRefuses => return Err(NotOffered),
        }
        Ok(())
    }

    async fn heal(&self) {
        self.store.heal();
    }
}

impl fmt::Debug for StoreControls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreControls").field("store", &self.store).finish_non_exhaustive()
    }
}
