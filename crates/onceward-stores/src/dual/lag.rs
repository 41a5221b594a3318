//! Records that the follower does not have yet.
//!
//! A process that cannot replicate a record remembers its id, and writes a *lag marker* into the
//! authority record before it answers. While a marker is there, from whatever process, no
//! switchover takes place. A process removes its marker when it has caught up; the marker of a
//! process that died stays.

use std::collections::BTreeSet;

use onceward_core::RecordId;
use parking_lot::Mutex;
use uuid::Uuid;

use super::authority_record::random_id;

/// Most records that are remembered by id (some 100 MB); beyond that every record is lagging.
const IDS_MAX: usize = 1_000_000;

/// The lagging records that this process knows, and its marker.
#[derive(Default)]
pub(super) struct Lag {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lagging: Lagging,
    marker: Option<Marker>,
    /// Markers to remove: no longer needed, and in the authority record or on their way to it.
    obsolete: Vec<Uuid>,
}

/// The records that the follower lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lagging {
    Records(BTreeSet<RecordId>),
    /// Too many to remember, or not known.
    All,
}

impl Default for Lagging {
    fn default() -> Self {
        Self::Records(BTreeSet::new())
    }
}

#[derive(Debug, Clone, Copy)]
struct Marker {
    id: Uuid,
    written: bool,
}

impl Lag {
    /// Adds a record. Returns the marker to write into the authority record, unless it is there
    /// already.
    pub(super) fn add(&self, id: RecordId) -> Option<Uuid> {
        let mut state = self.state.lock();
        if let Lagging::Records(ids) = &mut state.lagging {
            ids.insert(id);
            if ids.len() > IDS_MAX {
                state.lagging = Lagging::All;
            }
        }
        let marker =
            *state.marker.get_or_insert_with(|| Marker { id: random_id(), written: false });
        (!marker.written).then_some(marker.id)
    }

    /// Notes that a marker is in the authority record. It may be obsolete by now.
    pub(super) fn marker_written(&self, id: Uuid) {
        let mut state = self.state.lock();
        match &mut state.marker {
            Some(marker) if marker.id == id => marker.written = true,
            _ => state.obsolete.push(id),
        }
    }

    pub(super) fn count(&self) -> usize {
        match &self.state.lock().lagging {
            Lagging::Records(ids) => ids.len(),
            Lagging::All => usize::MAX,
        }
    }

    /// Takes the lagging records, for replication. The marker stays.
    pub(super) fn take(&self) -> Lagging {
        std::mem::take(&mut self.state.lock().lagging)
    }

    /// Puts back records that could not be replicated.
    pub(super) fn put_back(&self, more: Lagging) {
        let mut state = self.state.lock();
        match (&mut state.lagging, more) {
            (Lagging::Records(ids), Lagging::Records(more)) => ids.extend(more),
            (lagging, Lagging::All) => *lagging = Lagging::All,
            (Lagging::All, Lagging::Records(_)) => {}
        }
    }

    /// Returns the markers to remove, once nothing lags. A later failure needs a new marker.
    pub(super) fn obsolete_markers(&self) -> Vec<Uuid> {
        let mut state = self.state.lock();
        if state.lagging == Lagging::default()
            && let Some(marker) = state.marker.take()
        {
            state.obsolete.push(marker.id);
        }
        state.obsolete.clone()
    }

    pub(super) fn markers_removed(&self, markers: &[Uuid]) {
        self.state.lock().obsolete.retain(|marker| !markers.contains(marker));
    }

    /// True if a marker is this process's own.
    pub(super) fn owns(&self, id: &Uuid) -> bool {
        let state = self.state.lock();
        state.obsolete.contains(id) || state.marker.is_some_and(|marker| marker.id == *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: RecordId = RecordId::from_bytes([7; 32]);

    #[test]
    fn a_failure_after_catching_up_needs_a_new_marker() {
        let lag = Lag::default();
        let marker = lag.add(ID).unwrap();
        assert_eq!(lag.add(ID), Some(marker), "until it is written");
        lag.marker_written(marker);
        assert_eq!((lag.add(ID), lag.count()), (None, 1));
        assert!(lag.obsolete_markers().is_empty(), "not while something lags");

        assert_eq!(lag.take(), Lagging::Records([ID].into()));
        assert_eq!(lag.obsolete_markers(), [marker]);
        let next = lag.add(ID).unwrap();
        assert_ne!(next, marker);
        lag.markers_removed(&[marker]);
        assert!(lag.owns(&next) && !lag.owns(&marker));
    }

    #[test]
    fn a_marker_that_is_written_when_it_is_obsolete_is_removed_later() {
        let lag = Lag::default();
        let marker = lag.add(ID).unwrap();
        let _ = lag.take();
        lag.markers_removed(&lag.obsolete_markers());
        lag.marker_written(marker);
        assert_eq!(lag.obsolete_markers(), [marker]);
    }
}
