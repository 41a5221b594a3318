//! Moves time for stores on real servers, whose clocks cannot be moved.

use std::time::Duration;

use crate::error::ServiceError;
use crate::postgres::{query, query_in};
use crate::resp::{Reply, ask};
use crate::server::Server;

/// Lets time pass for a Redis store by making every record under its prefix older. For scripts that
/// compare their clock with stored times this is the same.
///
/// # Errors
///
/// If a server refuses.
pub fn age(servers: &[&Server], prefix: &str, by: Duration) -> Result<(), ServiceError> {
    let by = by.as_millis().to_string();
    // A replica has what its primary has.
    for server in servers.iter().filter(|server| is_primary(server)) {
        match ask(server, &["EVAL", include_str!("age.lua"), "0", prefix, &by]) {
            Ok(Reply::Text(_)) => {}
            Ok(other) => return Err(server.failed(format!("{other:?}"))),
            Err(error) => return Err(ServiceError::io("making records older")(error)),
        }
    }
    Ok(())
}

/// Whether a Redis takes writes.
pub fn is_primary(server: &Server) -> bool {
    let role = ask(server, &["INFO", "replication"]);
    matches!(role, Ok(Reply::Text(text)) if text.contains("role:master"))
}

/// A database in which time stands still until a test moves it. Its sessions find our function
/// `clock_timestamp` before PostgreSQL's; it reads the time of their `application_name`.
#[derive(Debug, Clone, Copy)]
pub struct MovedDatabase<'s> {
    server: &'s Server,
}

impl<'s> MovedDatabase<'s> {
    /// Its name on the server.
    pub const NAME: &'static str = "moved";

    /// Creates it; once a server.
    ///
    /// # Errors
    ///
    /// If the server refuses.
    pub fn create(server: &'s Server) -> Result<Self, ServiceError> {
        query(server, &format!("CREATE DATABASE {}", Self::NAME))?;
        let sql = "CREATE SCHEMA clock;
            CREATE TABLE clock.moved (name text PRIMARY KEY, at timestamptz NOT NULL);
            CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
            'SELECT at FROM clock.moved WHERE name = pg_catalog.current_setting(''application_name'')';
            ALTER DATABASE moved SET search_path = clock, pg_catalog";
        query_in(server, Self::NAME, sql)?;
        Ok(Self { server })
    }

    /// The server that it is on.
    pub fn server(&self) -> &'s Server {
        self.server
    }

    /// The URL of sessions on one of its clocks, through a port of the server or of a proxy
    /// before it.
    pub fn url(port: u16, clock: &str) -> String {
        let name = Self::NAME;
        format!(
            "postgres://postgres@127.0.0.1:{port}/{name}?application_name={clock}&sslmode=disable"
        )
    }

    /// Begins a clock, unless it is there.
    ///
    /// # Errors
    ///
    /// If the server refuses.
    pub fn begin(&self, clock: &str) -> Result<(), ServiceError> {
        self.run(&Self::begin_sql(clock, "'2026-11-16'"))
    }

    /// Moves a clock on.
    ///
    /// # Errors
    ///
    /// If the server refuses.
    pub fn pass(&self, clock: &str, by: Duration) -> Result<(), ServiceError> {
        self.run(&Self::pass_sql(clock, by))
    }

    /// SQL of [`begin`](Self::begin), for callers with a connection, starting at a time in SQL.
    pub fn begin_sql(clock: &str, at: &str) -> String {
        format!("INSERT INTO clock.moved VALUES ('{clock}', {at}) ON CONFLICT DO NOTHING")
    }

    /// SQL of [`pass`](Self::pass), for callers with a connection.
    pub fn pass_sql(clock: &str, by: Duration) -> String {
        let by = by.as_micros();
        format!(
            "UPDATE clock.moved SET at = at + interval '{by} microseconds' WHERE name = '{clock}'"
        )
    }

    fn run(&self, sql: &str) -> Result<(), ServiceError> {
        query_in(self.server, Self::NAME, sql).map(drop)
    }
}
