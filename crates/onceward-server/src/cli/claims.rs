//! `onceward claims`: the claims API without a gateway.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use clap::Args;
use onceward_core::ReconcilerSettings;
use tokio::task::JoinSet;

use super::process::{Event, Signals, runtime};
use super::service_manager::Notice;
use crate::admin::{AdminRoutes, Monitoring, archive_line};
use crate::api::{self, ApiSettings, CurrentApiSettings, OutcomeRules, Tokens};
use crate::backend::{self, Backend, StoreProbe};
use crate::claims::Claims;
use crate::config::{self, Config, StoreKind, StoreUrl};
use crate::net::{BoundAddress, UpstreamHealth};
use crate::telemetry::{self, Metrics, StartLines};

/// Arguments of `onceward claims`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ClaimsArgs {
    /// Address that workers connect to [default: 127.0.0.1:8090]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Store of the records: file:DIRECTORY, redis://HOST, postgres://USER@HOST/DATABASE
    /// [default: file:./onceward-data]
    ///
    /// Put a URL with a password into a configuration file: other users of the machine can read
    /// command lines.
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,
    /// Configuration file with [[tokens]]; other options override its settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ClaimsArgs {
    /// The file's settings, overridden by those of the command line.
    fn config(&self) -> Result<(Config, config::Claims), Box<dyn Error>> {
        let path = self.config.as_ref().ok_or(
            "no tokens: give --config FILE with [[tokens]] (name, role = \"worker\", secret_env)",
        )?;
        let mut config = Config::read(path)?;
        let mut claims = config.claims.unwrap_or_default();
        if let Some(address) = self.listen {
            claims.address = address;
        }
        if let Some(url) = &self.store {
            config.store.url.clone_from(url);
        }
        config.claims = Some(claims);
        config.check()?;
        Ok((config, claims))
    }
}

/// Runs until SIGTERM or Ctrl-C.
pub(crate) fn run(args: &ClaimsArgs) -> Result<(), Box<dyn Error>> {
    let (config, claims) = args.config()?;
    runtime()?.block_on(async {
        let traces = telemetry::start(&config.telemetry)?;
        let lines = StartLines::new(&config.telemetry);
        let mut signals = Signals::new()?;
        let store = backend::open(&config.store).await?;
        let backend = Backend::open(store, &config, &Metrics::new(), archive_line).await?;
        backend.register_resolver().await;
        let settings = CurrentApiSettings::new(ApiSettings {
            tokens: Tokens::read(&config.tokens)?,
            outcome_rules: Arc::new(OutcomeRules::of(&config).with_retention(claims.retention())),
        });
        let bound = BoundAddress::bind("claims.address (--listen)", claims.address)?;
        let admin_bound = config.admin.map(|it| BoundAddress::bind("admin.address", it.address));
        let (address, url) = (bound.address(), &config.store.url);
        let mut serving = JoinSet::new();
        serving.spawn(api::serve(bound, Claims::new(&backend, claims, settings.clone()).router())?);
        lines.print(format_args!("claims at http://{address}/v1/claims, records in {url}"));
        if let Some(bound) = admin_bound.transpose()? {
            lines.print(format_args!("metrics at http://{}/metrics", bound.address()));
            serving.spawn(api::serve(bound, admin(&backend, &config, settings))?);
        }
        start_background(&mut serving, &backend, &config, claims);
        Notice::Ready.send();
        let stopped = async {
            while let Event::Reload = signals.next().await {
                tracing::warn!("onceward claims cannot reload its configuration: restart it");
            }
        };
        tokio::select! {
            _ended = serving.join_next() => {}
            () = stopped => lines.print(format_args!("stopping")),
        }
        if let Some(traces) = traces {
            traces.end().await;
        }
        Ok(())
    })
}

/// Routes of metrics, health and the admin API.
fn admin(backend: &Backend, config: &Config, settings: CurrentApiSettings) -> Router {
    let every = config.store.url.kind().map_or(Duration::ZERO, StoreKind::counted_every);
    let monitoring = Monitoring {
        metrics: Arc::clone(&backend.metrics),
        engine: backend.engine.clone(),
        probe: StoreProbe::new(backend.store.clone(), every),
        upstream: UpstreamHealth::default(),
    };
    let (store, identity) = (backend.store.clone(), backend.identity.clone());
    let (purger, recoveries) = (backend.purger.clone(), backend.metrics.requests.clone());
    let admin = AdminRoutes { store, identity, purger, settings, recoveries };
    monitoring.router().merge(admin.router())
}

/// Starts the sweeper and the reconciler, which run as long as the program.
fn start_background(
    running: &mut JoinSet<()>,
    backend: &Backend,
    config: &Config,
    claims: config::Claims,
) {
    running.spawn(backend.sweeper().run());
    let settings = config.reconciler.settings(&config.defaults);
    let settings = ReconcilerSettings { retention: claims.retention(), ..settings };
    if let Some(reconciler) = backend.reconciler(settings) {
        running.spawn(reconciler.run());
    }
    if let Some(resolver) = backend.resolver.clone() {
        // Not in `running`: the program goes on when the probe has passed.
        tokio::spawn(resolver.probe_until_passed());
    }
}
