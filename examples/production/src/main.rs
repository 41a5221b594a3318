//! Serves the example until Ctrl-C or SIGTERM.

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
    // The one line that decides where keys are kept. In memory they belong to this process: a
    // second instance, or a restart, does not know them.
    let store = Arc::new(MemoryStore::new());
    tokio::spawn(Sweeper::new(store.clone(), Arc::new(SystemAmbient::new())).run());

    let unfit = |why| format!("ONCEWARD_TTL and ONCEWARD_LEASE cannot be used: {why}");
    let engine = engine(store, &settings).map_err(unfit)?;
    let app = app(engine.clone(), Orders::default(), &settings)?;
    let stop = stop_signal()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, settings.port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let drained = serve(listener, app, engine, settings.drain_max, stop).await;
    println!("stopped: {drained:?}");
    Ok(())
}
