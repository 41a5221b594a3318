//! `onceward gateway`: the gateway as a process, with signals, a pid file and reloads.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::process::{Event, Signals, runtime};
use super::reload::{PidFile, ReloadLog};
use super::service_manager::Notice;
use crate::config::{self, Config, StoreUrl, UpstreamUrl, lint};
use crate::gateway::Gateway;
use crate::telemetry::{self, StartLines};

/// Arguments of `onceward gateway`.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct GatewayArgs {
    /// The service behind the gateway
    #[arg(long, value_name = "URL")]
    upstream: Option<UpstreamUrl>,
    /// Address that clients connect to [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Store of the records: file:DIRECTORY, redis://HOST, postgres://USER@HOST/DATABASE
    /// [default: file:./onceward-data]
    ///
    /// Put a URL with a password into a configuration file: other users of the machine can read
    /// command lines.
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,
    /// Treat all clients as one caller that shares its keys; by default, a retry must have the
    /// credentials of the first request
    #[arg(long)]
    single_tenant: bool,
    /// Address of metrics, health and the admin API; only operators should reach it
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// Configuration file; other options override its settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the process id to this file, for `onceward reload`
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
}

impl GatewayArgs {
    /// The file's settings, overridden by those of the command line.
    fn config(&self) -> Result<Config, Box<dyn Error>> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        if self.config.is_none() && self.upstream.is_none() {
            return Err("no upstream: give --upstream URL, or --config FILE".into());
        }
        if let Some(url) = &self.upstream {
            config.upstream.url = url.clone();
        }
        if let Some(address) = self.listen {
            config.listeners.truncate(1);
            config.listeners[0].address = address;
        }
        if let Some(url) = &self.store {
            config.store.url.clone_from(url);
        }
        if let Some(address) = self.admin {
            config.admin = Some(config::Admin { address });
        }
        config.scope.single_tenant |= self.single_tenant;
        config.check()?;
        config.check_rules()?;
        Ok(config)
    }
}

/// Runs until SIGTERM or Ctrl-C.
pub(super) fn run(args: &GatewayArgs) -> Result<(), Box<dyn Error>> {
    let config = args.config()?;
    runtime()?.block_on(async {
        let traces = telemetry::start(&config.telemetry)?;
        let lines = StartLines::new(&config.telemetry);
        let mut signals = Signals::new()?;
        let warnings = lint(&config);
        let (upstream, store) = (config.upstream.url.clone(), config.store.url.clone());
        let gateway = Gateway::start(config).await?;
        for address in gateway.addresses() {
            lines.print(format_args!("http://{address} → {upstream}, records in {store}"));
        }
        if let Some(address) = gateway.admin() {
            lines.print(format_args!("metrics at http://{address}/metrics"));
        }
        if let Some(address) = gateway.claims() {
            lines.print(format_args!("claims at http://{address}/v1/claims"));
        }
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let mut reloads = args.pid_file.as_deref().map(ReloadLog::create).transpose()?;
        let pid_file = args.pid_file.as_deref().map(PidFile::write).transpose()?;
        Notice::Ready.send();
        while let Event::Reload = signals.next().await {
            let reloaded = reload_from(&gateway, args);
            if let Some(reloads) = &mut reloads {
                reloads.add(reloaded);
            }
        }
        lines.print(format_args!("stopping"));
        Notice::Stopping(gateway.drain()).send();
        let drained = gateway.stop().await;
        tracing::info!(?drained, "stopped");
        if let Some(traces) = traces {
            traces.end().await;
        }
        drop((pid_file, reloads));
        Ok(())
    })
}

/// Reads the configuration again and applies it. Returns the warnings about its changes, or why it was
/// refused.
fn reload_from(gateway: &Gateway, args: &GatewayArgs) -> Result<Vec<String>, String> {
    let reloaded = args.config().and_then(|config: Config| {
        let warnings = lint(&config);
        Ok((warnings, gateway.reload(config)?))
    });
    match reloaded {
        Ok((warnings, changes)) => {
            warnings.iter().chain(&changes).for_each(|warning| tracing::warn!("{warning}"));
            tracing::info!("the configuration was reloaded");
            Ok(changes.iter().map(ToString::to_string).collect())
        }
        Err(error) => {
            tracing::error!(%error, "not reloaded; the current configuration stays in force");
            Err(error.to_string())
        }
    }
}
