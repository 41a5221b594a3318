//! The store that a configuration names, and the engine on it.
//!
//! | file | contents |
//! |---|---|
//! | `open` | opens the store, with its sealing keys |
//! | `archive` | the archive of expired records |
//! | `probe` | health and record counts of the store |

mod archive;
mod open;
mod probe;

use std::sync::Arc;

use onceward_core::{
    Archiving, DecisionLog, Engine, Identity, InvalidPolicy, MeteredStore, Policy, PurgeError,
    Purger, Reconciler, ReconcilerRound, ReconcilerSettings, Recovery, Sweeper, SweeperSettings,
    SystemAmbient,
};
use onceward_stores::SharedStore;

use crate::config::{self, Config, NotSet, StoreKind};
use crate::resolver::{self, ConfiguredResolver, ResolverError};
use crate::telemetry::Metrics;

use archive::open_archiving;
pub(crate) use archive::{ArchiveLine, archiving};
pub(crate) use open::OpenError;
pub(crate) use open::{check, directory, identity, open, open_for_command, open_sealed};
pub(crate) use probe::{Readiness, StoreProbe};

/// The store and the engine on it. Both outlive reloads of the configuration.
pub(crate) struct Backend {
    pub(crate) store: SharedStore,
    pub(crate) engine: Engine,
    pub(crate) identity: Identity,
    /// Removes expired records, and archives them before if that is set.
    pub(crate) purger: Purger,
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
    /// Expired records cannot be archived.
    #[error("store.archive: {0}")]
    Archive(PurgeError),
    /// The engine's policy is refused.
    #[error(transparent)]
    Policy(#[from] InvalidPolicy),
}

impl Backend {
    /// Builds an engine on a store, meters the store, and opens its archive.
    pub(crate) async fn open(
        store: SharedStore,
        config: &Config,
        metrics: &Arc<Metrics>,
        line: ArchiveLine,
    ) -> Result<Self, BackendError> {
        let store = metered(store, config, metrics);
        let archiving = open_archiving(&config.store, line).await.map_err(OpenError::from)?;
        let counted = Arc::clone(&metrics.requests);
        let purger = Purger::new(store.clone(), archiving)
            .on_archived(move |records| counted.count_archived(records));
        let keeps_expired = keeps_expired(&purger).await?;
        Self::new(store, purger, keeps_expired, config, metrics)
    }

    /// Builds an engine on a store for a check, which archives nothing.
    pub(crate) fn unopened(
        store: SharedStore,
        config: &Config,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, BackendError> {
        let purger = Purger::new(store.clone(), Archiving::Unset);
        Self::new(store, purger, false, config, metrics)
    }

    fn new(
        store: SharedStore,
        purger: Purger,
        keeps_expired: bool,
        config: &Config,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, BackendError> {
        let identity = identity(&config.store)?;
        let resolver = resolver::open(config, &identity)?;
        let policy = Policy::builder().keep_expired(keeps_expired).build()?;
        let mut engine = Engine::builder(store.clone()).identity(identity.clone()).policy(policy);
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
        Ok(Self { store, engine, identity, purger, resolver, recovery, metrics })
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
        let sweeper = Sweeper::of(self.purger.clone(), Arc::new(SystemAmbient::new()));
        let report = self.metrics.requests.sweeper_report(settings.every);
        sweeper.settings(settings).report(report)
    }
}

fn metered(store: SharedStore, config: &Config, metrics: &Metrics) -> SharedStore {
    let settings = &config.store;
    let name = match (&settings.cache, settings.url.kind()) {
        (Some(_), _) => "tiered",
        (None, kind) => kind.map_or("other", StoreKind::name),
    };
    Arc::new(MeteredStore::new(store, name, metrics.store.clone()))
}

/// Tells the store whether its records are archived, and returns whether expired ones stay until
/// they are. If the store fails, they do.
async fn keeps_expired(purger: &Purger) -> Result<bool, BackendError> {
    match purger.tell().await {
        Ok(()) => {}
        Err(PurgeError::Store(error)) => {
            tracing::warn!(%error, "the store could not be told whether its records are archived yet");
        }
        Err(refused) => return Err(BackendError::Archive(refused)),
    }
    let keeps = purger.keeps_expired().await.unwrap_or(true);
    if keeps && !purger.has_archive() {
        tracing::error!(
            "expired records of this store are archived before they are removed, and store.archive \
             is not set here: this process removes none"
        );
    }
    Ok(keeps)
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
