//! Parameters of statements: one array for each column, in the order of the ids.

use std::time::SystemTime;

use onceward_core::{
    ClaimRequest, ErrorCode, Fence, Key, Outcome, Record, RecordVersion, RenewRequest, RequestPath,
    Scope, SettleRequest, Settlement, State, StateName, UnknownCause,
};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::executor::{lease_until, purge_after};
use super::row::{
    content_name, fence, fingerprint_bytes, millis, owner, sketch, state_name, system_time,
};
use super::settings::Settings;

type Values<'a> = Vec<&'a (dyn ToSql + Sync)>;

/// The parts of scopes.
#[derive(Default)]
struct ScopeColumns<'a> {
    tenant: Vec<&'a str>,
    caller: Vec<&'a str>,
    operation: Vec<&'a str>,
    api_version: Vec<Option<&'a str>>,
    parent: Vec<Option<&'a str>>,
    region: Vec<Option<&'a str>>,
}

impl<'a> ScopeColumns<'a> {
    fn push(&mut self, scope: &'a Scope) {
        self.tenant.push(scope.tenant());
        self.caller.push(scope.caller());
        self.operation.push(scope.operation());
        self.api_version.push(scope.api_version());
        self.parent.push(scope.parent());
        self.region.push(scope.region());
    }

    fn values(&self) -> [&(dyn ToSql + Sync); 6] {
        [&self.tenant, &self.caller, &self.operation, &self.api_version, &self.parent, &self.region]
    }
}

/// The parameters of `claim.sql`.
#[derive(Default)]
pub(super) struct ClaimColumns<'a> {
    id: Vec<&'a [u8]>,
    owner: Vec<Uuid>,
    operation: Vec<Uuid>,
    scope: ScopeColumns<'a>,
    key: Vec<Option<&'a str>>,
    fingerprint: Vec<Vec<u8>>,
    sketch: Vec<Option<&'a [u8]>>,
    path: Vec<Option<&'a str>>,
    lease: Vec<i64>,
}

impl<'a> ClaimColumns<'a> {
    pub(super) fn new(calls: &[&'a ClaimRequest]) -> Self {
        let mut columns = Self::default();
        for call in calls {
            columns.id.push(call.id.as_bytes());
            columns.owner.push(owner(&call.owner));
            columns.operation.push(call.operation.as_uuid());
            columns.scope.push(&call.scope);
            columns.key.push(call.key.as_ref().map(Key::expose));
            columns.fingerprint.push(fingerprint_bytes(&call.fingerprint).to_vec());
            columns.sketch.push(sketch(&call.sketch));
            columns.path.push(call.path.as_ref().map(RequestPath::as_str));
            columns.lease.push(millis(call.lease));
        }
        columns
    }

    pub(super) fn values<'b>(&'b self, ahead: &'b i64, unit: &'b i64) -> Values<'b> {
        let mut values: Values<'b> = vec![&self.id, &self.owner, &self.operation];
        values.extend(self.scope.values());
        values.extend([
            &self.key as &(dyn ToSql + Sync),
            &self.fingerprint,
            &self.sketch,
            &self.path,
            &self.lease,
            ahead,
            unit,
        ]);
        values
    }
}

/// The parameters of `renew.sql`.
#[derive(Default)]
pub(super) struct RenewColumns<'a> {
    id: Vec<&'a [u8]>,
    owner: Vec<Uuid>,
    fence: Vec<i64>,
    lease: Vec<i64>,
}

impl<'a> RenewColumns<'a> {
    pub(super) fn new(calls: impl Iterator<Item = &'a RenewRequest>) -> Self {
        let mut columns = Self::default();
        for call in calls {
            columns.id.push(call.id.as_bytes());
            columns.owner.push(owner(&call.holder.owner));
            columns.fence.push(fence(call.holder.fence));
            columns.lease.push(millis(call.lease));
        }
        columns
    }

    pub(super) fn values(&self) -> Values<'_> {
        vec![&self.id, &self.owner, &self.fence, &self.lease]
    }
}

