//! The relay's statements.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use onceward_core::{OperationId, Timestamp};
use onceward_stores::postgres::Schema;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};
use uuid::Uuid;

use super::route::Route;
use crate::event::{Aggregate, EventBytes, EventId, Lane, StoredEvent};

/// A connection with the relay's statements.
pub(super) struct Database {
    client: Client,
    route: Route,
    lanes: Statement,
    renew: Statement,
    shares: Statement,
    take: Statement,
    release: Statement,
    leave: Statement,
    wait: Statement,
    new_positions: Statement,
    all_positions: Statement,
    read: Statement,
    read_aggregate: Statement,
    remove: Statement,
    stalled: Statement,
    stall: Statement,
    recovered: Statement,
    notice: Statement,
    bury: Statement,
}

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DatabaseError {
    #[error(transparent)]
    Postgres(#[from] Error),
    #[error("the row of the event at position {position} cannot be read: {reason}")]
    Unreadable { position: i64, reason: String },
}

/// A lane with the fence of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FencedLane {
    pub(super) lane: Lane,
    pub(super) fence: i64,
}

/// A delivered event that is still in the outbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delivered {
    pub(super) position: i64,
    pub(super) id: EventId,
    pub(super) lane: FencedLane,
}

/// How the lanes are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) relays: usize,
    /// Lanes without a live lease.
    pub(super) free: usize,
    /// Lanes of this relay.
    pub(super) own: usize,
}

/// Positions of events, and the snapshot that they are visible in.
#[derive(Debug)]
pub(super) struct Positions {
    pub(super) snapshot: String,
    pub(super) positions: Vec<i64>,
}

/// A stalled aggregate.
#[derive(Debug)]
pub(super) struct Stalled {
    pub(super) aggregate: Aggregate,
    pub(super) parked: bool,
    pub(super) attempts: u32,
    pub(super) wait: Duration,
    pub(super) noticed: bool,
}

/// A failed attempt at the next event of an aggregate.
#[derive(Debug)]
pub(super) struct Stall<'a> {
    pub(super) event: &'a StoredEvent,
    pub(super) fence: i64,
    pub(super) parked: bool,
    pub(super) attempts: u32,
    pub(super) wait: Duration,
    pub(super) reason: &'a str,
}

const COLUMNS: &str = include_str!("sql/columns.sql");

