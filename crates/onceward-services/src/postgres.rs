//! PostgreSQL.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::Signal;

use crate::error::ServiceError;
use crate::found::Found;
use crate::home::Home;
use crate::launch::Launch;
use crate::program::Program;
use crate::server::{Ready, Recipe, Server, Stop, tail};

/// Settings of a PostgreSQL. Every process of this machine may connect, as `postgres`, without a
/// password.
///
/// ```no_run
/// # use onceward_services::{Postgres, ServiceError};
/// # fn start() -> Result<(), ServiceError> {
/// let postgres = Postgres::default().fsync(false).setting("max_connections", "20").start()?;
/// println!("psql {}", postgres.url());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Postgres {
    settings: Vec<(String, String)>,
    tls: Option<Tls>,
}

/// In PEM.
#[derive(Debug, Clone)]
struct Tls {
    certificate: String,
    key: String,
}

/// Logical decoding is among what is tested, tests hold many connections, and a killed server
/// leaves nothing outside of its directory.
const SETTINGS: [(&str, &str); 7] = [
    ("listen_addresses", "127.0.0.1"),
    ("unix_socket_directories", ""),
    ("logging_collector", "off"),
    ("log_destination", "stderr"),
    ("dynamic_shared_memory_type", "mmap"),
    ("wal_level", "logical"),
    ("max_connections", "200"),
];

impl Default for Postgres {
    fn default() -> Self {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self { settings: SETTINGS.map(owned).to_vec(), tls: None }
    }
}

impl Postgres {
    /// Whether a commit waits for the disk; it does by default. Data survives `kill` either
    /// way: only a crash of the machine tells the difference, and the speed.
    #[must_use]
    pub fn fsync(self, on: bool) -> Self {
        self.setting("fsync", if on { "on" } else { "off" })
    }

    /// One setting of `postgresql.conf`; the last one of a name counts.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Requires TLS, with this certificate and key (in PEM).
    #[must_use]
    pub fn only_tls(mut self, certificate: &str, key: &str) -> Self {
        self.tls = Some(Tls { certificate: certificate.to_owned(), key: key.to_owned() });
        self
    }

    /// Creates an empty database cluster and starts it.
    ///
    /// # Errors
    ///
    /// If PostgreSQL is missing or does not start.
    pub fn start(&self) -> Result<Server, ServiceError> {
        let found = Program::Postgres.find()?;
        Home::for_starting(|home| {
            copy_template(home, &found)?;
            let tls = self.tls.as_ref().map(|tls| tls.write(home)).transpose()?;
            Server::new(home, self.recipe(home, &found, &tls.unwrap_or_default()))
        })
    }

    fn recipe(&self, home: &Home, found: &Found, more: &[(String, String)]) -> Recipe {
        let port = home.port(0);
        let mut arguments = vec!["-D".to_owned(), data(home), "-p".to_owned(), port.to_string()];
        for (name, value) in self.settings.iter().chain(more) {
            arguments.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
        Recipe {
            name: "postgres".to_owned(),
            found: found.clone(),
            executable: "postgres",
            arguments,
            port,
            url: format!("postgres://postgres@127.0.0.1:{port}/postgres"),
            ready: Ready::Logs("database system is ready to accept connections"),
            // "Fast": connections are ended, what they had not committed is rolled back.
            stop: Stop::Signal(Signal::INT),
        }
    }
}

impl Tls {
    /// Writes the files, and returns the settings that name them.
    fn write(&self, home: &Home) -> Result<Vec<(String, String)>, ServiceError> {
        let files = [
            ("ssl_cert_file", "server.crt", &*self.certificate),
            ("ssl_key_file", "server.key", &*self.key),
            ("hba_file", "only_tls.conf", "hostssl all all 127.0.0.1/32 trust\n"),
        ];
        let mut settings = vec![("ssl".to_owned(), "on".to_owned())];
        for (setting, name, text) in files {
            let file = home.directory().join(name);
            write_private(&file, text).map_err(ServiceError::io(format!("writing {name}")))?;
            home.give_away(&file)?;
            settings.push((setting.to_owned(), file.display().to_string()));
        }
        Ok(settings)
    }
}

/// The server refuses a key that others may read.
fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(file)?.write_all(text.as_bytes())
}

/// Runs SQL by `psql` and returns its rows, columns separated by `|`.
///
/// For tests that have no driver: it starts a process.
///
/// # Errors
///
/// If the SQL fails, or no connection is accepted within five seconds.
pub fn query(server: &Server, sql: &str) -> Result<String, ServiceError> {
    query_in(server, "postgres", sql)
}

/// The same in another database.
///
/// # Errors
///
/// As [`query`].
pub fn query_in(server: &Server, database: &str, sql: &str) -> Result<String, ServiceError> {
    let found = Program::Postgres.find()?;
    let port = server.port();
    // A paused server accepts no connections.
    let url = format!("postgres://postgres@127.0.0.1:{port}/{database}?connect_timeout=5");
    let words = ["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", &url, "-c", sql];
    let output = run(server.home(), &found, "psql", &words)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    } else {
        Err(server.failed(String::from_utf8_lossy(&output.stderr).trim_end()))
    }
}

/// An empty database cluster, created once in a process: `initdb` takes seconds of processor
/// time, a copy of its result takes a fraction of one.
static TEMPLATE: Mutex<Option<Arc<Home>>> = Mutex::new(None);

fn copy_template(home: &Home, found: &Found) -> Result<(), ServiceError> {
    let mut template = TEMPLATE.lock().unwrap_or_else(PoisonError::into_inner);
    let from = match template.as_ref() {
        Some(created) => data(created),
        None => data(template.insert(create(found)?)),
    };
    // Copying needs no turn.
    drop(template);
    let cp = Found::Executable("/bin/cp".into());
    succeeded("cp", &run(home, &cp, "cp", &["-R", &from, &data(home)])?)
}

/// `-N`: what is created is not worth an fsync, what is committed later is.
fn create(found: &Found) -> Result<Arc<Home>, ServiceError> {
    Home::for_starting(|home| {
        let data = data(home);
        let words =
            ["-D", &data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N"];
        succeeded("initdb", &run(home, found, "initdb", &words)?)?;
        Ok(Arc::clone(home))
    })
}

fn succeeded(program: &str, output: &Output) -> Result<(), ServiceError> {
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    Err(ServiceError::Failed {
        server: program.to_owned(),
        what: output.status.to_string(),
        log: tail(&String::from_utf8_lossy(&text)),
    })
}

fn data(home: &Home) -> String {
    home.directory().join("data").display().to_string()
}

/// Runs one of PostgreSQL's other programs to its end.
fn run(
    home: &Home,
    found: &Found,
    executable: &str,
    words: &[&str],
) -> Result<Output, ServiceError> {
    let launch = Launch {
        home,
        name: executable,
        found: &found.sibling(executable),
        executable,
        arguments: &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(),
    };
    let mut command = launch.command()?.command;
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    let _was_never_written = std::fs::remove_file(launch.pid_file());
    output.map_err(ServiceError::io(format!("running {executable}")))
}
