//! Responses of the admin API. They never contain a key, and the bytes of an outcome only on
//! request.

use onceward_core::{
    Content, DownstreamKey, ErrorCode, LoggedDecision, Outcome, Purged, Record, RecordId, Resource,
    State, StateName, Stats, UnknownCause,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::reply::{self, Reply};
use crate::api::{RecordState, Rfc3339};

/// A record without its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RecordView {
    /// The id of the operation, the same on every attempt.
    #[schema(pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    pub(crate) operation_id: String,
    /// The id of the record.
    pub(crate) record: String,
    /// The state.
    pub(crate) state: RecordState,
    /// Why the outcome is unknown, if it is: `lapsed`, `dropped`, `panicked`, `error`, `shutdown`,
    /// `status 502`, `cut`, `timeout`, `unstored`, `reported: …` or, of an earlier release,
    /// `unrecorded`. Later releases may have more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unknown_cause: Option<String>,
    /// The idempotency key that the operation sends to other systems, to look it up there. The
    /// keys of further steps are derived from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) downstream_key: Option<String>,
    /// The tenant.
    pub(crate) tenant: String,
    /// The caller.
    pub(crate) caller: String,
    /// The name of the operation, such as `payments.create`.
    pub(crate) operation: String,
    /// The path that the request was sent to, where the name of the operation does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// The API version, if it is part of the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api_version: Option<String>,
    /// The parent resource, if it is part of the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    /// The region, if it is part of the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<String>,
    /// Number of grants.
    pub(crate) attempts: u32,
    /// The fence of the last grant.
    pub(crate) fence: u64,
    /// True if the lease of an earlier owner lapsed.
    pub(crate) taken_over: bool,
    /// The beginning of the fingerprint.
    pub(crate) fingerprint: String,
    /// Time of the first grant, by the store's clock.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) created_at: Rfc3339,
    /// Time of the last change, by the store's clock.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) updated_at: Rfc3339,
    /// End of the lease, if the record is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(crate) lease_until: Option<Rfc3339>,
    /// End of the retention of the outcome: until then retries get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(crate) kept_until: Option<Rfc3339>,
    /// End of the tombstone: after it the key is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(crate) known_until: Option<Rfc3339>,
    /// The outcome, if one is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<OutcomeView>,
}

impl RecordView {
    /// The view of a record. `with_bytes` includes the bytes of its outcome.
    pub(super) fn of(record: &Record, state: RecordState, with_bytes: bool) -> Self {
        let (scope, text) = (&record.scope, |part: Option<&str>| part.map(str::to_owned));
        let retained = record.state.retained();
        Self {
            operation_id: record.operation.to_string(),
            record: record.id.to_string(),
            state,
            unknown_cause: unknown_cause(record, state).map(|cause| cause.to_string()),
            downstream_key: Some(DownstreamKey::of(&record.operation).to_string()),
            tenant: scope.tenant().to_owned(),
            caller: scope.caller().to_owned(),
            operation: scope.operation().to_owned(),
            path: record.path.as_ref().map(ToString::to_string),
            api_version: text(scope.api_version()),
            parent: text(scope.parent()),
            region: text(scope.region()),
            attempts: record.attempts,
            fence: record.fence.0,
            taken_over: record.taken_over,
            fingerprint: fingerprint(record),
            created_at: record.created_at.into(),
            updated_at: record.updated_at.into(),
            lease_until: match record.state {
                State::Running { lease_until } => Some(lease_until.into()),
                _ => None,
            },
            kept_until: retained.map(|it| it.until.into()),
            known_until: retained.map(|it| it.tombstone_until.into()),
            outcome: record.state.outcome().map(|it| OutcomeView::of(it, with_bytes)),
        }
    }
}

/// Why a record in this state is unknown. A running one whose lease has lapsed has no cause yet.
fn unknown_cause(record: &Record, state: RecordState) -> Option<UnknownCause> {
    match &record.state {
        State::Unknown { cause } => Some(cause.clone()),
        _ if state == RecordState::Unknown => Some(UnknownCause::Lapsed),
        _ => None,
    }
}

/// Enough to compare two fingerprints by eye, and too little to guess a payload from.
fn fingerprint(record: &Record) -> String {
    let digest = &record.fingerprint.digest()[..4];
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("v{}:{digits}", record.fingerprint.rules())
}

/// The outcome of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct OutcomeView {
    /// The stored part of the reply.
    pub(crate) content: OutcomeContent,
    /// The codec of the stored bytes.
    pub(crate) codec: String,
    /// Number of stored bytes.
    pub(crate) bytes: u64,
    /// The status of an HTTP reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// The error code of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error_code: Option<String>,
    /// The content type of an HTTP reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content_type: Option<String>,
    /// The resource that the operation created or changed, as `kind/id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource: Option<String>,
    /// The HTTP reply, if it was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reply: Option<Reply>,
    /// The stored bytes in base64, if they were requested and are no HTTP reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) raw_base64: Option<String>,
}

/// The stored part of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutcomeContent {
    /// The whole reply.
    Whole,
    /// A reference that the reply can be rebuilt from.
    Reference,
    /// Only a summary, such as the status.
    Omitted,
    /// Nothing: an operator has invalidated it.
    Invalidated,
}

