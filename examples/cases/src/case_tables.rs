//! The cases in PostgreSQL, in the database that also has Onceward's records.

use std::sync::Arc;

use async_trait::async_trait;
use onceward::http::PgTransaction;
use onceward::stores::postgres::tokio_postgres::{Client, Row, Transaction};
use onceward::stores::postgres::{OpenError, Server, Settings, Transactions};
use onceward::{
    BeginError, BoxError, BulkError, Done, Effect, Failure, Intent, OpenBulk, OperationId,
    RunError, StoreError, StoreErrorKind,
};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::bulk_item::{Decision, ItemRow, ItemState, Line, NewBulk, Owner, StoredBulk, decide};
use crate::case::{Case, Refusal, Status, Step};
use crate::case_store::CaseStore;
use crate::checkpoint::{Checkpoint, CheckpointHook};

const INSERT_CASE: &str =
    "INSERT INTO cases (title, status, version) VALUES ($1, 'draft', 1) RETURNING id";
const FIND_CASE: &str = "SELECT id, title, status, version FROM cases WHERE id = $1";
const LOCK_CASE: &str = "SELECT id, title, status, version FROM cases WHERE id = $1 FOR UPDATE";
const UPDATE_CASE: &str = "UPDATE cases SET status = $2, version = $3 WHERE id = $1";

/// One statement, so that a bulk has all its items or none.
const INSERT_BULK: &str = "
WITH bulk AS (
    INSERT INTO bulk_operation (operation_id, tenant_id, caller_id) VALUES ($1, $3, $4)
    ON CONFLICT DO NOTHING
), request AS (
    INSERT INTO bulk_request (request_id, operation_id) VALUES ($2, $1) ON CONFLICT DO NOTHING
)
INSERT INTO bulk_item_result (operation_id, client_item_id, target_id, position)
SELECT $1, * FROM unnest($5::text[], $6::bigint[]) WITH ORDINALITY
ON CONFLICT DO NOTHING";

const LOCK_ITEM: &str = "
SELECT client_item_id, target_id, state, result_resource_id, failure_code, retryable
FROM bulk_item_result WHERE operation_id = $1 AND client_item_id = $2 FOR UPDATE";

const UPDATE_ITEM: &str = "
UPDATE bulk_item_result
SET state = $3, result_resource_id = $4, failure_code = $5, retryable = $6, updated_at = now()
WHERE operation_id = $1 AND client_item_id = $2";

const FIND_BULK: &str = "
SELECT operation_id, tenant_id, caller_id FROM bulk_operation
WHERE operation_id = coalesce(
    (SELECT operation_id FROM bulk_request WHERE request_id = $1), $1)";

/// An item whose row cannot be locked is running: its transaction holds it. So no other mark is
/// needed, which a crash would leave behind.
const LIST_ITEMS: &str = "
WITH idle AS (
    SELECT client_item_id FROM bulk_item_result
    WHERE operation_id = $1 AND state = 'pending' FOR KEY SHARE SKIP LOCKED
)
SELECT client_item_id, target_id, result_resource_id, failure_code, retryable,
    CASE WHEN state = 'pending' AND client_item_id NOT IN (SELECT client_item_id FROM idle)
        THEN 'running' ELSE state END AS state
FROM bulk_item_result WHERE operation_id = $1 ORDER BY position";

/// The tables. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CaseTables {
    transactions: Transactions,
    connection: Arc<Connection>,
    on_checkpoint: CheckpointHook,
}

/// The connection for statements outside of transactions. Replaced when it is lost.
struct Connection {
    server: Server,
    settings: Settings,
    client: Mutex<Arc<Client>>,
}

impl CaseTables {
    /// Connects, and creates the tables.
    pub(crate) async fn open(
        (url, settings): (&str, Settings),
        transactions: Transactions,
        on_checkpoint: CheckpointHook,
    ) -> Result<Self, BoxError> {
        let server = Server::new(url, &settings)?;
        let client = server.connect(&settings).await?;
        client.batch_execute(include_str!("tables.sql")).await?;
        let client = Mutex::new(Arc::new(client));
        let connection = Arc::new(Connection { server, settings, client });
        Ok(Self { transactions, connection, on_checkpoint })
    }

    /// Does an item in one commit: its claim, the change of its case, and its result.
    async fn approve_once(
        &self,
        bulk: OperationId,
        line: &Line,
        intent: &Intent,
    ) -> Result<Done<()>, RunError<String>> {
        let work = async |tx: &mut Transaction<'_>| {
            let approved = self.approve(tx, bulk, line).await;
            approved.map_err(|error| Failure::Release(error.to_string()))
        };
        match self.transactions.transact(intent, work).await {
            // The database failed and the item was rolled back. That is no result of the item: the
            // bulk stops, and its next run does the item.
            Err(RunError::Released { error }) => Err(unavailable(error)),
            ended => ended,
        }
    }

    async fn approve(
        &self,
        tx: &Transaction<'_>,
        bulk: OperationId,
        line: &Line,
    ) -> Result<(), BoxError> {
        let item = line.client_item_id.as_str();
        let row = tx.query_one(LOCK_ITEM, &[&bulk.as_uuid(), &item]).await?;
        let mut row = item_row(&row)?;
        self.on_checkpoint.reached(Checkpoint::ItemClaimed, item).await;
        // The row outlives the record of the item, whose retention may be over.
        if row.state.is_final() {
            return Ok(());
        }
        let case = tx.query_opt(LOCK_CASE, &[&line.case_id]).await?;
        let decision = decide(line, case.as_ref().map(case_of).transpose()?);
        if let Decision::Approve(case) = &decision {
            tx.execute(UPDATE_CASE, &[&case.id, &case.status.as_str(), &case.version]).await?;
        }
        row.decide(&decision);
        let (resource, code) = (&row.result_resource_id, &row.failure_code);
        let state = state_name(row.state);
        let operation = bulk.as_uuid();
        tx.execute(UPDATE_ITEM, &[&operation, &item, &state, resource, code, &row.retryable])
            .await?;
        self.on_checkpoint.reached(Checkpoint::ItemChanged, item).await;
        Ok(())
    }
}

