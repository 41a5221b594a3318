//! What the follower lacks.
//!
//! A process that cannot bring a record to the follower remembers it, and leaves a note in the
//! charter before it answers: as long as there is a note, in whatever process, nobody changes the
//! authority. A note is struck when its process has caught up; one of a process that died stays.

use std::collections::BTreeSet;

use onceward_core::RecordId;
use parking_lot::Mutex;
use uuid::Uuid;

use super::charter::draw;

/// So many records are remembered by their ids (some 100 MB); beyond that everything is behind.
const IDS_MAX: usize = 1_000_000;

/// What this process knows to be behind.
#[derive(Default)]
pub(super) struct Behind {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lacks: Lacks,
    note: Option<Note>,
    /// Notes that are over and still in the charter, or may come into it.
    over: Vec<Uuid>,
}

/// The records that the follower lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lacks {
    These(BTreeSet<RecordId>),
    /// Too many to count, or not known.
    All,
}

impl Default for Lacks {
    fn default() -> Self {
        Self::These(BTreeSet::new())
    }
}

/// A word in the charter that something is behind.
#[derive(Debug, Clone, Copy)]
struct Note {
    id: Uuid,
    entered: bool,
}

impl Behind {
    /// Remembers a record; the note to be entered into the charter, if there is none yet.
    pub(super) fn add(&self, id: RecordId) -> Option<Uuid> {
        let mut state = self.state.lock();
        if let Lacks::These(ids) = &mut state.lacks {
            ids.insert(id);
            if ids.len() > IDS_MAX {
                state.lacks = Lacks::All;
            }
        }
        let note = *state.note.get_or_insert_with(|| Note { id: draw(), entered: false });
        (!note.entered).then_some(note.id)
    }

    /// A note is in the charter. It may have been over before it came there.
    pub(super) fn entered(&self, id: Uuid) {
        let mut state = self.state.lock();
        match &mut state.note {
            Some(note) if note.id == id => note.entered = true,
            _ => state.over.push(id),
        }
    }

    pub(super) fn count(&self) -> usize {
        match &self.state.lock().lacks {
            Lacks::These(ids) => ids.len(),
            Lacks::All => usize::MAX,
        }
    }

    /// Takes what is behind, to bring it up to date; the note stays.
    pub(super) fn take(&self) -> Lacks {
        std::mem::take(&mut self.state.lock().lacks)
    }

    /// Puts back what could not be brought up to date.
    pub(super) fn put_back(&self, more: Lacks) {
        let mut state = self.state.lock();
        match (&mut state.lacks, more) {
            (Lacks::These(ids), Lacks::These(more)) => ids.extend(more),
            (lacks, Lacks::All) => *lacks = Lacks::All,
            (Lacks::All, Lacks::These(_)) => {}
        }
    }

    /// The notes that can be struck, if nothing is behind any more. From here on a new failure
    /// needs a new note.
    pub(super) fn over(&self) -> Vec<Uuid> {
        let mut state = self.state.lock();
        if state.lacks == Lacks::default()
            && let Some(note) = state.note.take()
        {
            state.over.push(note.id);
        }
        state.over.clone()
    }

    pub(super) fn struck(&self, notes: &[Uuid]) {
        self.state.lock().over.retain(|note| !notes.contains(note));
    }

    /// Whether a note of the charter is this process's own.
    pub(super) fn has(&self, id: &Uuid) -> bool {
        let state = self.state.lock();
        state.over.contains(id) || state.note.is_some_and(|note| note.id == *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: RecordId = RecordId::from_bytes([7; 32]);

    #[test]
    fn a_failure_after_catching_up_needs_a_new_note() {
        let behind = Behind::default();
        let note = behind.add(ID).unwrap();
        assert_eq!(behind.add(ID), Some(note), "until it is entered");
        behind.entered(note);
        assert_eq!((behind.add(ID), behind.count()), (None, 1));
        assert!(behind.over().is_empty(), "not while something is behind");

        assert_eq!(behind.take(), Lacks::These([ID].into()));
        assert_eq!(behind.over(), [note]);
        let next = behind.add(ID).unwrap();
        assert_ne!(next, note);
        behind.struck(&[note]);
        assert!(behind.has(&next) && !behind.has(&note));
    }

    #[test]
    fn a_note_that_is_entered_when_it_is_over_is_struck_later() {
        let behind = Behind::default();
        let note = behind.add(ID).unwrap();
        let _ = behind.take();
        behind.struck(&behind.over());
        behind.entered(note);
        assert_eq!(behind.over(), [note]);
    }
}
