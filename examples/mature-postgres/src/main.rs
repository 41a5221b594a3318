//! Starts the service.

use std::env;
use std::error::Error;
use std::net::Ipv4Addr;

use example_mature_postgres::app;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port()?)).await?;
    let app = app(&database_url()).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

/// URL of the database from `DATABASE_URL`, by default a local server.
fn database_url() -> String {
    env::var("DATABASE_URL").unwrap_or_else(|_| "postgres://postgres@localhost/postgres".into())
}

/// Port from `PORT`, by default 8086. 0 uses a free port.
fn port() -> Result<u16, String> {
    let port = env::var("PORT").unwrap_or_else(|_| "8086".into());
    port.parse().map_err(|_| format!("PORT is {port:?}; it must be a number from 0 to 65535"))
}
