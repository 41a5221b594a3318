//! Sketches: tell which parts of a refused request differ, without keeping the request.

use std::fmt;
use std::hash::Hasher as _;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use super::identity::RecordId;

/// One named part of a request, as hashes: a field of its body, its query, an argument.
///
/// The maker of an intent chooses the parts, and knows the name of the n-th. The hashes must be
/// the same in every release. They never leave the process: a store only sees their [`Sketch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// A hash of its name.
    pub name: u64,
    /// A hash of its value.
    pub value: u64,
}

/// Short hashes of a request's parts, six bytes each.
///
/// Keyed with the engine's secret and bound to one record, with only two bytes for the value:
/// it tells that a value changed (and misses one change in 65,536), never what it was. The
/// fingerprint decides about a mismatch; the sketch only explains it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Sketch(Option<Arc<[u8]>>);

/// The parts in which a refused request differs from the first one under its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Difference {
    changed: u64,
    missing: u32,
}

/// Most parts in a sketch; further ones are left out.
pub const SKETCH_PARTS_MAX: usize = 64;

const NAME_BYTES: usize = 4;
const PART_BYTES: usize = 6;

impl Sketch {
    /// A sketch read back from a store.
    pub fn from_stored(bytes: &[u8]) -> Self {
        Self((!bytes.is_empty()).then(|| bytes.into()))
    }

    /// The bytes for a store; empty without parts.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.as_bytes().chunks_exact(PART_BYTES)
    }
}

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sketch({} parts)", self.as_bytes().len() / PART_BYTES)
    }
}

impl Difference {
    /// Positions of the refused request's parts that are new or have another value.
    pub fn changed(self) -> impl Iterator<Item = usize> {
        (0..SKETCH_PARTS_MAX).filter(move |position| self.changed >> position & 1 == 1)
    }

    /// Number of the first request's parts that the refused one does not have.
    pub fn missing(self) -> usize {
        self.missing as usize
    }
}

/// Makes and compares sketches.
#[derive(Clone)]
pub(crate) struct Sketcher {
    keys: (u64, u64),
}

impl Sketcher {
    pub(crate) fn new(secret: &[u8; 16]) -> Self {
        let whole = u128::from_le_bytes(*secret);
        Self { keys: (whole as u64, (whole >> 64) as u64) }
    }

    pub(crate) fn sketch(&self, id: &RecordId, parts: &[Part]) -> Sketch {
        if parts.is_empty() {
            return Sketch::default();
        }
        let (of_record, kept) = (self.bound_to(id), &parts[..parts.len().min(SKETCH_PARTS_MAX)]);
        let mut pieces = [[0; PART_BYTES]; SKETCH_PARTS_MAX];
        for (piece, part) in pieces.iter_mut().zip(kept) {
            *piece = of_record.piece(part);
        }
        Sketch::from_stored(pieces[..kept.len()].as_flattened())
    }

    /// Compares a refused request's parts with the sketch of the first.
    pub(crate) fn compare(&self, id: &RecordId, first: &Sketch, parts: &[Part]) -> Difference {
        let mut difference = Difference::default();
        let mut in_both = 0;
        if first.as_bytes().is_empty() {
            return difference;
        }
        let of_record = self.bound_to(id);
        for (position, part) in parts.iter().take(SKETCH_PARTS_MAX).enumerate() {
            let piece = of_record.piece(part);
            let same_name = first.pieces().find(|old| old[..NAME_BYTES] == piece[..NAME_BYTES]);
            in_both += u32::from(same_name.is_some());
            if same_name != Some(&piece[..]) {
                difference.changed |= 1 << position;
            }
        }
        difference.missing = (first.pieces().count() as u32).saturating_sub(in_both);
        difference
    }

    /// A sketcher with keys of one record, so that each part hashes only a few bytes.
    fn bound_to(&self, id: &RecordId) -> Self {
        let mut bound = [0; 33];
        bound[..32].copy_from_slice(id.as_bytes());
        let low = self.hasher().hash(&bound);
        bound[32] = 1;
        Self { keys: (low, self.hasher().hash(&bound)) }
    }

    fn piece(&self, part: &Part) -> [u8; PART_BYTES] {
        // One hasher: first of the name, then of the name and the value.
        let mut hasher = self.hasher();
        hasher.write_u64(part.name.to_le());
        let name = hasher.finish().to_le_bytes();
        hasher.write_u64(part.value.to_le());
        let value = hasher.finish().to_le_bytes();
        [name[0], name[1], name[2], name[3], value[0], value[1]]
    }

    fn hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.keys.0, self.keys.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: RecordId = RecordId::from_bytes([7; 32]);

    fn part(name: u64, value: u64) -> Part {
        Part { name, value }
    }

    fn differs(first: &[Part], second: &[Part]) -> (Vec<usize>, usize) {
        let sketcher = Sketcher::new(&[1; 16]);
        let difference = sketcher.compare(&ID, &sketcher.sketch(&ID, first), second);
        (difference.changed().collect(), difference.missing())
    }

    #[test]
    fn changed_new_and_missing_parts_are_told_apart() {
        let first = [part(1, 10), part(2, 20), part(3, 30)];
        assert_eq!(differs(&first, &first), (vec![], 0));
        assert_eq!(differs(&first, &[part(1, 10), part(2, 21), part(3, 30)]), (vec![1], 0));
        assert_eq!(differs(&first, &[part(3, 30), part(1, 10), part(9, 9)]), (vec![2], 1));
        assert_eq!(differs(&[], &first), (vec![], 0));
    }

    #[test]
    fn a_sketch_is_bound_to_its_record_and_its_secret() {
        let parts = [part(1, 10)];
        let one = Sketcher::new(&[1; 16]).sketch(&ID, &parts);
        assert_ne!(one, Sketcher::new(&[2; 16]).sketch(&ID, &parts));
        let other = RecordId::from_bytes([8; 32]);
        assert_ne!(one, Sketcher::new(&[1; 16]).sketch(&other, &parts));
        assert_eq!(one.as_bytes().len(), 6);
    }

    #[test]
    fn a_piece_has_bytes_of_the_hash_of_the_name_and_of_both() {
        let (name, value) = (0x0102_0304_0506_0708_u64, 9_u64);
        let sketcher = Sketcher::new(&[1; 16]);
        let words = [name.to_le_bytes(), value.to_le_bytes()];
        let of_name = sketcher.hasher().hash(&words[0]).to_le_bytes();
        let of_both = sketcher.hasher().hash(words.as_flattened()).to_le_bytes();
        let piece = sketcher.piece(&part(name, value));
        assert_eq!((&piece[..4], &piece[4..]), (&of_name[..4], &of_both[..2]));
    }

    #[test]
    fn many_parts_are_cut_and_a_torn_sketch_does_not_panic() {
        let many: Vec<Part> = (0..100).map(|n| part(n, n)).collect();
        assert_eq!(differs(&many, &many), (vec![], 0));
        let torn = Sketch::from_stored(&[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Sketcher::new(&[1; 16]).compare(&ID, &torn, &many).missing(), 1);
    }
}
