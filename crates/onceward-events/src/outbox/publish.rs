//! Publishing within a transaction.

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::Outbox;
use crate::event::{Event, EventId, InvalidEvent, Payload};

/// A published event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Published {
    /// It is delivered after the commit.
    New(EventId),
    /// It was published before under the same id, with the same content, and is not delivered yet.
    Before(EventId),
}

impl Published {
    /// The event's id.
    pub fn id(self) -> EventId {
        match self {
            Self::New(id) | Self::Before(id) => id,
        }
    }
}

/// Why an event was not published. The transaction must be rolled back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The event itself is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidEvent),
    /// No operation claimed the transaction, so there is nothing to derive an id from.
    #[error(
        "the {event_type} event has no id, and no operation claimed this transaction: publish within \
         `Transactions::transact`, or give the event an id with `Event::with_id`"
    )]
    NoId {
        /// The event's type.
        event_type: String,
    },
    /// The id was given to another event. Consumers would ignore this one.
    #[error(
        "the event id {id} was published with other content before: an id belongs to one event for ever"
    )]
    IdTaken {
        /// The id.
        id: EventId,
    },
    /// The tables are missing.
    #[error(
        "there is no outbox in the schema `{schema}`: run `Outbox::migrate` or `onceward outbox migrate`"
    )]
    NoTables {
        /// The schema.
        schema: String,
        /// The driver's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The transaction published events of more aggregates than the server has room for locks.
    #[error(
        "the transaction publishes events of too many aggregates: publish in smaller transactions, or \
         raise `max_locks_per_transaction` of PostgreSQL"
    )]
    TooManyAggregates(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The statement failed.
    #[error("the event was not published")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Outbox {
    /// Publishes an event: it is delivered if the transaction commits, and only then.
    ///
    /// The transaction holds a lock of the event's aggregate until it ends, so publish late in long
    /// transactions. Others that publish about the same aggregate wait.
    ///
    /// `tx` is a transaction of tokio-postgres, or the client of a
    /// [`TransactionHandle`](onceward_stores::postgres::TransactionHandle). Outside of a transaction
    /// the event is committed at once.
    ///
    /// # Errors
    ///
    /// See [`PublishError`]. Nothing was published.
    pub async fn publish<C>(&self, tx: &C, event: &Event) -> Result<Published, PublishError>
    where
        C: GenericClient + Sync,
    {
        Ok(self.publish_all(tx, std::slice::from_ref(event)).await?.swap_remove(0))
    }

    /// Publishes several events, in their order, with one statement.
    ///
    /// # Errors
    ///
    /// See [`PublishError`]. Nothing counts: roll the transaction back.
    pub async fn publish_all<C>(
        &self,
        tx: &C,
        events: &[Event],
    ) -> Result<Vec<Published>, PublishError>
    where
        C: GenericClient + Sync,
    {
        let columns = self.columns(events)?;
        let rows = tx
            .query_typed(&self.0.publish, &columns.values(self))
            .await
            .map_err(|error| self.failed(error))?;
        let mut published = Vec::with_capacity(events.len());
        for (event, row) in events.iter().zip(&rows) {
            published.push(match Inserted::read(row)? {
                Inserted::New(id) => Published::New(id),
                Inserted::NoId => return Err(no_id(event)),
                Inserted::Taken(id) => self.compare(tx, event, id).await?,
            });
        }
        Ok(published)
    }

    /// Tells an event that was published before from another one with its id.
    async fn compare<C>(
        &self,
        tx: &C,
        event: &Event,
        id: EventId,
    ) -> Result<Published, PublishError>
    where
        C: GenericClient + Sync,
    {
        let (json, bytes) = content(event.payload());
        let (aggregate, headers) = (event.aggregate(), headers(event));
        let values: [(&(dyn ToSql + Sync), Type); 8] = [
            (&id.as_uuid(), Type::UUID),
            (&aggregate.kind(), Type::TEXT),
            (&aggregate.id(), Type::TEXT),
            (&event.event_type(), Type::TEXT),
            (&json, Type::TEXT),
            (&bytes, Type::BYTEA),
            (&event.payload().content_type(), Type::TEXT),
            (&headers, Type::TEXT),
        ];
        let rows = tx.query_typed(&self.0.compare, &values).await;
        let rows = rows.map_err(|error| self.failed(error))?;
        // Delivered just now: its content cannot be compared any more.
        let same = rows.first().map_or(Ok(true), |row| row.try_get(0)).map_err(unreadable)?;
        if same { Ok(Published::Before(id)) } else { Err(PublishError::IdTaken { id }) }
    }

    pub(super) fn columns<'a>(&self, events: &'a [Event]) -> Result<Columns<'a>, PublishError> {
        let mut columns = Columns::default();
        for event in events {
            event.check_size(self.0.settings.event_bytes_max)?;
            let (json, bytes) = content(event.payload());
            columns.id.push(event.id().map(|id| id.as_uuid()));
            columns.lane.push(event.aggregate().lane().column());
            columns.lock.push(event.aggregate().lock());
            columns.kind.push(event.aggregate().kind());
            columns.aggregate.push(event.aggregate().id());
            columns.event_type.push(event.event_type());
            columns.json.push(json);
            columns.bytes.push(bytes);
            columns.content_type.push(event.payload().content_type());
            columns.headers.push(headers(event));
        }
        Ok(columns)
    }

    fn failed(&self, error: tokio_postgres::Error) -> PublishError {
        let code = error.code().map(|code| code.code().to_owned());
        self.failed_with(code.as_deref(), Box::new(error))
    }

    pub(super) fn failed_with(
        &self,
        code: Option<&str>,
        source: Box<dyn std::error::Error + Send + Sync>,
    ) -> PublishError {
        let schema = self.0.settings.schema.to_string();
        let is = |state: SqlState| code == Some(state.code());
        if is(SqlState::UNDEFINED_TABLE) || is(SqlState::INVALID_SCHEMA_NAME) {
            return PublishError::NoTables { schema, source };
        }
        if is(SqlState::OUT_OF_MEMORY) {
            return PublishError::TooManyAggregates(source);
        }
        PublishError::Database(source)
    }
}

