//! Starts the service, and stops it on Ctrl-C or SIGTERM.

use std::error::Error;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;

use example_production::{Orders, Settings, app, engine, serve, stop_signal};
use onceward::{Sweeper, SystemAmbient};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let settings = Settings::from_env()?;
    let store = settings.store.open().await?;
    tokio::spawn(Sweeper::new(store.clone(), Arc::new(SystemAmbient::new())).run());

    let invalid = |why| format!("invalid ONCEWARD_TTL or ONCEWARD_LEASE: {why}");
    let engine = engine(store, &settings).map_err(invalid)?;
    let app = app(engine.clone(), Orders::default(), &settings)?;
    let stop = stop_signal()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, settings.port)).await?;
    println!("listening on http://{} with {}", listener.local_addr()?, settings.store);
    let drained = serve(listener, app, engine, settings.drain_max, stop).await;
    println!("stopped: {drained:?}");
    Ok(())
}

/// An error and its causes on one line. A cause that the text already contains is left out.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}
