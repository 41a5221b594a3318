//! Running the gateway as a program: signals, the pid file, what it says.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::GatewayArgs;
use crate::config::{Config, lint};
use crate::gateway::Gateway;
use crate::service_manager::Notice;
use crate::telemetry;

type Fallible = Result<(), Box<dyn Error>>;

/// Runs until SIGTERM or Ctrl-C.
pub(crate) fn gateway(args: &GatewayArgs) -> Fallible {
    let config = args.config()?;
    runtime()?.block_on(async {
        let traces = telemetry::start(&config.telemetry)?;
        let mut signals = Signals::new()?;
        let warnings = lint(&config);
        let (upstream, store) = (config.upstream.url.clone(), config.store.url.clone());
        let gateway = Gateway::start(config).await?;
        for address in gateway.addresses() {
            println!("onceward: http://{address} → {upstream}, records in {store}");
        }
        if let Some(address) = gateway.admin() {
            println!("onceward: metrics at http://{address}/metrics");
        }
        if let Some(address) = gateway.claims() {
            println!("onceward: claims at http://{address}/v1/claims");
        }
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let pid_file = args.pid_file.as_deref().map(PidFile::write).transpose()?;
        Notice::Ready.send();
        while let Event::Reload = signals.next().await {
            reload_from(&gateway, args);
        }
        println!("onceward: stopping");
        Notice::Stopping(gateway.drain()).send();
        let drained = gateway.stop().await;
        tracing::info!(?drained, "stopped");
        if let Some(traces) = traces {
            traces.end().await;
        }
        drop(pid_file);
        Ok(())
    })
}

/// Everything outside of the serving threads: the store's callbacks, the sweeper, signals.
pub(crate) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

fn reload_from(gateway: &Gateway, args: &GatewayArgs) {
    let reloaded = args.config().and_then(|config: Config| {
        let warnings = lint(&config);
        gateway.reload(config)?;
        Ok(warnings)
    });
    match reloaded {
        Ok(warnings) => {
            warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            tracing::info!("the configuration was read again");
        }
        Err(error) => tracing::error!(%error, "not reloaded; the configuration before stays"),
    }
}

/// Tells the process in a pid file to reload.
pub(crate) fn reload(pid_file: &Path) -> Fallible {
    let text = std::fs::read_to_string(pid_file)
        .map_err(|error| format!("{}: {error}", pid_file.display()))?;
    let pid: u32 = text
        .trim()
        .parse()
        .map_err(|_| format!("{} does not hold a process id", pid_file.display()))?;
    let sent = Command::new("kill").args(["-HUP", &pid.to_string()]).status()?;
    if sent.success() { Ok(()) } else { Err(format!("process {pid} cannot be signalled").into()) }
}

/// What the system tells the gateway.
pub(crate) enum Event {
    Reload,
    Stop,
}

pub(crate) struct Signals {
    hang_up: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            hang_up: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.hang_up.recv() => Event::Reload,
            _ = self.terminate.recv() => Event::Stop,
            _ = self.interrupt.recv() => Event::Stop,
        }
    }
}

/// Gone with the gateway.
struct PidFile<'p>(&'p Path);

impl<'p> PidFile<'p> {
    fn write(path: &'p Path) -> Result<Self, String> {
        let written = std::fs::write(path, format!("{}\n", std::process::id()));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        let _perhaps_gone_already = std::fs::remove_file(self.0);
    }
}