impl Connection {
    async fn client(&self) -> Result<Arc<Client>, OpenError> {
        let mut client = self.client.lock().await;
        if client.is_closed() {
            *client = Arc::new(self.server.connect(&self.settings).await?);
        }
        Ok(client.clone())
    }
}

#[async_trait]
impl CaseStore for CaseTables {
    async fn create(&self, tx: Option<&PgTransaction>, title: String) -> Result<Case, BoxError> {
        let client = tx.ok_or("the route has no transaction")?.client().await?;
        let id = client.query_one(INSERT_CASE, &[&title]).await?.try_get(0)?;
        Ok(Case::draft(id, title))
    }

    async fn find(&self, id: i64) -> Result<Option<Case>, BoxError> {
        let row = self.connection.client().await?.query_opt(FIND_CASE, &[&id]).await?;
        row.as_ref().map(case_of).transpose()
    }

    async fn take(
        &self,
        tx: Option<&PgTransaction>,
        id: i64,
        step: Step,
        expected_version: i64,
    ) -> Result<Option<Result<Case, Refusal>>, BoxError> {
        let client = tx.ok_or("the route has no transaction")?.client().await?;
        let Some(row) = client.query_opt(LOCK_CASE, &[&id]).await? else { return Ok(None) };
        let mut case = case_of(&row)?;
        if let Err(refusal) = case.take(step, Some(expected_version)) {
            return Ok(Some(Err(refusal)));
        }
        client.execute(UPDATE_CASE, &[&id, &case.status.as_str(), &case.version]).await?;
        Ok(Some(Ok(case)))
    }

    async fn begin_bulk(&self, bulk: NewBulk) -> Result<(), BoxError> {
        let NewBulk { operation, request, owner, lines } = bulk;
        let ids: Vec<_> = lines.iter().map(|line| line.client_item_id.as_str()).collect();
        let cases: Vec<_> = lines.iter().map(|line| line.case_id).collect();
        let client = self.connection.client().await?;
        let (operation, request) = (operation.as_uuid(), request.as_uuid());
        let (tenant, caller) = (owner.tenant, owner.caller);
        client
            .execute(INSERT_BULK, &[&operation, &request, &tenant, &caller, &ids, &cases])
            .await?;
        Ok(())
    }

    async fn run_bulk(&self, bulk: OpenBulk<Line>) -> Result<(), BulkError> {
        let (tables, operation) = (self.clone(), bulk.operation());
        let each = move |line: Line, intent: Intent| {
            let tables = tables.clone();
            async move { tables.approve_once(operation, &line, &intent).await }
        };
        bulk.run_each(each).await.map(drop)
    }

    async fn bulk(&self, id: OperationId) -> Result<Option<StoredBulk>, BoxError> {
        let client = self.connection.client().await?;
        let Some(row) = client.query_opt(FIND_BULK, &[&id.as_uuid()]).await? else {
            return Ok(None);
        };
        let operation: Uuid = row.try_get("operation_id")?;
        let owner = Owner { tenant: row.try_get("tenant_id")?, caller: row.try_get("caller_id")? };
        let rows = client.query(LIST_ITEMS, &[&operation]).await?;
        let items = rows.iter().map(item_row).collect::<Result<_, _>>()?;
        Ok(Some(StoredBulk { operation: operation.into(), owner, items }))
    }
}

/// Names of the states in the table, and `running`, which only queries have.
const STATES: [(ItemState, &str); 4] = [
    (ItemState::Pending, "pending"),
    (ItemState::Running, "running"),
    (ItemState::Succeeded, "succeeded"),
    (ItemState::Failed, "failed"),
];

fn state_name(state: ItemState) -> Option<&'static str> {
    STATES.iter().find(|(known, _)| *known == state).map(|(_, name)| *name)
}

fn item_row(row: &Row) -> Result<ItemRow, BoxError> {
    let name: &str = row.try_get("state")?;
    let state = STATES.iter().find(|(_, known)| *known == name);
    Ok(ItemRow {
        client_item_id: row.try_get("client_item_id")?,
        case_id: row.try_get("target_id")?,
        state: state.ok_or_else(|| format!("bulk_item_result.state is {name:?}"))?.0,
        result_resource_id: row.try_get("result_resource_id")?,
        failure_code: row.try_get("failure_code")?,
        retryable: row.try_get("retryable")?,
    })
}

fn case_of(row: &Row) -> Result<Case, BoxError> {
    let name: &str = row.try_get("status")?;
    let status = Status::named(name).ok_or_else(|| format!("cases.status is {name:?}"))?;
    let (id, title, version) = (row.try_get("id")?, row.try_get("title")?, row.try_get("version")?);
    Ok(Case { id, title, status, version })
}

/// The item was rolled back, and could not be done.
fn unavailable(error: String) -> RunError<String> {
    let rolled_back = StoreError::new("cases", StoreErrorKind::Unavailable, Effect::NotApplied);
    RunError::Begin(BeginError::Unavailable(rolled_back.caused_by(error)))
}