impl Database {
    /// Prepares the statements.
    pub(super) async fn new(client: Client, schema: &Schema, route: &Route) -> Result<Self, Error> {
        use Type as T;
        let prepare = async |text: &str, types: &[Type]| {
            let text = schema.statement(text).replace("{columns}", COLUMNS);
            client.prepare_typed(&text, types).await
        };
        let names = [T::TEXT_ARRAY, T::TEXT_ARRAY];
        let stall = [
            T::TEXT,
            T::TEXT,
            T::INT2,
            T::INT8,
            T::TEXT,
            T::UUID,
            T::INT4,
            T::INT8,
            T::TEXT,
            T::TEXT,
        ];
        Ok(Self {
            route: route.clone(),
            lanes: prepare(include_str!("sql/lanes.sql"), &[T::TEXT]).await?,
            renew: prepare(
                include_str!("sql/renew.sql"),
                &[T::UUID, T::TEXT, T::TEXT, T::INT2_ARRAY, T::INT8_ARRAY, T::INT8, T::TEXT],
            )
            .await?,
            shares: prepare(include_str!("sql/shares.sql"), &[T::UUID, T::TEXT]).await?,
            take: prepare(include_str!("sql/take.sql"), &[T::UUID, T::INT8, T::INT8, T::TEXT])
                .await?,
            release: prepare(
                include_str!("sql/release.sql"),
                &[T::UUID, T::INT2_ARRAY, T::INT8_ARRAY, T::TEXT],
            )
            .await?,
            leave: prepare(include_str!("sql/leave.sql"), &[T::UUID]).await?,
            wait: prepare(include_str!("sql/wait.sql"), &[T::UUID, T::INT8]).await?,
            new_positions: prepare(
                include_str!("sql/new_positions.sql"),
                &[T::INT2_ARRAY, T::TEXT, T::TEXT, T::INT8, T::INT8, T::TEXT_ARRAY, T::TEXT_ARRAY],
            )
            .await?,
            all_positions: prepare(
                include_str!("sql/all_positions.sql"),
                &[T::INT2_ARRAY, T::TEXT, T::INT8, T::INT8, T::TEXT_ARRAY, T::TEXT_ARRAY],
            )
            .await?,
            read: prepare(include_str!("sql/read.sql"), &[T::INT8_ARRAY]).await?,
            read_aggregate: prepare(
                include_str!("sql/read_aggregate.sql"),
                &[T::TEXT, T::TEXT, T::TEXT, T::INT8, T::INT8],
            )
            .await?,
            remove: prepare(
                include_str!("sql/remove.sql"),
                &[T::INT8_ARRAY, T::UUID_ARRAY, T::INT2_ARRAY, T::INT8_ARRAY, T::TEXT],
            )
            .await?,
            stalled: prepare(
                include_str!("sql/stalled.sql"),
                &[T::INT2_ARRAY, T::TEXT_ARRAY, T::TEXT_ARRAY],
            )
            .await?,
            stall: prepare(include_str!("sql/stall.sql"), &stall).await?,
            recovered: prepare(include_str!("sql/recovered.sql"), &names).await?,
            notice: prepare(include_str!("sql/notice.sql"), &names).await?,
            bury: prepare(
                include_str!("sql/bury.sql"),
                &[T::INT8, T::INT2, T::INT8, T::INT4, T::TEXT, T::TEXT],
            )
            .await?,
            client,
        })
    }

    /// Makes the lanes of the route.
    pub(super) async fn make_lanes(&self) -> Result<(), DatabaseError> {
        self.client.execute(&self.lanes, &[&self.route.name]).await?;
        Ok(())
    }

    /// True if the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Renews the relay and its lanes. Returns the lanes that it still has.
    pub(super) async fn renew(
        &self,
        relay: (Uuid, &str, &str),
        lanes: &[FencedLane],
        lease: Duration,
    ) -> Result<Vec<Lane>, DatabaseError> {
        let (numbers, fences) = columns(lanes);
        let (id, name, mode) = relay;
        let values: [&(dyn ToSql + Sync); 7] =
            [&id, &name, &mode, &numbers, &fences, &millis(lease), &self.route.name];
        let rows = self.client.query(&self.renew, &values).await?;
        rows.iter().map(|row| Ok(lane(row.try_get(0)?))).filter_map(Result::transpose).collect()
    }

    pub(super) async fn shares(&self, relay: Uuid) -> Result<Shares, DatabaseError> {
        let row = self.client.query_one(&self.shares, &[&relay, &self.route.name]).await?;
        let count =
            |at: usize| row.try_get(at).map(|count: i64| usize::try_from(count).unwrap_or(0));
        Ok(Shares { relays: count(0)?, free: count(1)?, own: count(2)? })
    }

