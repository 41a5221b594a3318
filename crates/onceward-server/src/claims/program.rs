//! `onceward claims`: the claims API without a gateway.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use onceward_core::{Sweeper, SystemAmbient};

use super::{Claims, Door};
use crate::address::BoundAddress;
use crate::api::{self, Tokens};
use crate::config::{self, Config, StoreUrl};
use crate::gateway::Base;
use crate::metrics::Metrics;
use crate::run::{Event, Signals, runtime};
use crate::service_manager::Notice;
use crate::{store, telemetry};

/// What `onceward claims` is started with.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ClaimsArgs {
    /// Where workers connect [default: 127.0.0.1:8090]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where records are kept: file:DIRECTORY, redis://HOST, postgres://USER@HOST/DATABASE
    /// [default: file:./onceward-data]
    ///
    /// Others can read a command line: put a URL with a password into a configuration file.
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,
    /// A configuration file, with [[tokens]]; what is given beside it goes before it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ClaimsArgs {
    /// The file's settings, and those of the command line over them.
    fn config(&self) -> Result<(Config, config::Claims), Box<dyn Error>> {
        let path = self.config.as_ref().ok_or(
            "who may claim? name tokens in a file: --config onceward.toml with [[tokens]] (name, \
             role = \"worker\", secret_env)",
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
        let mut signals = Signals::new()?;
        let base = Base::new(store::open(&config.store).await?, &config, &Metrics::new())?;
        let sweeper = Sweeper::new(base.store.clone(), Arc::new(SystemAmbient::new()));
        let door = Door::Own(Tokens::read(&config.tokens)?);
        let router = Claims::new(&base, claims, door).router();
        let bound = BoundAddress::bind("claims.address (--listen)", claims.address)?;
        let (address, url) = (bound.address(), &config.store.url);
        let serving = api::serve(bound, router)?;
        println!("onceward: claims at http://{address}/v1/claims, records in {url}");
        Notice::Ready.send();
        let stopped = async {
            while let Event::Reload = signals.next().await {
                tracing::warn!("claims do not read their configuration again: restart them");
            }
        };
        tokio::select! {
            () = serving => {}
            () = sweeper.run() => {}
            () = stopped => println!("onceward: stopping"),
        }
        if let Some(traces) = traces {
            traces.end().await;
        }
        Ok(())
    })
}
