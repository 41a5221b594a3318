//! Failed statements, and what they say about their effect.

use std::sync::Arc;

use onceward_core::{Effect, StoreError, StoreErrorKind};
use tokio_postgres::error::{Severity, SqlState};

use super::row::Undecodable;

/// The name of the store in its errors.
pub(super) const STORE: &str = "postgres";

/// A failed statement, which may concern several calls.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) effect: Effect,
    pub(super) kind: StoreErrorKind,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Fault {
    pub(super) fn new(kind: StoreErrorKind, effect: Effect) -> Self {
        Self { effect, kind, source: None }
    }

    pub(super) fn caused_by(
        mut self,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// The error for want of a connection: nothing was sent.
    pub(super) fn unreached(source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(StoreErrorKind::Unavailable, Effect::NotApplied).caused_by(source)
    }

    /// The error of a call without an answer in time.
    pub(super) fn late(effect: Effect) -> Self {
        Self::new(StoreErrorKind::Timeout, effect)
    }

    /// Classifies the error of a statement.
    ///
    /// An error that the server replied rolled the statement back. Without a reply, or if the reply
    /// is the end of the connection, the statement may have been committed before.
    pub(super) fn of(error: tokio_postgres::Error) -> Self {
        let (kind, effect) = match error.as_db_error() {
            None => (StoreErrorKind::Unavailable, Effect::MayHaveBeenApplied),
            Some(reply) => (kind(reply.code()), effect(reply.parsed_severity(), reply.code())),
        };
        Self::new(kind, effect).caused_by(error)
    }

    /// Classifies an error of sqlx within a transaction, where nothing counts before the commit.
    #[cfg(feature = "sqlx")]
    pub(super) fn in_sqlx(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        let kind =
            code.map_or(StoreErrorKind::Unavailable, |code| kind(&SqlState::from_code(&code)));
        Self::new(kind, Effect::NotApplied).caused_by(error)
    }

    /// The same error for a statement that changes nothing.
    pub(super) fn harmless(mut self) -> Self {
        self.effect = Effect::NotApplied;
        self
    }

    /// Returns the loss of all records, if that is the cause.
    pub(super) fn lost(&self) -> Option<&RecordsLost> {
        self.source.as_ref()?.downcast_ref()
    }

    pub(super) fn is_harmless(&self) -> bool {
        self.effect == Effect::NotApplied
    }
}

fn effect(severity: Option<Severity>, code: &SqlState) -> Effect {
    let ended = matches!(severity, Some(Severity::Fatal | Severity::Panic) | None);
    // 08 is a connection error; 40003 means that the server does not know the result.
    let unclear =
        code.code().starts_with("08") || *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN;
    if ended || unclear { Effect::MayHaveBeenApplied } else { Effect::NotApplied }
}

fn kind(code: &SqlState) -> StoreErrorKind {
    if *code == SqlState::QUERY_CANCELED || *code == SqlState::LOCK_NOT_AVAILABLE {
        StoreErrorKind::Timeout
    } else if *code == SqlState::DISK_FULL {
        StoreErrorKind::Full
    } else {
        StoreErrorKind::Unavailable
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        let error = StoreError::new(STORE, fault.kind, fault.effect);
        match fault.source {
            Some(source) => error.caused_by(Caused(source)),
            None => error,
        }
    }
}

impl From<Undecodable> for Fault {
    fn from(wrong: Undecodable) -> Self {
        Self::new(StoreErrorKind::Undecodable, Effect::NotApplied).caused_by(wrong)
    }
}

/// A cause that several errors share.
#[derive(Debug)]
struct Caused(Arc<dyn std::error::Error + Send + Sync>);

impl std::fmt::Display for Caused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Caused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// All records are gone: the table was emptied or recreated. The source of a [`StoreError`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "all records in the schema `{schema}` were removed, so new keys cannot be told from lost ones: no claims \
     are granted until the records are restored with their sentinel, or an operator runs \
     `onceward store accept-loss`"
)]
pub struct RecordsLost {
    /// The schema.
    pub schema: String,
}

/// Why a PostgreSQL store does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address or a setting of the connection is wrong.
    #[error("the address of the PostgreSQL server is not valid")]
    Address(#[source] tokio_postgres::Error),
    /// The certificates for TLS cannot be read.
    #[error("the certificates in `{path}` cannot be used: {reason}")]
    Certificates {
        /// The file, or another source.
        path: String,
        /// The problem.
        reason: String,
    },
    /// The server cannot be reached, or refuses the login.
    #[error("the PostgreSQL server cannot be reached: {reason}")]
    Unreachable {
        /// The driver's message, without any part of the URL.
        reason: String,
        /// The driver's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A newer release has changed the tables in a way that this one must not write to.
    #[error(
        "the schema `{schema}` has version {found} and needs a release that knows version {wanted}; this one knows {known}: use a newer release"
    )]
    Newer {
        /// The schema.
        schema: String,
        /// The version of the schema.
        found: i32,
        /// The version that a release must know.
        wanted: i32,
        /// The newest version that this release knows.
        known: i32,
    },
    /// The tables are missing or older than this release needs, and the settings say not to
    /// migrate.
    #[error(
        "the schema `{schema}` has version {found}, this release needs {known}: run the migration"
    )]
    Older {
        /// The schema.
        schema: String,
        /// The version of the schema; 0 if there are no tables.
        found: i32,
        /// The version that this release needs.
        known: i32,
    },
    /// A migration failed. It was rolled back.
    #[error("the migration {version} ({name}) failed and was rolled back: {reason}")]
    Migration {
        /// The number of the migration.
        version: i32,
        /// The name of the migration.
        name: &'static str,
        /// The server's message.
        reason: String,
        /// The driver's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Commits are not durable, and behind PgBouncer the store cannot change that.
    #[error(
        "`synchronous_commit` is off, so commits can be lost: run `ALTER ROLE … SET synchronous_commit = on`"
    )]
    NotDurable,
    /// A resolver's query does not depend on the operation.
    #[error(
        "the query names no operation: select by {{operation}}, {{downstream_key}} or {{reference}}"
    )]
    NoOperation,
}

impl OpenError {
    /// The error of a server that cannot be reached, or whose connection has ended.
    pub fn unreachable(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let source = source.into();
        Self::Unreachable { reason: chain(&*source), source }
    }
}

/// An error with its causes, as drivers say little in the first line.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}