    /// Takes up to `most` free lanes.
    pub(super) async fn take(
        &self,
        relay: Uuid,
        most: usize,
        lease: Duration,
    ) -> Result<Vec<FencedLane>, DatabaseError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let values: [&(dyn ToSql + Sync); 4] = [&relay, &most, &millis(lease), &self.route.name];
        let rows = self.client.query(&self.take, &values).await?;
        let mut taken = Vec::new();
        for row in rows {
            let fence = row.try_get(1)?;
            taken.extend(lane(row.try_get(0)?).map(|lane| FencedLane { lane, fence }));
        }
        Ok(taken)
    }

    pub(super) async fn release(
        &self,
        relay: Uuid,
        lanes: &[FencedLane],
    ) -> Result<(), DatabaseError> {
        let (numbers, fences) = columns(lanes);
        let values: [&(dyn ToSql + Sync); 4] = [&relay, &numbers, &fences, &self.route.name];
        self.client.execute(&self.release, &values).await?;
        Ok(())
    }

    /// Removes the relay from those that are running.
    pub(super) async fn leave(&self, relay: Uuid) -> Result<(), DatabaseError> {
        self.client.execute(&self.leave, &[&relay]).await?;
        Ok(())
    }

    /// Asks for a notification of new events for this long; zero for none.
    pub(super) async fn wait(&self, relay: Uuid, long: Duration) -> Result<(), DatabaseError> {
        self.client.execute(&self.wait, &[&relay, &millis(long)]).await?;
        Ok(())
    }

    /// Positions after `after` that are visible in `snapshot` (now, if `None`) and were not in
    /// `base` (all, if `None`).
    pub(super) async fn positions(
        &self,
        lanes: &[Lane],
        snapshot: Option<&str>,
        base: Option<&str>,
        after: i64,
        limit: usize,
    ) -> Result<Positions, DatabaseError> {
        let lanes: Vec<_> = lanes.iter().map(|lane| lane.column()).collect();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (only, but) = self.route.types.columns();
        let row = match base {
            Some(base) => {
                let values: [&(dyn ToSql + Sync); 7] =
                    [&lanes, &snapshot, &base, &after, &limit, &only, &but];
                self.client.query_one(&self.new_positions, &values).await?
            }
            None => {
                let values: [&(dyn ToSql + Sync); 6] =
                    [&lanes, &snapshot, &after, &limit, &only, &but];
                self.client.query_one(&self.all_positions, &values).await?
            }
        };
        Ok(Positions { snapshot: row.try_get(0)?, positions: row.try_get(1)? })
    }

    /// The events at these positions, without those that are gone.
    pub(super) async fn read(&self, positions: &[i64]) -> Result<Vec<StoredEvent>, DatabaseError> {
        let rows = self.client.query(&self.read, &[&positions]).await?;
        rows.iter().map(stored_event).collect()
    }

    pub(super) async fn read_aggregate(
        &self,
        aggregate: &Aggregate,
        snapshot: &str,
        after: i64,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, DatabaseError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let values: [&(dyn ToSql + Sync); 5] =
            [&aggregate.kind(), &aggregate.id(), &snapshot, &after, &limit];
        let rows = self.client.query(&self.read_aggregate, &values).await?;
        rows.iter().map(stored_event).collect()
    }

    /// Removes delivered events.
    pub(super) async fn remove(&self, delivered: &[Delivered]) -> Result<(), DatabaseError> {
        let positions: Vec<_> = delivered.iter().map(|it| it.position).collect();
        let ids: Vec<_> = delivered.iter().map(|it| it.id.as_uuid()).collect();
        let (lanes, fences) = columns(delivered.iter().map(|it| &it.lane));
        let values: [&(dyn ToSql + Sync); 5] =
            [&positions, &ids, &lanes, &fences, &self.route.name];
        self.client.execute(&self.remove, &values).await?;
        Ok(())
    }

    pub(super) async fn stalled(&self, lanes: &[Lane]) -> Result<Vec<Stalled>, DatabaseError> {
        let lanes: Vec<_> = lanes.iter().map(|lane| lane.column()).collect();
        let (only, but) = self.route.types.columns();
        let rows = self.client.query(&self.stalled, &[&lanes, &only, &but]).await?;
        let mut stalled = Vec::new();
        for row in rows {
            let (kind, id): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let state: &str = row.try_get(2)?;
            let wait: i64 = row.try_get(5)?;
            let Ok(aggregate) = Aggregate::new(kind, id) else { continue };
            stalled.push(Stalled {
                aggregate,
                parked: state == "parked",
                attempts: u32::try_from(row.try_get::<_, i32>(3)?).unwrap_or(0),
                noticed: row.try_get(4)?,
                wait: Duration::from_millis(wait.unsigned_abs()),
            });
        }
        Ok(stalled)
    }

    /// Writes down a failed attempt. Returns false if the lane is lost, or an operator has parked the
    /// aggregate.
    pub(super) async fn stall(&self, stall: &Stall<'_>) -> Result<bool, DatabaseError> {
        let event = stall.event;
        let (lane, wait) = (event.lane.column(), millis(stall.wait));
        let state = if stall.parked { "parked" } else { "retrying" };
        let attempts = i32::try_from(stall.attempts).unwrap_or(i32::MAX);
        let (kind, id) = (event.aggregate.kind(), event.aggregate.id());
        let values: [&(dyn ToSql + Sync); 10] = [
            &kind,
            &id,
            &lane,
            &stall.fence,
            &state,
            &event.id.as_uuid(),
            &attempts,
            &wait,
            &stall.reason,
            &self.route.name,
        ];
        Ok(!self.client.query(&self.stall, &values).await?.is_empty())
    }

    pub(super) async fn recovered(&self, aggregates: &[Aggregate]) -> Result<(), DatabaseError> {
        let (kinds, ids) = names(aggregates);
        self.client.execute(&self.recovered, &[&kinds, &ids]).await?;
        Ok(())
    }

    pub(super) async fn notice(&self, aggregates: &[Aggregate]) -> Result<(), DatabaseError> {
        let (kinds, ids) = names(aggregates);
        self.client.execute(&self.notice, &[&kinds, &ids]).await?;
        Ok(())
    }

    /// Makes a dead letter of an event. Returns false if the lane is lost or the event is gone.
    pub(super) async fn bury(
        &self,
        event: &StoredEvent,
        fence: i64,
        attempts: u32,
        reason: &str,
    ) -> Result<bool, DatabaseError> {
        let attempts = i32::try_from(attempts).unwrap_or(i32::MAX);
        let lane = event.lane.column();
        let values: [&(dyn ToSql + Sync); 6] =
            [&event.position, &lane, &fence, &attempts, &reason, &self.route.name];
        Ok(!self.client.query(&self.bury, &values).await?.is_empty())
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn lane(column: i16) -> Option<Lane> {
    Lane::new(column.cast_unsigned())
}

fn columns<'a>(lanes: impl IntoIterator<Item = &'a FencedLane>) -> (Vec<i16>, Vec<i64>) {
    lanes.into_iter().map(|it| (it.lane.column(), it.fence)).unzip()
}

