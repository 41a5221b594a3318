//! Starts the service, and stops it on Ctrl-C or SIGTERM.

use std::error::Error;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;

use example_production::{Orders, Settings, app, engine, serve, stop_signal};
use onceward::{MemoryStore, Sweeper, SystemAmbient};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let settings = Settings::from_env()?;
    // Replace this line to use another store. Records in memory belong to this process: they are
    // lost at a restart, and a second instance does not see them.
    let store = Arc::new(MemoryStore::new());
    tokio::spawn(Sweeper::new(store.clone(), Arc::new(SystemAmbient::new())).run());

    let invalid = |why| format!("invalid ONCEWARD_TTL or ONCEWARD_LEASE: {why}");
    let engine = engine(store, &settings).map_err(invalid)?;
    let app = app(engine.clone(), Orders::default(), &settings)?;
    let stop = stop_signal()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, settings.port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let drained = serve(listener, app, engine, settings.drain_max, stop).await;
    println!("stopped: {drained:?}");
    Ok(())
}
