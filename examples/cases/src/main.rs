//! Starts the service.

use std::net::Ipv4Addr;
use std::process::ExitCode;

use example_cases::{CaseService, Settings};
use onceward::BoxError;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), BoxError> {
    let settings = Settings::from_env()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, settings.port)).await?;
    let address = listener.local_addr()?;
    let routes = CaseService::new(settings).into_router().await?;
    println!("listening on http://{address}");
    axum::serve(listener, routes).await?;
    Ok(())
}
