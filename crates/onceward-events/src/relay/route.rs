//! Which aggregates a relay delivers.

use std::collections::BTreeSet;

/// A route: the aggregates that one sink gets. Relays of one route divide them; relays of other
/// routes have nothing to do with them.
///
/// An aggregate type belongs to one route. Events of a type that belongs to none stay in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its name, the same in all relays with this sink.
    pub name: String,
    /// The aggregate types.
    pub types: AggregateTypes,
}

/// A set of aggregate types.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AggregateTypes {
    /// All of them.
    #[default]
    All,
    /// These.
    Only(BTreeSet<String>),
    /// All but these, which other routes have.
    AllBut(BTreeSet<String>),
}

impl Default for Route {
    fn default() -> Self {
        Self { name: "default".to_owned(), types: AggregateTypes::All }
    }
}

impl AggregateTypes {
    /// The types as the statements take them: only these, and all but these.
    pub(super) fn columns(&self) -> (Option<Vec<&str>>, Option<Vec<&str>>) {
        match self {
            Self::All => (None, None),
            Self::Only(types) => (Some(list(types)), None),
            Self::AllBut(types) => (None, Some(list(types))),
        }
    }
}

fn list(types: &BTreeSet<String>) -> Vec<&str> {
    types.iter().map(String::as_str).collect()
}
