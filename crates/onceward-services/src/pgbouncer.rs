//! PgBouncer in transaction mode.

use crate::error::ServiceError;
use crate::home::Home;
use crate::program::Program;
use crate::server::{Ready, Recipe, Server, Stop};

/// Settings of a PgBouncer in transaction mode: each transaction of a client may get another
/// connection to PostgreSQL.
#[derive(Debug, Clone)]
pub struct PgBouncer {
    postgres_port: u16,
    settings: Vec<(String, String)>,
}

impl PgBouncer {
    /// One that connects to this PostgreSQL, which has to outlive it to be of use.
    pub fn before(postgres: &Server) -> Self {
        let settings = [
            ("pool_mode", "transaction"),
            ("max_client_conn", "1000"),
            ("default_pool_size", "20"),
            // Drivers ask for it at every connection.
            ("ignore_startup_parameters", "extra_float_digits"),
            // By default it takes 15 s to try again after PostgreSQL was restarted.
            ("server_login_retry", "1"),
        ];
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self { postgres_port: postgres.port(), settings: settings.map(owned).to_vec() }
    }

    /// One setting of `pgbouncer.ini`; the last one of a name counts.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it.
    ///
    /// # Errors
    ///
    /// If PgBouncer is missing or does not start.
    pub fn start(&self) -> Result<Server, ServiceError> {
        let found = Program::PgBouncer.find()?;
        Home::for_starting(|home| {
            let port = home.port(0);
            let users = home.write("users.txt", "\"postgres\" \"\"\n")?;
            let ini = self.ini(port, &users.display().to_string());
            let ini = home.write("pgbouncer.ini", &ini)?;
            let recipe = Recipe {
                name: "pgbouncer".to_owned(),
                found: found.clone(),
                executable: "pgbouncer",
                arguments: vec![ini.display().to_string()],
                port,
                url: format!("postgres://postgres@127.0.0.1:{port}/postgres"),
                ready: Ready::Logs("process up"),
                stop: Stop::Kill,
            };
            Server::new(home, recipe)
        })
    }

    fn ini(&self, port: u16, users: &str) -> String {
        let postgres_port = self.postgres_port;
        let mut ini = format!(
            "[databases]\n* = host=127.0.0.1 port={postgres_port}\n\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {users}\nadmin_users = postgres\n"
        );
        for (name, value) in &self.settings {
            ini.push_str(&format!("{name} = {value}\n"));
        }
        ini
    }
}
