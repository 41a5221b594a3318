//! What can be chosen about a PostgreSQL store.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::schema::Schema;

/// Where the tables are, how many connections there are, and how long calls may take.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The schema of the tables.
    pub schema: Schema,
    /// Whether opening the store brings its tables up to date. Where the program may not
    /// create tables, an operator runs [`migration_plan`](super::migration_plan)'s SQL.
    pub migrate: bool,
    /// Connections for claims, renewals and settlements. Few: calls that come together share
    /// a statement, and two to four connections carry most.
    pub connections: usize,
    /// Most transactions of [`Transactions`](super::Transactions) at once; each holds a
    /// connection of its own while its work runs.
    pub transactions_max: usize,
    /// Most calls of a kind in one statement; 1 turns batching off.
    pub batch_calls_max: usize,
    /// How long a call may take, waiting for a connection included. Below the engine's own
    /// limit (2 s), so that the store says what it knows before the engine has to guess.
    pub call_timeout: Duration,
    /// `statement_timeout` of claims, renewals and settlements at the server.
    pub statement_timeout: Duration,
    /// `lock_timeout`: how long a call waits for somebody else's transaction on its record.
    pub lock_timeout: Duration,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// Set behind PgBouncer in transaction mode: nothing is prepared by name, nothing is set
    /// for a session. Timeouts at the server then come from the role (`ALTER ROLE … SET
    /// lock_timeout`), and wake-ups need [`Listen::At`].
    pub pgbouncer: bool,
    /// Where to hear that a record was settled.
    pub listen: Listen,
    /// How much later than due a record may be removed, at most a sixteenth of its retention.
    /// It lets settlements leave the index alone that cleaning up goes by. Answers do not
    /// depend on it: what is past its time is absent at once.
    pub purge_slack_max: Duration,
    /// A file of PEM certificates to trust, instead of the system's.
    pub root_certificates: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            schema: Schema::default(),
            migrate: true,
            connections: 4,
            transactions_max: 8,
            batch_calls_max: 256,
            call_timeout: Duration::from_millis(1_900),
            statement_timeout: Duration::from_millis(1_500),
            lock_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_millis(1_500),
            pgbouncer: false,
            listen: Listen::Here,
            purge_slack_max: Duration::from_secs(3_600),
            root_certificates: None,
        }
    }
}

impl Settings {
    /// The settings with every value large enough to work at all.
    pub(super) fn sane(mut self) -> Self {
        self.connections = self.connections.max(1);
        self.transactions_max = self.transactions_max.max(1);
        self.batch_calls_max = self.batch_calls_max.max(1);
        self
    }

    /// How much later than due a record that is kept so long may be removed.
    pub(super) fn slack(&self, keep: Duration) -> Duration {
        (keep / 16).min(self.purge_slack_max)
    }
}

/// Where to hear that a record was settled (`LISTEN`). Without it waiters poll.
#[derive(Clone, PartialEq, Eq)]
pub enum Listen {
    /// Nowhere.
    Off,
    /// At the store's own address; nowhere behind PgBouncer.
    Here,
    /// At this URL: past PgBouncer, which does not carry notifications.
    At(String),
}

impl fmt::Debug for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "Off",
            Self::Here => "Here",
            // A URL carries a password.
            Self::At(_) => "At(…)",
        })
    }
}
