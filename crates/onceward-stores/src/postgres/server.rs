//! Connections to a server.

use std::fmt;
use std::str::FromStr as _;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::OpenError;
use super::notifications::ListenSource;
use super::settings::{Listen, Settings};
use super::tls;

/// A connection that its caller drives.
pub type ServerConnection =
    Connection<Socket, <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream>;

/// A PostgreSQL server: its address, and how to connect to it.
#[derive(Clone)]
pub struct Server {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
}

impl Server {
    /// A server at a URL, with the certificates and time limits of the settings.
    pub fn new(url: &str, settings: &Settings) -> Result<Self, OpenError> {
        let config = address(url, settings)?;
        let file = settings.root_certificates.as_deref();
        let tls = match config.get_ssl_mode() {
            // Without TLS the system's certificates are not needed.
            SslMode::Disable if file.is_none() => tls::connector_without_roots()?,
            _ => tls::connector(file)?,
        };
        Ok(Self { config, tls })
    }

    /// Connects. The connection ends with its client.
    pub async fn connect(&self, settings: &Settings) -> Result<Client, OpenError> {
        let (client, connection) = self.connect_raw(settings).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL");
            }
        });
        Ok(client)
    }

    /// Connects, and leaves the connection's messages to the caller: see
    /// [`Connection::poll_message`](tokio_postgres::Connection::poll_message).
    pub async fn connect_raw(
        &self,
        settings: &Settings,
    ) -> Result<(Client, ServerConnection), OpenError> {
        let connecting = self.config.connect(self.tls.clone());
        let connected = timeout(settings.connect_timeout * 2, connecting).await;
        connected
            .map_err(|_| OpenError::unreachable("no answer in time"))?
            .map_err(OpenError::unreachable)
    }

    pub(super) fn listen_source(
        &self,
        settings: &Settings,
    ) -> Result<Option<ListenSource>, OpenError> {
        let config = match &settings.listen {
            Listen::Off => return Ok(None),
            Listen::Here if settings.pgbouncer => return Ok(None),
            Listen::Here => self.config.clone(),
            Listen::At(url) => address(url, settings)?,
        };
        let (tls, channel) = (self.tls.clone(), settings.schema.channel());
        Ok(Some(ListenSource { config, tls, channel }))
    }
}

fn address(url: &str, settings: &Settings) -> Result<Config, OpenError> {
    let mut config = Config::from_str(url).map_err(OpenError::Address)?;
    if config.get_application_name().is_none() {
        config.application_name("onceward");
    }
    config.connect_timeout(settings.connect_timeout);
    // Detects a dead server while calls still wait for it.
    config.keepalives_idle(Duration::from_secs(15));
    config.keepalives_interval(Duration::from_secs(5));
    config.tcp_user_timeout(Duration::from_secs(15));
    Ok(config)
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address contains a password.
        f.debug_struct("Server").finish_non_exhaustive()
    }
}
