//! Requests that were seen before, by their bytes: a retry that is sent exactly as the first
//! attempt was leads to its record at once, and its JSON is neither read nor hashed again.
//!
//! It only ever spares work. Whatever is not found here goes the whole way and comes to the
//! same answer; so does whatever is not settled, or is in a store that cannot say so at once.

use onceward_core::{Ambient, Fingerprint, RecordId, SystemAmbient};
use parking_lot::Mutex;
use siphasher::sip128::SipHasher13;

/// So many requests are remembered; a new one takes the place of an old one. 800 kilobytes.
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
    hasher: SipHasher13,
    slots: Box<[Mutex<Option<Known>>]>,
}

#[derive(Clone, Copy)]
struct Known {
    digest: Digest,
    place: Place,
}

/// Where a request leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) record: RecordId,
    pub(crate) fingerprint: Fingerprint,
}

impl Seen {
    pub(crate) fn new() -> Self {
        let keys = SystemAmbient::new().random();
        let hasher = SipHasher13::new_with_keys(keys as u64, (keys >> 64) as u64);
        Self { hasher, slots: (0..SLOTS).map(|_| Mutex::new(None)).collect() }
    }

    pub(crate) fn digest(&self, fields: &Fields) -> Digest {
        Digest(self.hasher.hash(&fields.0).as_u128())
    }

    pub(crate) fn place(&self, digest: Digest) -> Option<Place> {
        let known = *self.slot(digest).lock();
        known.filter(|known| known.digest == digest).map(|known| known.place)
    }

    pub(crate) fn remember(&self, digest: Digest, place: Place) {
        *self.slot(digest).lock() = Some(Known { digest, place });
    }

    fn slot(&self, digest: Digest) -> &Mutex<Option<Known>> {
        &self.slots[digest.0 as usize % SLOTS]
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

    fn place(byte: u8) -> Place {
        let record = RecordId::from_bytes([byte; 32]);
        Place { record, fingerprint: Fingerprint::from_digest(0, [byte; 32]) }
    }

    #[test]
    fn what_was_seen_is_found_and_nothing_else() {
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
        seen.remember(one, place(1));
        assert_eq!(seen.place(one), Some(place(1)));
        assert_eq!(seen.place(other), None);
        assert_ne!(digest(&Seen::new(), &["a", "b"]), one, "each layer draws its own keys");
    }

    #[test]
    fn of_two_in_one_slot_the_later_is_known() {
        let seen = Seen::new();
        let (one, two) = (Digest(7), Digest(7 + SLOTS as u128));
        seen.remember(one, place(1));
        seen.remember(two, place(2));
        assert_eq!((seen.place(one), seen.place(two)), (None, Some(place(2))));
    }
}
