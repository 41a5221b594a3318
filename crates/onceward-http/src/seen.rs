//! Retries that were seen before, by their bytes: one that is sent exactly as the one before it
//! leads to its record at once, and its JSON is neither read nor hashed again.
//!
//! It only ever spares work. Whatever is not found here goes the whole way and comes to the
//! same answer; so does whatever is not settled, or is in a store that cannot say so at once.
//!
//! A request is remembered when it is replayed, not when it first comes: most never come again,
//! and would pay for those that do, and take their places.

use std::sync::atomic::{AtomicU16, Ordering};

use onceward_core::{Ambient, Fingerprint, Key, RecordId, SystemAmbient};
use parking_lot::Mutex;
use siphasher::sip::SipHasher13;
use siphasher::sip128;

/// So many retries are remembered; a new one takes the place of an old one. 900 kilobytes.
const SLOTS: usize = 8192;

/// Larger bodies go the whole way: a hash of them would cost more than it spares.
pub(crate) const BODY_BYTES_MAX: usize = 16 << 10;

/// Stands for all that makes a request the one that it is: whose it is, its key, what it asks
/// for. The keys of the hash are drawn with the layer and never leave it, so nobody can make
/// two requests meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest(u128);

/// The fields that a digest is taken of, each with its length.
pub(crate) struct Fields(Vec<u8>);

impl Fields {
    /// None yet, with room for those of a request with such a body.
    pub(crate) fn beside(body: &[u8]) -> Self {
        Self(Vec::with_capacity(384 + body.len()))
    }

    pub(crate) fn push(&mut self, field: &[u8]) {
        self.0.extend_from_slice(&(field.len() as u64).to_le_bytes());
        self.0.extend_from_slice(field);
    }

    pub(crate) fn push_list<'l>(&mut self, list: impl Iterator<Item = &'l [u8]>) {
        for field in list {
            self.0.push(1);
            self.push(field);
        }
        self.0.push(0);
    }
}

/// See [the module](self).
pub(crate) struct Seen {
    names: SipHasher13,
    digests: sip128::SipHasher13,
    /// Of each slot, a few bits of the name in it: small enough to stay in the processor's cache,
    /// where the slots do not. Most requests are new, and are told so by these alone.
    marks: Box<[AtomicU16]>,
    slots: Box<[Mutex<Option<Known>>]>,
}

/// A key as it is looked for: a hash, which tells a new key at the least expense. Another
/// caller's key may have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name(u64);

impl Name {
    fn slot(self) -> usize {
        self.0 as usize % SLOTS
    }

    /// Other bits than those of the slot.
    fn mark(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// A request, and where it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) name: Name,
    pub(crate) digest: Digest,
    pub(crate) record: RecordId,
    pub(crate) fingerprint: Fingerprint,
}

impl Seen {
    pub(crate) fn new() -> Self {
        let ambient = SystemAmbient::new();
        let keys = || {
            let drawn = ambient.random();
            (drawn as u64, (drawn >> 64) as u64)
        };
        let (names, digests) = (keys(), keys());
        Self {
            names: SipHasher13::new_with_keys(names.0, names.1),
            digests: sip128::SipHasher13::new_with_keys(digests.0, digests.1),
            marks: (0..SLOTS).map(|_| AtomicU16::new(0)).collect(),
            slots: (0..SLOTS).map(|_| Mutex::new(None)).collect(),
        }
    }

    pub(crate) fn name(&self, key: &Key) -> Name {
        Name(self.names.hash(key.expose().as_bytes()))
    }

    pub(crate) fn digest(&self, fields: &Fields) -> Digest {
        Digest(self.digests.hash(&fields.0).as_u128())
    }

    /// What was last replayed under a name.
    pub(crate) fn known(&self, name: Name) -> Option<Known> {
        if self.marks[name.slot()].load(Ordering::Relaxed) != name.mark() {
            return None;
        }
        let known = self.slots[name.slot()].lock();
        known.as_ref().filter(|known| known.name == name).copied()
    }

    pub(crate) fn remember(&self, known: Known) {
        *self.slots[known.name.slot()].lock() = Some(known);
        // Two at once may leave the other's mark: then a retry goes the whole way.
        self.marks[known.name.slot()].store(known.name.mark(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(seen: &Seen, fields: &[&str]) -> Digest {
        let mut all = Fields::beside(b"");
        fields.iter().for_each(|field| all.push(field.as_bytes()));
        seen.digest(&all)
    }

    fn known(name: Name, byte: u8) -> Known {
        let (digest, record) = (Digest(byte.into()), RecordId::from_bytes([byte; 32]));
        Known { name, digest, record, fingerprint: Fingerprint::from_digest(0, [byte; 32]) }
    }

    #[test]
    fn a_digest_is_of_each_field_and_of_the_layer() {
        let seen = Seen::new();
        let (one, other) = (digest(&seen, &["a", "b"]), digest(&seen, &["ab", ""]));
        assert_ne!(one, other, "fields do not run together");
        let lists = [(&["x", ""][..], &[][..]), (&["x"], &[""]), (&["x"], &[]), (&[], &["x"])];
        let lists = lists.map(|(first, second): (&[&str], &[&str])| {
            let mut fields = Fields::beside(b"");
            for list in [first, second] {
                fields.push_list(list.iter().map(|line| line.as_bytes()));
            }
            seen.digest(&fields)
        });
        assert!((1..4).all(|n| !lists[..n].contains(&lists[n])), "nor do lists");
        assert_ne!(digest(&Seen::new(), &["a", "b"]), one, "each layer draws its own keys");
    }

    #[test]
    fn what_was_remembered_is_found_and_nothing_else() {
        let seen = Seen::new();
        let [name, other] = ["k", "l"].map(|key| seen.name(&Key::new(key).unwrap()));
        assert_eq!(seen.known(name), None);
        for byte in [1, 2] {
            seen.remember(known(name, byte));
            assert_eq!(seen.known(name), Some(known(name, byte)));
        }
        assert_eq!(seen.known(other), None);
    }

    #[test]
    fn of_two_in_one_slot_the_later_is_known() {
        let seen = Seen::new();
        let (one, two) = (Name(7), Name(7 + SLOTS as u64));
        seen.remember(known(one, 1));
        seen.remember(known(two, 2));
        assert_eq!((seen.known(one), seen.known(two)), (None, Some(known(two, 2))));
    }
}
