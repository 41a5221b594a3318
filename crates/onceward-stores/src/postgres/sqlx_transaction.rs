//! Claims and settlements in transactions of sqlx. Statements, parameters and rows are those of
//! tokio-postgres: both drivers use PostgreSQL's binary format, so the bytes are passed on.

use bytes::BytesMut;
use onceward_core::{
    Claim, ClaimRequest, Fenced, Holder, Outcome, RecordId, Retention, SettleRequest, Settlement,
    StoreError,
};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{
    PgArgumentBuffer, PgArguments, PgConnection, PgRow, PgTypeInfo, PgValueFormat, PgValueRef,
};
use sqlx::{Arguments as _, AssertSqlSafe, Encode, Postgres, Row as _, Transaction, ValueRef as _};
use tokio::sync::Mutex;
use tokio_postgres::types::{self, FromSql, ToSql, Type};

use super::PostgresStore;
use super::error::Fault;
use super::row::DriverRow;
use super::session::SqlClient;
use super::sql::Statement;

impl PostgresStore {
    /// The same as [`claim_in`](Self::claim_in), in a transaction of sqlx.
    pub async fn claim_in_sqlx(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        request: &ClaimRequest,
    ) -> Result<Claim, StoreError> {
        Ok(self.executor.claim_in(&Borrowed::of(tx), request).await?)
    }

    /// The same as [`settle_in`](Self::settle_in), in a transaction of sqlx.
    pub async fn settle_in_sqlx(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        request: &SettleRequest,
    ) -> Result<Fenced<()>, StoreError> {
        Ok(self.executor.settle_in(&Borrowed::of(tx), request).await?)
    }

    /// The same as [`complete_in`](Self::complete_in), in a transaction of sqlx.
    pub async fn complete_in_sqlx(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        id: RecordId,
        holder: Holder,
        outcome: Outcome,
        retention: Retention,
    ) -> Result<Fenced<()>, StoreError> {
        let settlement = Settlement::Complete(outcome);
        self.settle_in_sqlx(tx, &SettleRequest { id, holder, settlement, retention }).await
    }
}

/// The connection of a transaction, for one statement at a time.
struct Borrowed<'a>(Mutex<&'a mut PgConnection>);

impl<'a> Borrowed<'a> {
    fn of(tx: &'a mut Transaction<'_, Postgres>) -> Self {
        Self(Mutex::new(&mut **tx))
    }
}

impl SqlClient for Borrowed<'_> {
    type Row = PgRow;

    async fn run(
        &self,
        statement: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<PgRow>, Fault> {
        let arguments = arguments(statement, values);
        // Not prepared, as the connection is the caller's and may go through PgBouncer.
        let query = sqlx::query_with(AssertSqlSafe(statement.text.clone()), arguments?);
        let mut connection = self.0.lock().await;
        query.persistent(false).fetch_all(&mut **connection).await.map_err(Fault::in_sqlx)
    }
}

fn arguments(statement: &Statement, values: &[&(dyn ToSql + Sync)]) -> Result<PgArguments, Fault> {
    let mut arguments = PgArguments::default();
    for (value, kind) in values.iter().zip(&statement.types) {
        let added = arguments.add(Value { value: *value, kind });
        added.map_err(|error| Fault::in_sqlx(sqlx::Error::Encode(error)))?;
    }
    Ok(arguments)
}

/// A parameter of tokio-postgres, passed to sqlx.
struct Value<'a> {
    value: &'a (dyn ToSql + Sync),
    kind: &'a Type,
}

impl Encode<'_, Postgres> for Value<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let mut bytes = BytesMut::new();
        Ok(match self.value.to_sql_checked(self.kind, &mut bytes)? {
            types::IsNull::Yes => IsNull::Yes,
            types::IsNull::No => {
                buffer.extend_from_slice(&bytes);
                IsNull::No
            }
        })
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(PgTypeInfo::with_oid(Oid(self.kind.oid())))
    }
}

impl sqlx::Type<Postgres> for Value<'_> {
    /// Each value has its own type; see `produces`.
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(Type::UNKNOWN.oid()))
    }
}

impl DriverRow for PgRow {
    fn named<'a, T: FromSql<'a>>(&'a self, name: &str) -> Option<T> {
        read(&self.try_get_raw(name).ok()?)
    }

    fn at<'a, T: FromSql<'a>>(&'a self, place: usize) -> Option<T> {
        read(&self.try_get_raw(place).ok()?)
    }
}

fn read<'a, T: FromSql<'a>>(value: &PgValueRef<'a>) -> Option<T> {
    let kind = Type::from_oid(value.type_info().oid()?.0)?;
    if !T::accepts(&kind) || value.format() != PgValueFormat::Binary {
        return None;
    }
    if value.is_null() {
        return T::from_sql_null(&kind).ok();
    }
    T::from_sql(&kind, value.as_bytes().ok()?).ok()
}
