//! Serves the shop and its payment provider, and prints what passes between them.

use std::env;
use std::error::Error;
use std::net::Ipv4Addr;

use example_payments::{Charging, Line, Provider, app, switch};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port("PORT", 8084)?)).await?;
    let line = Line::open(&Provider::default(), port("PROVIDER_PORT", 8184)?).await?;
    let charging = Charging::at(format!("http://{}", line.address()))?;
    println!("listening on http://{}", listener.local_addr()?);
    println!("the payment provider listens on http://{}", line.address());
    axum::serve(listener, app(charging).await?.merge(switch(line))).await?;
    Ok(())
}

/// A port by a variable. 0 takes any free one.
fn port(name: &str, default: u16) -> Result<u16, String> {
    let port = env::var(name).unwrap_or_else(|_| default.to_string());
    port.parse().map_err(|_| format!("{name} is {port:?}; it must be a number from 0 to 65535"))
}
