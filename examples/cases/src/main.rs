//! Starts the service.

use std::env;
use std::error::Error;
use std::net::Ipv4Addr;

use example_cases::{Cases, app};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port()?)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app(Cases::default())?).await?;
    Ok(())
}

/// Port from `PORT`, by default 8085. 0 uses a free port.
fn port() -> Result<u16, String> {
    let port = env::var("PORT").unwrap_or_else(|_| "8085".into());
    port.parse().map_err(|_| format!("PORT is {port:?}; it must be a number from 0 to 65535"))
}
