//! What the desk shows. Never a key, and the bytes of an outcome only where they are asked
//! for.

use onceward_core::{
    Content, LoggedDecision, Outcome, Purged, Record, RecordId, Resource, State, StateName, Stats,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::reply::{self, Reply};
use crate::api::{RecordState, Rfc3339};

/// A record without its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RecordView {
    /// The id of the operation: the same on every attempt.
    #[schema(pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    pub(crate) operation_id: String,
    /// The record's id.
    pub(crate) record: String,
    /// Where it stands.
    pub(crate) state: RecordState,
    /// Whose it is.
    pub(crate) tenant: String,
    /// Who sent it.
    pub(crate) caller: String,
    /// The name of the operation, such as `payments.create`.
    pub(crate) operation: String,
    /// The version of the API, where that is part of its scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api_version: Option<String>,
    /// The resource that it works under, where that is part of its scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    /// The region, where that is part of its scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<String>,
    /// How often it was granted.
    pub(crate) attempts: u32,
    /// The fence of the last grant.
    pub(crate) fence: u64,
    /// Whether an owner before the last one lapsed.
    pub(crate) taken_over: bool,
    /// The beginning of its fingerprint.
    pub(crate) fingerprint: String,
    /// First grant, on the store's clock.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) created_at: Rfc3339,
    /// Last change.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) updated_at: Rfc3339,
    /// When its lease lapses or has lapsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(crate) lease_until: Option<Rfc3339>,
    /// Until when its outcome answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(crate) kept_until: Option<Rfc3339>,
    /// Until when its key is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(crate) known_until: Option<Rfc3339>,
    /// What it came to, where that is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<OutcomeView>,
}

impl RecordView {
    /// A record that stands there; with the bytes of its outcome, if they are wanted.
    pub(super) fn of(record: &Record, state: RecordState, with_bytes: bool) -> Self {
        let (scope, text) = (&record.scope, |part: Option<&str>| part.map(str::to_owned));
        let retained = record.state.retained();
        Self {
            operation_id: record.operation.to_string(),
            record: record.id.to_string(),
            state,
            tenant: scope.tenant().to_owned(),
            caller: scope.caller().to_owned(),
            operation: scope.operation().to_owned(),
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

/// Enough to compare two by eye, and too little to guess a payload from.
fn fingerprint(record: &Record) -> String {
    let digest = &record.fingerprint.digest()[..4];
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("v{}:{digits}", record.fingerprint.rules())
}

/// What an operation came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct OutcomeView {
    /// How much of the reply is stored.
    pub(crate) content: OutcomeContent,
    /// Its codec.
    pub(crate) codec: String,
    /// How many bytes are stored.
    pub(crate) bytes: u64,
    /// The status of an HTTP reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// The content type of an HTTP reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content_type: Option<String>,
    /// The resource that the operation made or changed, as `kind/id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource: Option<String>,
    /// The HTTP reply, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reply: Option<Reply>,
    /// The stored bytes in base64, if they were asked for and are no HTTP reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) raw_base64: Option<String>,
}

/// How much of a reply is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutcomeContent {
    /// All of it.
    Whole,
    /// A reference, from which it is made again.
    Reference,
    /// Nothing but how it ended.
    Omitted,
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
                Content::Whole => OutcomeContent::Whole,
                Content::Reference => OutcomeContent::Reference,
                Content::Omitted => OutcomeContent::Omitted,
            },
            codec: outcome.tag.as_str().to_owned(),
            bytes: outcome.bytes.len() as u64,
            status: reply.as_ref().map(|reply| reply.status),
            content_type: header("content-type"),
            resource: outcome.resource.as_deref().map(resource),
            raw_base64: (with_bytes && reply.is_none()).then(|| reply::base64(&outcome.bytes)),
            reply: reply.filter(|_| with_bytes),
        }
    }
}

/// A record, and what was decided about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RecordDetails {
    /// The record.
    pub(crate) record: RecordView,
    /// What was decided about its operation, in order.
    pub(crate) decisions: Vec<DecisionView>,
}

/// A page of records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RecordPage {
    /// The records, in the order of their ids.
    pub(crate) records: Vec<RecordView>,
    /// Records that are there and cannot be read.
    pub(crate) undecodable: Vec<String>,
    /// Where the next page goes on, if there is one. A page may be short, or empty, and not
    /// the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// A decision about an operation whose outcome was unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DecisionView {
    /// The id of the operation.
    #[schema(pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    pub(crate) operation_id: String,
    /// The grant that it is about.
    pub(crate) fence: u64,
    /// What was decided.
    pub(crate) decided: Decided,
    /// Who or what decided.
    pub(crate) by: String,
    /// Why.
    pub(crate) evidence: String,
    /// When it was written down, on the store's clock.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) at: Rfc3339,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decided {
    /// It had happened: its outcome was stored.
    Happened,
    /// It had not happened and cannot any more: its key was freed.
    DidNotHappen,
    /// Somebody else had settled the matter before.
    Superseded,
    /// The store had lost records, and grants claims again. The operation is a name for the
    /// decision itself.
    LossAccepted,
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
    /// The decisions; about one operation in order, all of them in none.
    pub(crate) decisions: Vec<DecisionView>,
    /// Where the next page goes on, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PurgeDone {
    /// Records removed.
    pub(crate) removed: u64,
    /// Records whose outcome was dropped, the key staying known as expired.
    pub(crate) tombstoned: u64,
    /// Whether more is due now.
    pub(crate) more: bool,
}

impl From<Purged> for PurgeDone {
    fn from(purged: Purged) -> Self {
        let Purged { removed, tombstoned, more } = purged;
        Self { removed: removed as u64, tombstoned: tombstoned as u64, more }
    }
}

/// Effect of accepting a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AcceptLossDone {
    /// Whether claims were refused because records were lost, and are granted again.
    pub(crate) reopened: bool,
}

/// How much a store holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct StoreTotals {
    /// Records of every state, Onceward's own included.
    pub(crate) records: u64,
    /// About how many bytes they take.
    pub(crate) bytes: u64,
    /// Records by stored state: a lapsed lease counts as running until somebody is told.
    pub(crate) by_state: Vec<Total>,
}

/// How many records there are of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Total {
    /// The state.
    pub(crate) state: RecordState,
    /// How many.
    pub(crate) records: u64,
}

impl From<Stats> for StoreTotals {
    fn from(stats: Stats) -> Self {
        let counted = StateName::ALL.into_iter().zip(stats.by_state);
        let total = |(state, records): (StateName, u64)| Total { state: state.into(), records };
        let by_state = counted.map(total).collect();
        Self { records: stats.records, bytes: stats.bytes, by_state }
    }
}

/// What reading some records came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct VerifiedPage {
    /// Records that were read.
    pub(crate) read: u64,
    /// Records that are there and cannot be read.
    pub(crate) undecodable: Vec<String>,
    /// Where to go on, if there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// Ids as they are shown.
pub(super) fn ids(ids: &[RecordId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}
