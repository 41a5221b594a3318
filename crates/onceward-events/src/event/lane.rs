//! Lanes: shares of all aggregates, which relays divide among themselves.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use super::Aggregate;

/// Number of lanes: enough to divide among tens of relays. It is part of the stored rows: never
/// change it.
pub const LANES: u16 = 64;

/// A share of all aggregates. One relay at a time delivers a lane's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(u16);

impl Lane {
    pub(super) fn of(aggregate: &Aggregate) -> Self {
        Self((hash(aggregate) % u64::from(LANES)) as u16)
    }

    /// A lane by its number; `None` if there is no such lane.
    pub fn new(number: u16) -> Option<Self> {
        (number < LANES).then_some(Self(number))
    }

    /// All lanes.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..LANES).map(Self)
    }

    /// Its number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// Its number as PostgreSQL stores it.
    pub(crate) fn column(self) -> i16 {
        self.0.cast_signed()
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Aggregate {
    /// The advisory lock under which its events get their positions. Two aggregates may share one,
    /// which costs them waiting and nothing else.
    pub(crate) fn lock(&self) -> i32 {
        ((hash(self) >> 32) as u32).cast_signed()
    }
}

/// The same in every release: lanes are stored.
fn hash(aggregate: &Aggregate) -> u64 {
    let (kind, id) = (aggregate.kind(), aggregate.id());
    xxh3_64(format!("{}:{kind}{id}", kind.len()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_never_change_and_names_do_not_run_together() {
        let aggregate = |kind: &str, id: &str| Aggregate::new(kind, id).unwrap();
        assert_eq!(aggregate("order", "42").lane().number(), 47);
        assert_ne!(hash(&aggregate("ab", "c")), hash(&aggregate("a", "bc")));
        let lanes: std::collections::BTreeSet<_> =
            (0..1000).map(|id| aggregate("order", &id.to_string()).lane()).collect();
        assert_eq!(lanes.len(), usize::from(LANES), "all are used");
    }
}