/// The parts of outcomes; null for states without one.
#[derive(Default)]
struct OutcomeColumns<'a> {
    content: Vec<Option<&'static str>>,
    codec: Vec<Option<&'a str>>,
    body: Vec<Option<&'a [u8]>>,
    resource_type: Vec<Option<&'a str>>,
    resource_id: Vec<Option<&'a str>>,
    http_status: Vec<Option<i32>>,
    error_code: Vec<Option<&'a str>>,
}

impl<'a> OutcomeColumns<'a> {
    fn push(&mut self, outcome: Option<&'a Outcome>) {
        let resource = outcome.and_then(|it| it.resource.as_deref());
        self.content.push(outcome.map(|it| content_name(it.content)));
        self.codec.push(outcome.map(|it| it.tag.as_str()));
        self.body.push(outcome.map(|it| &it.bytes[..]));
        self.resource_type.push(resource.map(|it| it.kind.as_str()));
        self.resource_id.push(resource.map(|it| it.id.as_str()));
        self.http_status.push(outcome.and_then(|it| it.status).map(i32::from));
        let code = outcome.and_then(|it| it.error_code.as_ref());
        self.error_code.push(code.map(ErrorCode::as_str));
    }
}

/// The parameters of `settle.sql`.
#[derive(Default)]
pub(super) struct SettleColumns<'a> {
    id: Vec<&'a [u8]>,
    owner: Vec<Uuid>,
    fence: Vec<i64>,
    state: Vec<&'static str>,
    keep: Vec<i64>,
    tombstone: Vec<i64>,
    outcome: OutcomeColumns<'a>,
    slack: Vec<i64>,
    unknown_cause: Vec<Option<String>>,
}

impl<'a> SettleColumns<'a> {
    pub(super) fn new(calls: &[&'a SettleRequest], settings: &Settings) -> Self {
        let mut columns = Self::default();
        for call in calls {
            let (state, outcome, cause) = meaning(&call.settlement);
            columns.id.push(call.id.as_bytes());
            columns.owner.push(owner(&call.holder.owner));
            columns.fence.push(fence(call.holder.fence));
            columns.state.push(state_name(state));
            columns.keep.push(millis(call.retention.keep));
            // A release leaves no tombstone, as there is no outcome to look up later.
            let tombstone = millis(call.retention.tombstone);
            columns.tombstone.push(if state == StateName::Released { 0 } else { tombstone });
            columns.outcome.push(outcome);
            columns.slack.push(millis(settings.slack(call.retention.keep)));
            columns.unknown_cause.push(cause.map(UnknownCause::to_string));
        }
        columns
    }

    pub(super) fn values<'b>(&'b self, channel: &'b String) -> Values<'b> {
        let outcome = &self.outcome;
        vec![
            &self.id,
            &self.owner,
            &self.fence,
            &self.state,
            &self.keep,
            &self.tombstone,
            &outcome.content,
            &outcome.codec,
            &outcome.body,
            &outcome.resource_type,
            &outcome.resource_id,
            &self.slack,
            &self.unknown_cause,
            &outcome.http_status,
            &outcome.error_code,
            channel,
        ]
    }
}

fn meaning(settlement: &Settlement) -> (StateName, Option<&Outcome>, Option<&UnknownCause>) {
    match settlement {
        Settlement::Complete(outcome) => (StateName::Completed, Some(outcome), None),
        Settlement::Fail(outcome) => (StateName::Failed, Some(outcome), None),
        Settlement::Unknown(cause) => (StateName::Unknown, None, Some(cause)),
        Settlement::Release => (StateName::Released, None, None),
    }
}

/// The parameters of `purge_versions.sql`.
pub(super) struct VersionColumns<'a> {
    id: Vec<&'a [u8]>,
    fence: Vec<i64>,
    state: Vec<&'static str>,
    updated_at: Vec<SystemTime>,
}

impl<'a> VersionColumns<'a> {
    pub(super) fn new(versions: &'a [RecordVersion]) -> Self {
        Self {
            id: versions.iter().map(|it| it.id.as_bytes().as_slice()).collect(),
            fence: versions.iter().map(|it| fence(it.fence)).collect(),
            state: versions.iter().map(|it| state_name(it.state)).collect(),
            updated_at: versions.iter().map(|it| system_time(it.updated_at)).collect(),
        }
    }

    pub(super) fn values(&self) -> Values<'_> {
        vec![&self.id, &self.fence, &self.state, &self.updated_at]
    }
}

