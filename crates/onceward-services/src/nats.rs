//! NATS with JetStream.

use rustix::process::Signal;

use crate::error::ServiceError;
use crate::home::Home;
use crate::program::Program;
use crate::server::{Ready, Recipe, Server, Stop};

/// Settings of a NATS with JetStream. All users of the machine can connect, without a password.
///
/// ```no_run
/// # use onceward_services::{Nats, ServiceError};
/// # fn start() -> Result<(), ServiceError> {
/// let nats = Nats::default().setting("max_payload", "64KB").start()?;
/// println!("nats --server {} stream ls", nats.url());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Nats {
    settings: Vec<(String, String)>,
    jetstream: Vec<(String, String)>,
}

impl Nats {
    /// Adds a setting to the configuration file, with its value in the file's syntax.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a setting to the section `jetstream` of the file, such as `max_file_store`.
    #[must_use]
    pub fn jetstream(mut self, name: &str, value: &str) -> Self {
        self.jetstream.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts an empty server.
    ///
    /// # Errors
    ///
    /// If NATS is missing or does not start.
    pub fn start(&self) -> Result<Server, ServiceError> {
        let found = Program::Nats.find()?;
        Home::for_starting(|home| {
            let port = home.port(0);
            let data = home.room("nats-data")?;
            let file = self.file(port, &data.display().to_string());
            let file = home.write("nats.conf", &file)?;
            let recipe = Recipe {
                name: "nats".to_owned(),
                found: found.clone(),
                executable: "nats-server",
                arguments: vec!["--config".to_owned(), file.display().to_string()],
                port,
                url: format!("nats://127.0.0.1:{port}"),
                ready: Ready::Logs("Server is ready"),
                stop: Stop::Signal(Signal::TERM),
            };
            Server::new(home, recipe)
        })
    }

    fn file(&self, port: u16, data: &str) -> String {
        let lines = |settings: &[(String, String)]| {
            settings.iter().map(|(name, value)| format!("{name}: {value}\n")).collect::<String>()
        };
        let (settings, jetstream) = (lines(&self.settings), lines(&self.jetstream));
        format!(
            "listen: \"127.0.0.1:{port}\"\n{settings}\
             jetstream {{\nstore_dir: \"{data}\"\n{jetstream}}}\n"
        )
    }
}
