//! Items of a bulk, each with its own intent.

use std::collections::HashSet;

use serde::Serialize;

use crate::intent::{Fingerprint, Intent, Key, Scope};

/// One item of a bulk command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkItem<I> {
    /// The client's name for the item, unique within the bulk.
    pub id: String,
    /// The input of the work.
    pub input: I,
}

/// Why a list of items is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidBulk {
    /// Two items have the same id.
    #[error("the item id {id:?} occurs more than once")]
    DuplicateItem {
        /// The id.
        id: String,
    },
    /// An item's id is empty.
    #[error("the item at position {position} has an empty id")]
    UnnamedItem {
        /// Its position, counted from zero.
        position: usize,
    },
    /// The bulk has too many items.
    #[error("the bulk has {items} items; at most {max} are allowed")]
    TooMany {
        /// Their number.
        items: usize,
        /// The limit.
        max: usize,
    },
    /// An item's input cannot be fingerprinted.
    #[error("the input of item {id:?} cannot be serialised: {reason}")]
    Unserialisable {
        /// The item's id.
        id: String,
        /// Serde's error.
        reason: String,
    },
}

/// An item with its own intent.
#[derive(Debug)]
pub(super) struct PlannedItem<I> {
    pub(super) id: String,
    pub(super) input: I,
    pub(super) intent: Intent,
}

/// Gives each item its intent: the bulk's scope, and a key derived from the bulk's key and the
/// item's id.
pub(super) fn plan<I: Serialize>(
    scope: &Scope,
    key: &Key,
    items: Vec<BulkItem<I>>,
    max: usize,
) -> Result<Vec<PlannedItem<I>>, InvalidBulk> {
    if items.len() > max {
        return Err(InvalidBulk::TooMany { items: items.len(), max });
    }
    let mut seen = HashSet::with_capacity(items.len());
    let plan = |(position, BulkItem { id, input })| {
        if id.is_empty() {
            return Err(InvalidBulk::UnnamedItem { position });
        }
        if !seen.insert(id.clone()) {
            return Err(InvalidBulk::DuplicateItem { id });
        }
        let fingerprint = match Fingerprint::of_value(&input) {
            Ok(fingerprint) => fingerprint,
            Err(error) => {
                return Err(InvalidBulk::Unserialisable { id, reason: error.to_string() });
            }
        };
        let key = Key::derived(&[b"bulk item", key.expose().as_bytes(), id.as_bytes()]);
        let intent = Intent::new(scope.clone(), key, fingerprint);
        Ok(PlannedItem { id, input, intent })
    };
    items.into_iter().enumerate().map(plan).collect()
}

/// The intent of the whole. Its fingerprint is that of the items in their order: another list is
/// another command. In a scope that is bound to credentials, which share their keys with all
/// others, it contains the credentials too: another caller does not continue a bulk.
pub(super) fn whole<I>(scope: &Scope, key: &Key, planned: &[PlannedItem<I>]) -> Intent {
    let credentials = scope.is_bound().then(|| scope.caller().as_bytes());
    let items = planned
        .iter()
        .flat_map(|item| [item.id.as_bytes(), item.intent.fingerprint.digest().as_slice()]);
    let parts: Vec<&[u8]> = credentials.into_iter().chain(items).collect();
    let key = Key::derived(&[b"bulk", key.expose().as_bytes()]);
    Intent::new(scope.clone(), key, Fingerprint::of_parts(&parts))
}