/// The parameters of `put.sql`.
#[derive(Default)]
pub(super) struct PutColumns<'a> {
    id: Vec<&'a [u8]>,
    was_fence: Vec<i64>,
    was_version: Vec<i64>,
    operation: Vec<Uuid>,
    owner: Vec<Uuid>,
    fence: Vec<i64>,
    purge_after: Vec<Option<SystemTime>>,
    created_at: Vec<SystemTime>,
    updated_at: Vec<SystemTime>,
    locked_until: Vec<Option<SystemTime>>,
    expires_at: Vec<Option<SystemTime>>,
    forget_at: Vec<Option<SystemTime>>,
    attempts: Vec<i32>,
    taken_over: Vec<bool>,
    state: Vec<&'static str>,
    fingerprint: Vec<Vec<u8>>,
    scope: ScopeColumns<'a>,
    key: Vec<Option<&'a str>>,
    sketch: Vec<Option<&'a [u8]>>,
    outcome: OutcomeColumns<'a>,
    unknown_cause: Vec<Option<String>>,
    path: Vec<Option<&'a str>>,
}

impl<'a> PutColumns<'a> {
    pub(super) fn new(puts: impl Iterator<Item = (&'a (Fence, i64), &'a Record)>) -> Self {
        let mut columns = Self::default();
        for ((was_fence, was_version), next) in puts {
            columns.was_fence.push(fence(*was_fence));
            columns.was_version.push(*was_version);
            columns.push(next);
        }
        columns
    }

    fn push(&mut self, record: &'a Record) {
        let retained = record.state.retained();
        self.id.push(record.id.as_bytes());
        self.operation.push(record.operation.as_uuid());
        self.owner.push(owner(&record.owner));
        self.fence.push(fence(record.fence));
        self.purge_after.push(purge_after(record).map(system_time));
        self.created_at.push(system_time(record.created_at));
        self.updated_at.push(system_time(record.updated_at));
        self.locked_until.push(lease_until(&record.state).map(system_time));
        self.expires_at.push(retained.map(|it| system_time(it.until)));
        self.forget_at.push(retained.map(|it| system_time(it.tombstone_until)));
        self.attempts.push(i32::try_from(record.attempts).unwrap_or(i32::MAX));
        self.taken_over.push(record.taken_over);
        self.state.push(state_name(record.state.name()));
        self.fingerprint.push(fingerprint_bytes(&record.fingerprint).to_vec());
        self.scope.push(&record.scope);
        self.key.push(record.key.as_ref().map(Key::expose));
        self.sketch.push(sketch(&record.sketch));
        self.outcome.push(record.state.outcome());
        self.unknown_cause.push(match &record.state {
            State::Unknown { cause } => Some(cause.to_string()),
            _ => None,
        });
        self.path.push(record.path.as_ref().map(RequestPath::as_str));
    }

    /// The parameters for a record that is not in the table.
    pub(super) fn first(record: &'a Record) -> Self {
        Self::new(std::iter::once((&(Fence(0), 0), record)))
    }

    pub(super) fn values<'b>(&'b self, channel: &'b String) -> Values<'b> {
        let mut values = self.fields();
        values.push(channel);
        values
    }

    /// All parameters but the channel, which only an update needs.
    pub(super) fn fields(&self) -> Values<'_> {
        let outcome = &self.outcome;
        let mut values: Values<'_> = vec![
            &self.id,
            &self.was_fence,
            &self.was_version,
            &self.operation,
            &self.owner,
            &self.fence,
            &self.purge_after,
            &self.created_at,
            &self.updated_at,
            &self.locked_until,
            &self.expires_at,
            &self.forget_at,
            &self.attempts,
            &self.taken_over,
            &self.state,
            &self.fingerprint,
        ];
        values.extend(self.scope.values());
        values.extend([
            &self.key as &(dyn ToSql + Sync),
            &self.sketch,
            &outcome.content,
            &outcome.codec,
            &outcome.resource_type,
            &outcome.resource_id,
            &outcome.body,
            &self.unknown_cause,
            &outcome.http_status,
            &outcome.error_code,
            &self.path,
        ]);
        values
    }
}
