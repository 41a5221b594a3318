//! The items of a bulk: lines of a request, and their results.

use onceward::{BulkItem, OperationId};
use serde::{Deserialize, Serialize};

use crate::case::{Case, Status, Step};

/// Longest `clientItemId`, in characters.
const ITEM_ID_CHARS_MAX: usize = 100;

/// Request body of POST /cases:bulkApprove.
#[derive(Debug, Deserialize)]
pub(crate) struct BulkRequest {
    items: Vec<Line>,
}

/// One item: a case to approve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Line {
    /// The client's name for the item, unique in its bulk.
    pub(crate) client_item_id: String,
    pub(crate) case_id: i64,
    /// The version that the sender has seen. Without it, any submitted case is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expected_version: Option<i64>,
}

/// Why a list of items is refused, beside what [`Bulk`](onceward::Bulk) refuses. Nothing was done.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidItems {
    #[error("`items` is empty")]
    Empty,
    #[error(
        "items[{position}].clientItemId must have 1 to {ITEM_ID_CHARS_MAX} characters, none of them a control character"
    )]
    ItemId { position: usize },
}

impl InvalidItems {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Empty => "NO_ITEMS",
            Self::ItemId { .. } => "INVALID_ITEM_ID",
        }
    }
}

impl BulkRequest {
    /// Checks the items, which the tables and the log can store then.
    pub(crate) fn into_items(self) -> Result<Vec<BulkItem<Line>>, InvalidItems> {
        if self.items.is_empty() {
            return Err(InvalidItems::Empty);
        }
        let item = |(position, line): (usize, Line)| {
            let id = line.client_item_id.clone();
            let is_valid = (1..=ITEM_ID_CHARS_MAX).contains(&id.chars().count())
                && !id.contains(char::is_control);
            let item = BulkItem { id, input: line };
            is_valid.then_some(item).ok_or(InvalidItems::ItemId { position })
        };
        self.items.into_iter().enumerate().map(item).collect()
    }
}

/// A bulk to store, before its first item runs.
#[derive(Debug, Clone)]
pub(crate) struct NewBulk {
    pub(crate) operation: OperationId,
    /// The operation of the request, which refusals of the layer name. Each attempt after an
    /// interruption has its own.
    pub(crate) request: OperationId,
    pub(crate) owner: Owner,
    pub(crate) lines: Vec<Line>,
}

/// The client that a bulk belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) tenant: String,
    pub(crate) caller: String,
}

/// A bulk with the results of its items, in the order of the request.
#[derive(Debug, Clone)]
pub(crate) struct StoredBulk {
    pub(crate) operation: OperationId,
    pub(crate) owner: Owner,
    pub(crate) items: Vec<ItemRow>,
}

/// A row of `bulk_item_result`, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ItemRow {
    pub(crate) client_item_id: String,
    pub(crate) case_id: i64,
    pub(crate) state: ItemState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result_resource_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure_code: Option<String>,
    /// True if the same line may succeed later, in a new bulk with a new key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retryable: Option<bool>,
}

/// Where an item stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ItemState {
    /// Not done yet. If the bulk was interrupted, a retry with the same key does it.
    Pending,
    /// A process is working on it.
    Running,
    /// Done. Final.
    Succeeded,
    /// Refused. Final: every retry with the same key gets this.
    Failed,
    /// It was running when its bulk stopped. A retry with the same key finds out.
    Unknown,
}

impl ItemState {
    /// True if no retry changes it.
    pub(crate) fn is_final(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed => true,
            Self::Pending | Self::Running | Self::Unknown => false,
        }
    }
}

impl ItemRow {
    pub(crate) fn pending(line: &Line) -> Self {
        Self {
            client_item_id: line.client_item_id.clone(),
            case_id: line.case_id,
            state: ItemState::Pending,
            result_resource_id: None,
            failure_code: None,
            retryable: None,
        }
    }

    /// Stores what was decided about the item.
    pub(crate) fn decide(&mut self, decision: &Decision) {
        match decision {
            Decision::Approve(case) => {
                self.state = ItemState::Succeeded;
                self.result_resource_id = Some(format!("/cases/{}", case.id));
            }
            Decision::Refuse { code, retryable } => {
                self.state = ItemState::Failed;
                self.failure_code = Some((*code).to_owned());
                self.retryable = Some(*retryable);
            }
        }
    }
}

/// The decision about an item, to be stored together with the change of its case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The case, approved.
    Approve(Case),
    /// The case stays as it is.
    Refuse { code: &'static str, retryable: bool },
}

/// Decides about an item, given its case.
pub(crate) fn decide(line: &Line, case: Option<Case>) -> Decision {
    let Some(mut case) = case else {
        return Decision::Refuse { code: "NO_SUCH_CASE", retryable: false };
    };
    match case.take(Step::Approve, line.expected_version) {
        Ok(()) => Decision::Approve(case),
        // A draft may be submitted later. A version that was not expected never comes back.
        Err(refusal) => {
            let retryable = case.status == Status::Draft && line.expected_version.is_none();
            Decision::Refuse { code: refusal.code, retryable }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str) -> Line {
        Line { client_item_id: id.into(), case_id: 1, expected_version: None }
    }

    #[test]
    fn invalid_ids_are_refused_with_their_position() {
        let items = |ids: &[&str]| {
            let items = ids.iter().map(|id| line(id)).collect();
            BulkRequest { items }.into_items()
        };
        assert_eq!(items(&[]), Err(InvalidItems::Empty));
        for id in ["", "a\0", "line\n", &"x".repeat(101)] {
            assert_eq!(items(&["a", id]), Err(InvalidItems::ItemId { position: 1 }), "{id:?}");
        }
        assert_eq!(items(&["a", &"ä".repeat(100)]).unwrap().len(), 2);
    }

    #[test]
    fn only_a_line_that_can_succeed_later_is_retryable() {
        let case = |status| Some(Case { status, ..Case::draft(1, "A".into()) });
        let versioned = Line { expected_version: Some(1), ..line("a") };
        let retryable = |line: &Line, status| match decide(line, case(status)) {
            Decision::Approve(_) => None,
            Decision::Refuse { code, retryable } => Some((code, retryable)),
        };
        assert_eq!(retryable(&line("a"), Status::Submitted), None);
        assert_eq!(retryable(&line("a"), Status::Draft), Some(("NOT_IN_THIS_STATE", true)));
        assert_eq!(retryable(&versioned, Status::Draft), Some(("NOT_IN_THIS_STATE", false)));
        assert_eq!(retryable(&line("a"), Status::Paid), Some(("NOT_IN_THIS_STATE", false)));
        let none = Decision::Refuse { code: "NO_SUCH_CASE", retryable: false };
        assert_eq!(decide(&line("a"), None), none);
    }
}