/// The events as arrays, in their order.
#[derive(Default)]
pub(super) struct Columns<'a> {
    pub(super) id: Vec<Option<Uuid>>,
    pub(super) lane: Vec<i16>,
    pub(super) lock: Vec<i32>,
    pub(super) kind: Vec<&'a str>,
    pub(super) aggregate: Vec<&'a str>,
    pub(super) event_type: Vec<&'a str>,
    pub(super) json: Vec<Option<&'a str>>,
    pub(super) bytes: Vec<Option<&'a [u8]>>,
    pub(super) content_type: Vec<&'a str>,
    pub(super) headers: Vec<Option<String>>,
}

impl Columns<'_> {
    fn values<'b>(&'b self, outbox: &'b Outbox) -> [(&'b (dyn ToSql + Sync), Type); 12] {
        [
            (&self.id, Type::UUID_ARRAY),
            (&self.lane, Type::INT2_ARRAY),
            (&self.lock, Type::INT4_ARRAY),
            (&self.kind, Type::TEXT_ARRAY),
            (&self.aggregate, Type::TEXT_ARRAY),
            (&self.event_type, Type::TEXT_ARRAY),
            (&self.json, Type::TEXT_ARRAY),
            (&self.bytes, Type::BYTEA_ARRAY),
            (&self.content_type, Type::TEXT_ARRAY),
            (&self.headers, Type::TEXT_ARRAY),
            (&outbox.0.lock_class, Type::INT4),
            (&outbox.0.channel, Type::TEXT),
        ]
    }
}

/// The result of one event of a statement.
pub(super) enum Inserted {
    New(EventId),
    Taken(EventId),
    NoId,
}

impl Inserted {
    fn read(row: &Row) -> Result<Self, PublishError> {
        let id = row.try_get(0).map_err(unreadable)?;
        Ok(Self::of(id, row.try_get(1).map_err(unreadable)?))
    }

    pub(super) fn of(id: Option<Uuid>, inserted: bool) -> Self {
        match id.map(EventId::from) {
            None => Self::NoId,
            Some(id) if inserted => Self::New(id),
            Some(id) => Self::Taken(id),
        }
    }
}

pub(super) fn no_id(event: &Event) -> PublishError {
    PublishError::NoId { event_type: event.event_type().to_owned() }
}

fn unreadable(error: tokio_postgres::Error) -> PublishError {
    PublishError::Database(Box::new(error))
}

pub(super) fn content(payload: &Payload) -> (Option<&str>, Option<&[u8]>) {
    match payload {
        Payload::Json(text) => (Some(text), None),
        Payload::Bytes { bytes, .. } => (None, Some(bytes)),
    }
}

/// The headers as a JSON object; `None` without any.
pub(super) fn headers(event: &Event) -> Option<String> {
    let headers = event.headers();
    (!headers.is_empty()).then(|| serde_json::json!(headers).to_string())
}
