//! A cache of replayed requests by their bytes: an exact repetition finds its record without parsing
//! and hashing its JSON again.
//!
//! It only saves work: a request that is not in the cache takes the full path to the same response.
//!
//! It pays only for stores that answer without waiting
//! ([`Store::recall`](onceward_core::Store::recall)): the memory store and the embedded store. A
//! repeated replay takes 1.66 instead of 2.90 µs of processor time with the first, and 2.13 instead
//! of 3.55 µs with the second (the bare handler: 2.13; `cargo xtask bench layer`). Other stores ask
//! a server for the response, which takes many times longer than the JSON, so a layer on such a
//! store has no cache.
//!
//! A request enters the cache when it is replayed, not when it first comes: most requests never come
//! again.

use std::sync::atomic::{AtomicU16, Ordering};

use onceward_core::{Ambient, Fingerprint, Key, RecordId, SystemAmbient};
use parking_lot::Mutex;
use siphasher::sip::SipHasher13;
use siphasher::sip128;

use crate::request::RawFields;

/// Number of cached requests; a new one replaces an old one. 900 kilobytes.
const SLOTS: usize = 8192;

/// Largest cached body: hashing a larger one would cost more than it saves.
pub(super) const BODY_BYTES_MAX: usize = 16 << 10;

/// Keyed hash of a request's scope, key and fields. The hash keys are random and never leave the
/// layer, so that collisions cannot be constructed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestDigest(u128);

/// See [the module](self).
pub(crate) struct ReplayCache {
    keys: SipHasher13,
    digests: sip128::SipHasher13,
    /// A few bits of each slot's key hash: small enough for the processor's cache, unlike the slots.
    /// Most requests are new, and need only these bits.
    tags: Box<[AtomicU16]>,
    slots: Box<[Mutex<Option<CachedRequest>>]>,
}

/// Hash of a key, which finds its slot. Another caller's key may have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    fn slot(self) -> usize {
        self.0 as usize % SLOTS
    }

    /// Other bits than those of the slot.
    fn tag(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// A replayed request and its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedRequest {
    pub(super) key_hash: KeyHash,
    pub(super) digest: RequestDigest,
    pub(super) record: RecordId,
    pub(super) fingerprint: Fingerprint,
}

impl ReplayCache {
    pub(crate) fn new() -> Self {
        let ambient = SystemAmbient::new();
        let keys = || {
            let drawn = ambient.random();
            (drawn as u64, (drawn >> 64) as u64)
        };
        let (key_hashes, digests) = (keys(), keys());
        Self {
            keys: SipHasher13::new_with_keys(key_hashes.0, key_hashes.1),
            digests: sip128::SipHasher13::new_with_keys(digests.0, digests.1),
            tags: (0..SLOTS).map(|_| AtomicU16::new(0)).collect(),
            slots: (0..SLOTS).map(|_| Mutex::new(None)).collect(),
        }
    }

    pub(super) fn key_hash(&self, key: &Key) -> KeyHash {
        KeyHash(self.keys.hash(key.expose().as_bytes()))
    }

    pub(super) fn digest(&self, fields: &RawFields) -> RequestDigest {
        RequestDigest(self.digests.hash(fields.as_bytes()).as_u128())
    }

    /// Returns the request that was last replayed with a key.
    pub(super) fn get(&self, key: KeyHash) -> Option<CachedRequest> {
        if self.tags[key.slot()].load(Ordering::Relaxed) != key.tag() {
            return None;
        }
        let slot = self.slots[key.slot()].lock();
        slot.as_ref().filter(|cached| cached.key_hash == key).copied()
    }

    pub(super) fn insert(&self, request: CachedRequest) {
        let key = request.key_hash;
        *self.slots[key.slot()].lock() = Some(request);
        // Two inserts at once may leave the other's tag: then a retry takes the full path.
        self.tags[key.slot()].store(key.tag(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(cache: &ReplayCache, fields: &[&str]) -> RequestDigest {
        let mut all = RawFields::with_room_for(b"");
        fields.iter().for_each(|field| all.push(field.as_bytes()));
        cache.digest(&all)
    }

    fn request(key_hash: KeyHash, byte: u8) -> CachedRequest {
        let (digest, record) = (RequestDigest(byte.into()), RecordId::from_bytes([byte; 32]));
        let fingerprint = Fingerprint::from_digest(0, [byte; 32]);
        CachedRequest { key_hash, digest, record, fingerprint }
    }

    #[test]
    fn a_digest_depends_on_each_field_and_on_the_layer() {
        let cache = ReplayCache::new();
        let (one, other) = (digest(&cache, &["a", "b"]), digest(&cache, &["ab", ""]));
        assert_ne!(one, other, "fields are not concatenated");
        let lists = [(&["x", ""][..], &[][..]), (&["x"], &[""]), (&["x"], &[]), (&[], &["x"])];
        let lists = lists.map(|(first, second): (&[&str], &[&str])| {
            let mut fields = RawFields::with_room_for(b"");
            for list in [first, second] {
                fields.push_list(list.iter().map(|line| line.as_bytes()));
            }
            cache.digest(&fields)
        });
        assert!((1..4).all(|n| !lists[..n].contains(&lists[n])), "nor are lists");
        assert_ne!(digest(&ReplayCache::new(), &["a", "b"]), one, "each layer has its own keys");
    }

    #[test]
    fn only_an_inserted_key_is_found() {
        let cache = ReplayCache::new();
        let [key, other] = ["k", "l"].map(|key| cache.key_hash(&Key::new(key).unwrap()));
        assert_eq!(cache.get(key), None);
        for byte in [1, 2] {
            cache.insert(request(key, byte));
            assert_eq!(cache.get(key), Some(request(key, byte)));
        }
        assert_eq!(cache.get(other), None);
    }

    #[test]
    fn a_slot_holds_the_later_of_two_requests() {
        let cache = ReplayCache::new();
        let (one, two) = (KeyHash(7), KeyHash(7 + SLOTS as u64));
        cache.insert(request(one, 1));
        cache.insert(request(two, 2));
        assert_eq!((cache.get(one), cache.get(two)), (None, Some(request(two, 2))));
    }
}
