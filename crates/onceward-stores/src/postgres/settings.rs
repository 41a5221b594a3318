//! Settings of a PostgreSQL store.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::schema::Schema;

/// Tables, connections and time limits.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The schema of the tables.
    pub schema: Schema,
    /// Whether opening the store brings its tables up to date. If the program may not create
    /// tables, an operator runs the SQL of [`migration_plan`](super::migration_plan).
    pub migrate: bool,
    /// Connections for claims, renewals and settlements. Concurrent calls share a statement, so two
    /// to four connections are usually enough.
    pub connections: usize,
    /// Most concurrent transactions of [`Transactions`](super::Transactions). Each holds a
    /// connection while its work runs.
    pub transactions_max: usize,
    /// Most calls of a kind in one statement; 1 turns batching off.
    pub batch_calls_max: usize,
    /// Longest time for a call, including the wait for a connection. Below the engine's own limit
    /// (2 s), so that the store reports what it knows before the engine gives up.
    pub call_timeout: Duration,
    /// `statement_timeout` of claims, renewals and settlements at the server.
    pub statement_timeout: Duration,
    /// `lock_timeout`: how long a call waits for another transaction on its record.
    pub lock_timeout: Duration,
    /// Longest time for connecting.
    pub connect_timeout: Duration,
    /// True behind PgBouncer in transaction mode: statements are not prepared by name, and no
    /// session settings are made. Timeouts at the server then come from the role (`ALTER ROLE … SET
    /// lock_timeout`), and notifications need [`Listen::At`].
    pub pgbouncer: bool,
    /// Where to listen for settlements.
    pub listen: Listen,
    /// How much later than due a record may be removed, at most a sixteenth of its retention. The
    /// slack spares settlements an update of the index that purging uses. Answers do not depend on
    /// it: a record past its tombstone is absent at once.
    pub purge_slack_max: Duration,
    /// PEM file of certificates to trust, instead of the system's.
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

    /// The slack for a record with this retention.
    pub(super) fn slack(&self, keep: Duration) -> Duration {
        (keep / 16).min(self.purge_slack_max)
    }
}

/// Where to listen for settlements (`LISTEN`). Without it waiters poll.
#[derive(Clone, PartialEq, Eq)]
pub enum Listen {
    /// Nowhere.
    Off,
    /// At the store's own address; nowhere behind PgBouncer.
    Here,
    /// At this URL, which must not lead through PgBouncer, as that does not forward notifications.
    At(String),
}

impl fmt::Debug for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "Off",
            Self::Here => "Here",
            // The URL may contain a password.
            Self::At(_) => "At(…)",
        })
    }
}
