//! Publishing in transactions of sqlx.

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Postgres, Row as _, Transaction, ValueRef as _};
use uuid::Uuid;

use super::publish::{Columns, Inserted, content, headers, no_id};
use super::{Outbox, PublishError, Published};
use crate::event::{Event, EventId};

impl Outbox {
    /// The same as [`publish`](Self::publish), in a transaction of sqlx.
    ///
    /// # Errors
    ///
    /// See [`PublishError`]. Nothing was published.
    pub async fn publish_sqlx(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        event: &Event,
    ) -> Result<Published, PublishError> {
        let events = std::slice::from_ref(event);
        Ok(self.publish_all_sqlx(tx, events).await?.swap_remove(0))
    }

    /// The same as [`publish_all`](Self::publish_all), in a transaction of sqlx.
    ///
    /// # Errors
    ///
    /// See [`PublishError`]. Nothing counts: roll the transaction back.
    pub async fn publish_all_sqlx(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        events: &[Event],
    ) -> Result<Vec<Published>, PublishError> {
        let columns = self.columns(events)?;
        let rows = self.insert_sqlx(tx, columns).await.map_err(|error| self.failed_sqlx(error))?;
        let mut published = Vec::with_capacity(events.len());
        for (event, row) in events.iter().zip(&rows) {
            let id = uuid(row).map_err(|error| self.failed_sqlx(error))?;
            let inserted = row.try_get(1).map_err(|error| self.failed_sqlx(error))?;
            published.push(match Inserted::of(id, inserted) {
                Inserted::New(id) => Published::New(id),
                Inserted::NoId => return Err(no_id(event)),
                Inserted::Taken(id) => self.compare_sqlx(tx, event, id).await?,
            });
        }
        Ok(published)
    }

    async fn insert_sqlx(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        columns: Columns<'_>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let text = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
        let json: Vec<_> = columns.json.into_iter().map(|it| it.map(str::to_owned)).collect();
        let bytes: Vec<_> = columns.bytes.into_iter().map(|it| it.map(<[u8]>::to_vec)).collect();
        // Not prepared, as the connection is the caller's and may go through PgBouncer.
        sqlx::query(AssertSqlSafe(self.0.publish.clone()))
            .bind(columns.id.into_iter().map(|id| id.map(|id| id.to_string())).collect::<Vec<_>>())
            .bind(columns.lane)
            .bind(columns.lock)
            .bind(text(columns.kind))
            .bind(text(columns.aggregate))
            .bind(text(columns.event_type))
            .bind(json)
            .bind(bytes)
            .bind(text(columns.content_type))
            .bind(columns.headers)
            .bind(self.0.lock_class)
            .bind(&self.0.channel)
            .persistent(false)
            .fetch_all(&mut **tx)
            .await
    }

    async fn compare_sqlx(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        event: &Event,
        id: EventId,
    ) -> Result<Published, PublishError> {
        let (json, bytes) = content(event.payload());
        let row = sqlx::query(AssertSqlSafe(self.0.compare.clone()))
            .bind(id.to_string())
            .bind(event.aggregate().kind())
            .bind(event.aggregate().id())
            .bind(event.event_type())
            .bind(json)
            .bind(bytes)
            .bind(event.payload().content_type())
            .bind(headers(event))
            .persistent(false)
            .fetch_optional(&mut **tx)
            .await
            .map_err(|error| self.failed_sqlx(error))?;
        let same = row.map_or(Ok(true), |row| row.try_get(0));
        let same = same.map_err(|error| self.failed_sqlx(error))?;
        if same { Ok(Published::Before(id)) } else { Err(PublishError::IdTaken { id }) }
    }

    fn failed_sqlx(&self, error: sqlx::Error) -> PublishError {
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        let code = code.map(std::borrow::Cow::into_owned);
        self.failed_with(code.as_deref(), Box::new(error))
    }
}

/// The first column. Read as bytes: sqlx's own UUIDs are a feature that brings its other databases.
fn uuid(row: &PgRow) -> Result<Option<Uuid>, sqlx::Error> {
    let value = row.try_get_raw(0)?;
    if value.is_null() {
        return Ok(None);
    }
    let bytes = value.as_bytes().map_err(sqlx::Error::Decode)?;
    Uuid::from_slice(bytes).map(Some).map_err(|error| sqlx::Error::Decode(error.into()))
}
