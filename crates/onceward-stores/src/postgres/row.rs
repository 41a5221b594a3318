//! Records from rows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use onceward_core::{
    Content, ErrorCode, Fence, Fingerprint, Key, OperationId, Outcome, OwnerToken, Record,
    RecordId, RequestPath, Resource, Retained, Scope, Sketch, State, StateName, Tag, Timestamp,
    UnknownCause,
};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

/// A row of any driver.
pub(super) trait DriverRow {
    /// Returns the value of a column; `None` if there is none with that name and type.
    fn named<'a, T: FromSql<'a>>(&'a self, name: &str) -> Option<T>;

    /// The same by position.
    fn at<'a, T: FromSql<'a>>(&'a self, place: usize) -> Option<T>;
}

impl DriverRow for Row {
    fn named<'a, T: FromSql<'a>>(&'a self, name: &str) -> Option<T> {
        self.try_get(name).ok()
    }

    fn at<'a, T: FromSql<'a>>(&'a self, place: usize) -> Option<T> {
        self.try_get(place).ok()
    }
}

/// A row, and the server's time when it was read.
#[derive(Debug)]
pub(super) struct RowSnapshot {
    pub(super) id: RecordId,
    /// True if the statement inserted the row.
    pub(super) granted: bool,
    pub(super) now: Timestamp,
    /// The record, or why it cannot be read.
    pub(super) stored: Result<VersionedRecord, Undecodable>,
}

/// A record and its version.
#[derive(Debug, Clone)]
pub(super) struct VersionedRecord {
    pub(super) record: Record,
    pub(super) version: i64,
}

/// A row that cannot be read.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the column `{0}` of a record cannot be read by this release")]
pub(super) struct Undecodable(&'static str);

impl RowSnapshot {
    pub(super) fn read(row: &impl DriverRow) -> Result<Self, Undecodable> {
        Ok(Self {
            id: id(get(row, "id")?)?,
            granted: get(row, "granted")?,
            now: timestamp(get(row, "now")?),
            stored: VersionedRecord::read(row),
        })
    }
}

/// The id in the first column.
pub(super) fn first_id(row: &impl DriverRow) -> Result<RecordId, Undecodable> {
    id(row.at(0).ok_or(Undecodable("id"))?)
}

/// The time in the second column.
pub(super) fn second_time(row: &impl DriverRow) -> Result<Timestamp, Undecodable> {
    row.at(1).map(timestamp).ok_or(Undecodable("locked_until"))
}

/// The time in the second column, which may be null.
pub(super) fn second_time_if_any(row: &impl DriverRow) -> Result<Option<Timestamp>, Undecodable> {
    let time: Option<SystemTime> = row.at(1).ok_or(Undecodable("expires_at"))?;
    Ok(time.map(timestamp))
}

/// Reads an id.
fn id(bytes: &[u8]) -> Result<RecordId, Undecodable> {
    bytes.try_into().map(RecordId::from_bytes).map_err(|_| Undecodable("id"))
}

impl VersionedRecord {
    fn read(row: &impl DriverRow) -> Result<Self, Undecodable> {
        let record = Record {
            id: id(get(row, "id")?)?,
            operation: OperationId::from(get::<Uuid>(row, "operation_id")?),
            scope: scope(row)?,
            key: key(get(row, "idempotency_key")?)?,
            fingerprint: fingerprint(get(row, "request_fingerprint")?)?,
            sketch: Sketch::from_stored(get::<Option<_>>(row, "request_sketch")?.unwrap_or(&[])),
            path: get::<Option<&str>>(row, "request_path")?.map(RequestPath::new),
            state: state(row)?,
            owner: OwnerToken::from_bytes(get::<Uuid>(row, "owner_token")?.into_bytes()),
            fence: Fence(number(row, "fence")?),
            attempts: u32::try_from(get::<i32>(row, "attempts")?)
                .map_err(|_| Undecodable("attempts"))?,
            taken_over: get(row, "taken_over")?,
            created_at: timestamp(get(row, "created_at")?),
            updated_at: timestamp(get(row, "updated_at")?),
        };
        Ok(Self { record, version: get(row, "version")? })
    }
}

pub(super) fn get<'a, T: FromSql<'a>>(
    row: &'a impl DriverRow,
    column: &'static str,
) -> Result<T, Undecodable> {
    row.named(column).ok_or(Undecodable(column))
}

fn number(row: &impl DriverRow, column: &'static str) -> Result<u64, Undecodable> {
    u64::try_from(get::<i64>(row, column)?).map_err(|_| Undecodable(column))
}

fn scope(row: &impl DriverRow) -> Result<Scope, Undecodable> {
    let part = |column| get::<&str>(row, column);
    let wrong = |_| Undecodable("tenant_id");
    let mut scope =
        Scope::restored(part("tenant_id")?, part("caller_id")?, part("operation_name")?)
            .map_err(wrong)?;
    if let Some(version) = get::<Option<&str>>(row, "api_version")? {
        scope = scope.with_api_version(version).map_err(wrong)?;
    }
    if let Some(parent) = get::<Option<&str>>(row, "parent_resource")? {
        scope = scope.with_parent(parent).map_err(wrong)?;
    }
    if let Some(region) = get::<Option<&str>>(row, "region")? {
        scope = scope.with_restored_region(region).map_err(wrong)?;
    }
    Ok(scope)
}

fn key(text: Option<&str>) -> Result<Option<Key>, Undecodable> {
    text.map(Key::new).transpose().map_err(|_| Undecodable("idempotency_key"))
}

fn fingerprint(bytes: &[u8]) -> Result<Fingerprint, Undecodable> {
    let wrong = Undecodable("request_fingerprint");
    let (rules, digest) = bytes.split_first().ok_or(wrong)?;
    Ok(Fingerprint::from_digest(*rules, digest.try_into().map_err(|_| wrong)?))
}

fn state(row: &impl DriverRow) -> Result<State, Undecodable> {
    let name = get::<&str>(row, "state")?;
    let name = StateName::ALL.into_iter().find(|it| state_name(*it) == name);
    Ok(match name.ok_or(Undecodable("state"))? {
        StateName::Running => State::Running { lease_until: timestamp(get(row, "locked_until")?) },
        StateName::Completed => {
            State::Completed { outcome: outcome(row)?, retained: retained(row)? }
        }
        StateName::Failed => State::Failed { outcome: outcome(row)?, retained: retained(row)? },
        StateName::Released => State::Released { retained: retained(row)? },
        StateName::Unknown => State::Unknown { cause: unknown_cause(row)? },
        StateName::Expired => State::Expired { retained: retained(row)? },
    })
}

/// An earlier release writes none.
fn unknown_cause(row: &impl DriverRow) -> Result<UnknownCause, Undecodable> {
    let cause = get::<Option<&str>>(row, "unknown_cause")?;
    Ok(cause.map_or(UnknownCause::Unrecorded, UnknownCause::parse))
}

fn retained(row: &impl DriverRow) -> Result<Retained, Undecodable> {
    let (until, forget) = (get(row, "expires_at")?, get(row, "forget_at")?);
    Ok(Retained { until: timestamp(until), tombstone_until: timestamp(forget) })
}

fn outcome(row: &impl DriverRow) -> Result<Outcome, Undecodable> {
    let content = get::<&str>(row, "outcome_content")?;
    let contents = [Content::Whole, Content::Reference, Content::Omitted];
    let content = contents.into_iter().find(|it| content_name(*it) == content);
    let kind: Option<String> = get(row, "resource_type")?;
    let resource: Option<String> = get(row, "resource_id")?;
    let status = get::<Option<i32>>(row, "http_status")?.map(u16::try_from).transpose();
    let code = get::<Option<&str>>(row, "error_code")?;
    let code = code.map(|code| ErrorCode::new(code).ok_or(Undecodable("error_code")));
    Ok(Outcome {
        content: content.ok_or(Undecodable("outcome_content"))?,
        tag: Tag::from_stored(get(row, "outcome_codec")?),
        bytes: Bytes::copy_from_slice(get(row, "response_body")?),
        resource: kind.zip(resource).map(|(kind, id)| Box::new(Resource { kind, id })),
        status: status.map_err(|_| Undecodable("http_status"))?,
        error_code: code.transpose()?,
    })
}

/// The state as the column `state` has it.
pub(super) const fn state_name(state: StateName) -> &'static str {
    match state {
        StateName::Running => "running",
        StateName::Completed => "completed",
        StateName::Failed => "failed",
        StateName::Released => "released",
        StateName::Unknown => "unknown",
        StateName::Expired => "expired",
    }
}

pub(super) const fn content_name(content: Content) -> &'static str {
    match content {
        Content::Whole => "whole",
        Content::Reference => "reference",
        Content::Omitted => "omitted",
    }
}

/// The fingerprint as the column has it.
pub(super) fn fingerprint_bytes(fingerprint: &Fingerprint) -> [u8; 33] {
    let mut bytes = [fingerprint.rules(); 33];
    bytes[1..].copy_from_slice(fingerprint.digest());
    bytes
}

/// The owner token as the column has it: a UUID.
pub(super) fn owner(owner: &OwnerToken) -> Uuid {
    Uuid::from_bytes(*owner.expose())
}

/// The fence as the column has it. Fences are times in milliseconds, far below the limit.
pub(super) fn fence(fence: Fence) -> i64 {
    i64::try_from(fence.0).unwrap_or(i64::MAX)
}

/// A hundred years: more than any policy allows, and not too long for PostgreSQL to add.
const LONGEST_MS: i64 = 36_525 * 86_400_000;

/// The duration in milliseconds, for SQL to add.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(LONGEST_MS).min(LONGEST_MS)
}

pub(super) fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The time as a parameter. Later times than the year 9999 become its end.
pub(super) fn system_time(at: Timestamp) -> SystemTime {
    const LATEST_MS: u64 = 253_402_300_799_000;
    UNIX_EPOCH + Duration::from_millis(at.as_millis().min(LATEST_MS))
}

/// The sketch as the column has it: null if it is empty.
pub(super) fn sketch(sketch: &Sketch) -> Option<&[u8]> {
    Some(sketch.as_bytes()).filter(|bytes| !bytes.is_empty())
}
