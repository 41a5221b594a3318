//! The store that a configuration names, and the engine on it.
//!
//! | file | contents |
//! |---|---|
//! | `open` | opens the store, with its sealing keys |
//! | `probe` | health and record counts of the store |

mod open;
mod probe;

use std::sync::Arc;

use onceward_core::{
    DecisionLog, Engine, Identity, MeteredStore, Reconciler, ReconcilerRound, ReconcilerSettings,
    Recovery, Sweeper, SweeperSettings, SystemAmbient,
};
use onceward_stores::SharedStore;

use crate::config::{self, Config, NotSet, StoreKind};
use crate::resolver::{self, ConfiguredResolver, ResolverError};
use crate::telemetry::Metrics;

pub(crate) use open::OpenError;
pub(crate) use open::{check, directory, identity, open, open_for_command, open_sealed};
pub(crate) use probe::{Readiness, StoreProbe};

/// The store and the engine on it. Both outlive reloads of the configuration.
pub(crate) struct Backend {
    pub(crate) store: SharedStore,
    pub(crate) engine: Engine,
    pub(crate) identity: Identity,
    /// Resolves operations whose outcome is unknown.
    pub(crate) resolver: Option<Arc<ConfiguredResolver>>,
    recovery: Option<Recovery>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Why there is no engine on a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The store does not open.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The secret for record ids is not set.
    #[error(transparent)]
    Identity(#[from] NotSet),
    /// The resolver cannot be set up.
    #[error(transparent)]
    Resolver(#[from] ResolverError),
}

impl Backend {
    /// Builds an engine on a store, and meters the store.
    pub(crate) fn new(
        store: SharedStore,
        config: &Config,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, BackendError> {
        let settings = &config.store;
        let name = match (&settings.cache, settings.url.kind()) {
            (Some(_), _) => "tiered",
            (None, kind) => kind.map_or("other", StoreKind::name),
        };
        let store: SharedStore = Arc::new(MeteredStore::new(store, name, metrics.store.clone()));
        let identity = identity(settings)?;
        let resolver = resolver::open(config, &identity)?;
        let mut engine = Engine::builder(store.clone()).identity(identity.clone());
        let recovery = resolver.as_ref().map(|resolver| {
            let decisions = DecisionLog::new(store.clone(), identity.clone());
            let recovery = Recovery::new(store.clone(), resolver.clone()).decisions(decisions);
            let config::Reconciler { at_once, patience, .. } = config.reconciler;
            let recovery = recovery.replay_checks(at_once, patience.0);
            recovery.observer(metrics.requests.clone())
        });
        if let Some(recovery) = &recovery {
            engine = engine.recovery(recovery.clone());
        }
        let (engine, metrics) = (engine.build(), Arc::clone(metrics));
        Ok(Self { store, engine, identity, resolver, recovery, metrics })
    }

    /// Records the first use of the resolver, before anything is claimed. If the store fails, all
    /// operations count as older than the resolver until a later attempt succeeds.
    pub(crate) async fn register_resolver(&self) {
        let Some(recovery) = &self.recovery else { return };
        if let Err(error) = recovery.register().await {
            tracing::warn!(%error, "the first use of the resolver could not be stored yet");
        }
    }

    /// The reconciler, if there is a resolver.
    pub(crate) fn reconciler(&self, settings: ReconcilerSettings) -> Option<Reconciler> {
        let resolver = self.resolver.clone()?;
        let reconciler = Reconciler::new(self.store.clone(), resolver, self.identity.clone());
        let reconciler = reconciler.settings(settings).observer(self.metrics.requests.clone());
        Some(reconciler.report(log_round))
    }

    /// The sweeper of the store.
    pub(crate) fn sweeper(&self) -> Sweeper {
        let settings = SweeperSettings::default();
        let sweeper = Sweeper::new(self.store.clone(), Arc::new(SystemAmbient::new()));
        let report = self.metrics.requests.sweeper_report(settings.every);
        sweeper.settings(settings).report(report)
    }
}

/// Logs one round of the reconciler.
fn log_round(round: &ReconcilerRound) {
    match &round.failed {
        Some(error) => tracing::warn!(%error, "reconciling failed; the next round tries again"),
        None if round.happened + round.did_not_happen + round.settled_elsewhere > 0 => {
            tracing::info!(
                unknown = round.unknown,
                happened = round.happened,
                did_not_happen = round.did_not_happen,
                still_unknown = round.still_unknown,
                resting = round.resting,
                "reconciled"
            );
        }
        None => tracing::debug!(?round, "reconciled"),
    }
}