impl OutcomeView {
    fn of(outcome: &Outcome, with_bytes: bool) -> Self {
        let reply = Reply::of(outcome);
        let header = |name: &str| {
            let mut headers = reply.iter().flat_map(|reply| &reply.headers);
            headers.find(|it| it.name == name).map(|it| it.value.clone())
        };
        let resource = |it: &Resource| format!("{}/{}", it.kind, it.id);
        Self {
            content: match outcome.content {
                _ if outcome.is_invalidated() => OutcomeContent::Invalidated,
                Content::Whole => OutcomeContent::Whole,
                Content::Reference => OutcomeContent::Reference,
                Content::Omitted => OutcomeContent::Omitted,
            },
            codec: outcome.tag.as_str().to_owned(),
            bytes: outcome.bytes.len() as u64,
            // Records of earlier releases have the status in the reply only.
            status: outcome.status.or_else(|| reply.as_ref().map(|reply| reply.status)),
            error_code: outcome.error_code.as_ref().map(ErrorCode::as_str).map(str::to_owned),
            content_type: header("content-type"),
            resource: outcome.resource.as_deref().map(resource),
            raw_base64: (with_bytes && reply.is_none()).then(|| reply::base64(&outcome.bytes)),
            reply: reply.filter(|_| with_bytes),
        }
    }
}

/// A record, and the decisions about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RecordDetails {
    /// The record.
    pub(crate) record: RecordView,
    /// The decisions about its operation, in order.
    pub(crate) decisions: Vec<DecisionView>,
}

/// A page of records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RecordPage {
    /// The records, in the order of their ids.
    pub(crate) records: Vec<RecordView>,
    /// Ids of records that cannot be read.
    pub(crate) undecodable: Vec<String>,
    /// Start of the next page, absent on the last one. A page may be short or empty and still
    /// not be the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// A decision about an operation, or about the whole store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DecisionView {
    /// The id of the operation.
    #[schema(pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    pub(crate) operation_id: String,
    /// The fence of the grant that it is about.
    pub(crate) fence: u64,
    /// The decision.
    pub(crate) decided: Decided,
    /// The operator or resolver that decided.
    pub(crate) by: String,
    /// The evidence.
    pub(crate) evidence: String,
    /// Time when it was written, by the store's clock.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) at: Rfc3339,
}

/// A kind of decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decided {
    /// The operation had happened; its outcome was stored.
    Happened,
    /// The operation had not happened and cannot happen any more; its key was freed.
    DidNotHappen,
    /// The operation was settled before the decision could be applied.
    Superseded,
    /// The store had lost records, and grants claims again. The operation id is that of the
    /// decision itself.
    LossAccepted,
    /// A correction of data had removed the effect; the stored response is not replayed any more.
    Invalidated,
    /// Copies of records in the cache do not count any more. If it is not about one operation, the
    /// operation id is that of the decision itself.
    CacheInvalidated,
}

impl From<LoggedDecision> for DecisionView {
    fn from(LoggedDecision { decision, at }: LoggedDecision) -> Self {
        Self {
            operation_id: decision.operation.to_string(),
            fence: decision.fence.0,
            decided: match decision.decided {
                onceward_core::DecisionKind::Happened => Decided::Happened,
                onceward_core::DecisionKind::DidNotHappen => Decided::DidNotHappen,
                onceward_core::DecisionKind::Superseded => Decided::Superseded,
                onceward_core::DecisionKind::LossAccepted => Decided::LossAccepted,
                onceward_core::DecisionKind::Invalidated => Decided::Invalidated,
                onceward_core::DecisionKind::CacheInvalidated => Decided::CacheInvalidated,
            },
            by: decision.by,
            evidence: decision.evidence,
            at: at.into(),
        }
    }
}

/// A page of decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DecisionPage {
    /// The decisions: those about one operation in order, all of them in no order.
    pub(crate) decisions: Vec<DecisionView>,
    /// Start of the next page, absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// Result of a purge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PurgeDone {
    /// Number of records removed.
    pub(crate) removed: u64,
    /// Number of records whose outcome was dropped; their keys stay known as expired.
    pub(crate) tombstoned: u64,
    /// True if more records have expired.
    pub(crate) more: bool,
}

impl From<Purged> for PurgeDone {
    fn from(purged: Purged) -> Self {
        let Purged { removed, tombstoned, more } = purged;
        Self { removed: removed as u64, tombstoned: tombstoned as u64, more }
    }
}

/// Result of accepting a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AcceptLossDone {
    /// True if claims were refused before, because records were lost, and are granted again now.
    pub(crate) reopened: bool,
}

/// Result of invalidating copies in the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct CacheInvalidationDone {
    /// Number of records whose copies left the cache at once. Other copies from before do not count
    /// either, and leave it at the end of their time.
    pub(crate) records: u64,
    /// Number of operation ids that no record has any more. Copies of their records do not count.
    pub(crate) missing: u64,
}

/// Totals of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct StoreTotals {
    /// Number of records in every state, internal ones included.
    pub(crate) records: u64,
    /// Approximate size in bytes.
    pub(crate) bytes: u64,
    /// Records by state. A lapsed lease counts as unknown. A record past its retention counts by its
    /// last state until it is purged.
    pub(crate) by_state: Vec<Total>,
    /// Last change of the oldest record whose outcome is unknown, by the store's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(crate) oldest_unknown: Option<Rfc3339>,
}

/// Number of records in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Total {
    /// The state.
    pub(crate) state: RecordState,
    /// The number.
    pub(crate) records: u64,
}

impl From<Stats> for StoreTotals {
    fn from(stats: Stats) -> Self {
        let counted = StateName::ALL.into_iter().zip(stats.by_state);
        let total = |(state, records): (StateName, u64)| Total { state: state.into(), records };
        let by_state = counted.map(total).collect();
        let oldest_unknown = stats.oldest_unknown.map(Into::into);
        Self { records: stats.records, bytes: stats.bytes, by_state, oldest_unknown }
    }
}

/// Result of verifying a page of records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct VerifiedPage {
    /// Number of records that were read.
    pub(crate) read: u64,
    /// Ids of records that cannot be read.
    pub(crate) undecodable: Vec<String>,
    /// Start of the next page, absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// Ids as text.
pub(super) fn ids(ids: &[RecordId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}