fn names(aggregates: &[Aggregate]) -> (Vec<&str>, Vec<&str>) {
    aggregates.iter().map(|it| (it.kind(), it.id())).unzip()
}

/// Reads a row of `sql/columns.sql`.
fn stored_event(row: &Row) -> Result<StoredEvent, DatabaseError> {
    let position: i64 = row.try_get("position")?;
    let unreadable = |reason: String| DatabaseError::Unreadable { position, reason };
    let (kind, id): (String, String) = (row.try_get("aggregatetype")?, row.try_get("aggregateid")?);
    let aggregate = Aggregate::new(kind, id).map_err(|error| unreadable(error.to_string()))?;
    let payload = match (row.try_get("payload")?, row.try_get("payload_bytes")?) {
        (Some(text), _) => Bytes::from(<String as Into<Vec<u8>>>::into(text)),
        (None, bytes) => Bytes::from(<Option<Vec<u8>>>::unwrap_or_default(bytes)),
    };
    let headers: BTreeMap<String, String> = match row.try_get("headers")? {
        Some(text) => serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?,
        None => BTreeMap::new(),
    };
    let created_at: i64 = row.try_get("created_at_ms")?;
    let stored_lane: i16 = row.try_get("lane")?;
    Ok(StoredEvent {
        id: EventId::from(row.try_get::<_, Uuid>("id")?),
        event_type: row.try_get("type")?,
        payload: EventBytes(payload),
        content_type: row.try_get("content_type")?,
        headers,
        operation: row.try_get::<_, Option<Uuid>>("operation_id")?.map(OperationId::from),
        created_at: Timestamp::from_millis(created_at.unsigned_abs()),
        position,
        lane: lane(stored_lane).unwrap_or_else(|| aggregate.lane()),
        aggregate,
    })
}
