//! Starts the shop and its payment provider, and prints the messages between them.

use std::env;
use std::error::Error;
use std::net::Ipv4Addr;

use example_payments::{Provider, ProviderClient, ProviderServer, app, outage_routes};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port("PORT", 8084)?)).await?;
    let provider =
        ProviderServer::start(&Provider::default(), port("PROVIDER_PORT", 8184)?).await?;
    let client = ProviderClient::new(format!("http://{}", provider.address()))?;
    println!("listening on http://{}", listener.local_addr()?);
    println!("the payment provider listens on http://{}", provider.address());
    axum::serve(listener, app(client).await?.merge(outage_routes(provider))).await?;
    Ok(())
}

/// Port from an environment variable, or the default. 0 uses a free port.
fn port(name: &str, default: u16) -> Result<u16, String> {
    let port = env::var(name).unwrap_or_else(|_| default.to_string());
    port.parse().map_err(|_| format!("{name} is {port:?}; it must be a number from 0 to 65535"))
}
