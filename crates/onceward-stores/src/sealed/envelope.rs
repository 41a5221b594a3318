//! One sealed outcome: its layout and its binding.
//!
//! ```text
//! method u8 | [unpacked bytes u32] | key id length u8 | key id | ciphertext | authentication tag
//! ```
//!
//! The method is 0 for an uncompressed payload, or 1 for one compressed by zstd; only the latter
//! has the unpacked size. Numbers are little-endian.

use aws_lc_rs::aead::{Aad, MAX_TAG_LEN, NONCE_LEN, Nonce};
use aws_lc_rs::digest::{SHA256, digest};
use onceward_core::{Ended, Fingerprint, OperationId, Outcome, Record, RecordId, Tag};

use super::error::SealProblem;
use super::keys::{KEY_ID_BYTES_MAX, Keys, is_key_id};
use super::zstd_pool::ZstdPool;
use super::{Compression, payload};

/// Codec tag of sealed outcomes, with the version of this layout.
pub const TAG: Tag = Tag::from_static("sealed/v1");

/// Largest payload that is compressed. A stored size above it is refused before anything is
/// decompressed.
pub(super) const UNPACKED_BYTES_MAX: usize = 64 << 20;

const AS_IT_IS: u8 = 0;
const ZSTD: u8 = 1;

/// The values that an outcome is bound to. It opens only together with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Binding {
    /// A hash of scope and key.
    pub(super) id: RecordId,
    /// A later operation under the same key has another id.
    pub(super) operation: OperationId,
    pub(super) fingerprint: Fingerprint,
    /// Tells a failure from a success.
    pub(super) ended: Ended,
}

impl Binding {
    pub(super) fn of(record: &Record, ended: Ended) -> Self {
        let Record { id, operation, fingerprint, .. } = *record;
        Self { id, operation, fingerprint, ended }
    }

    /// The authenticated data beside the outcome. All parts have a fixed length but the header,
    /// which has its own.
    fn aad(&self, header: &[u8]) -> Vec<u8> {
        let mut aad = b"onceward sealed v1".to_vec();
        aad.extend_from_slice(self.id.as_bytes());
        aad.extend_from_slice(self.operation.as_uuid().as_bytes());
        aad.push(self.fingerprint.rules());
        aad.extend_from_slice(self.fingerprint.digest());
        aad.push(match self.ended {
            Ended::Completed => 1,
            Ended::Failed => 2,
        });
        aad.extend_from_slice(header);
        aad
    }
}

/// Seals and opens outcomes.
pub(super) struct Envelopes {
    pub(super) keys: Keys,
    pub(super) compression: Compression,
    zstd: ZstdPool,
}

impl Envelopes {
    pub(super) fn new(keys: Keys, compression: Compression) -> Self {
        Self { keys, compression, zstd: ZstdPool::default() }
    }

    /// Seals an outcome with the first key. The same outcome of the same record gives the same
    /// bytes, so that stores recognise a repeated settlement.
    pub(super) fn seal(&self, bound: &Binding, outcome: &Outcome) -> Result<Outcome, SealProblem> {
        let key = self.keys.first();
        let payload = payload::encode(outcome);
        let (mut out, payload) = match self.packed(&payload) {
            Some((unpacked_bytes, packed)) => {
                let mut out = vec![ZSTD];
                out.extend(unpacked_bytes.to_le_bytes());
                (out, packed)
            }
            None => (vec![AS_IT_IS], payload),
        };
        out.push(key.id.len() as u8);
        out.extend_from_slice(key.id.as_bytes());
        let aad = bound.aad(&out);
        let header_bytes = out.len();
        out.reserve_exact(payload.len() + MAX_TAG_LEN);
        out.extend_from_slice(&payload);
        let sealed = key.cipher.seal_in_place_separate_tag(
            nonce(&aad),
            Aad::from(&aad),
            &mut out[header_bytes..],
        );
        out.extend_from_slice(sealed.map_err(|_| SealProblem::Refused)?.as_ref());
        Ok(with_labels_of(outcome, Outcome::whole(TAG, out)))
    }

    /// Opens an outcome that was sealed for the same binding.
    pub(super) fn open(&self, bound: &Binding, sealed: &Outcome) -> Result<Outcome, SealProblem> {
        if sealed.tag != TAG {
            return Err(SealProblem::Plain { tag: sealed.tag.as_str().to_owned() });
        }
        let envelope = Envelope::read(&sealed.bytes)?;
        let key = self.keys.find(envelope.key_id).ok_or_else(|| self.unknown(envelope.key_id))?;
        let aad = bound.aad(envelope.header);
        let mut payload = envelope.ciphertext.to_vec();
        let opened = key.cipher.open_in_place(nonce(&aad), Aad::from(&aad), &mut payload);
        let length = match opened {
            Ok(opened) => opened.len(),
            Err(_) => return Err(SealProblem::Forged { id: envelope.key_id.to_owned() }),
        };
        payload.truncate(length);
        let payload = match envelope.unpacked_bytes {
            Some(unpacked_bytes) => self.zstd.decompress(&payload, unpacked_bytes)?,
            None => payload,
        };
        Ok(with_labels_of(sealed, payload::decode(payload)?))
    }

    /// Returns whether an outcome is sealed with the first key.
    pub(super) fn is_current(&self, sealed: &Outcome) -> bool {
        let first = &*self.keys.first().id;
        let envelope = (sealed.tag == TAG).then(|| Envelope::read(&sealed.bytes).ok()).flatten();
        envelope.is_some_and(|envelope| envelope.key_id == first)
    }

    fn unknown(&self, id: &str) -> SealProblem {
        let given: Vec<_> = self.keys.ids().map(|id| format!("`{id}`")).collect();
        SealProblem::UnknownKey { id: id.to_owned(), given: given.join(", ") }
    }

    /// The compressed payload and its size, if compression is on and saves something.
    fn packed(&self, payload: &[u8]) -> Option<(u32, Vec<u8>)> {
        let Compression::Above(bytes) = self.compression else { return None };
        if payload.len() <= bytes || payload.len() > UNPACKED_BYTES_MAX {
            return None;
        }
        // The stored size costs four bytes.
        let packed = self.zstd.compress(payload)?;
        let packed = Some(packed).filter(|packed| packed.len() + 4 < payload.len())?;
        Some((u32::try_from(payload.len()).ok()?, packed))
    }
}

/// Status and error code stay beside the sealed bytes, readable and unproved: they are labels for
/// people, and no reply is made from them.
fn with_labels_of(labelled: &Outcome, outcome: Outcome) -> Outcome {
    Outcome { status: labelled.status, error_code: labelled.error_code.clone(), ..outcome }
}

/// The parts of a sealed outcome; nothing is verified yet.
struct Envelope<'a> {
    header: &'a [u8],
    unpacked_bytes: Option<usize>,
    key_id: &'a str,
    ciphertext: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, SealProblem> {
        let (method, rest) = bytes.split_first().ok_or(SealProblem::Malformed("method"))?;
        let (unpacked_bytes, rest) = match *method {
            AS_IT_IS => (None, rest),
            ZSTD => {
                let size = rest.split_first_chunk().ok_or(SealProblem::Malformed("size"))?;
                (Some(size_within_bounds(*size.0)?), size.1)
            }
            _ => return Err(SealProblem::Malformed("method")),
        };
        const KEY_ID: SealProblem = SealProblem::Malformed("key id");
        let (length, rest) = rest.split_first().ok_or(KEY_ID)?;
        let (key_id, ciphertext) = rest.split_at_checked((*length).into()).ok_or(KEY_ID)?;
        let key_id = Some(key_id).filter(|id| is_key_id(id)).ok_or(KEY_ID)?;
        let key_id = std::str::from_utf8(key_id).map_err(|_| KEY_ID)?;
        let header = &bytes[..bytes.len() - ciphertext.len()];
        Ok(Self { header, unpacked_bytes, key_id, ciphertext })
    }
}

fn size_within_bounds(bytes: [u8; 4]) -> Result<usize, SealProblem> {
    let size = u32::from_le_bytes(bytes) as usize;
    if size <= UNPACKED_BYTES_MAX { Ok(size) } else { Err(SealProblem::Malformed("size")) }
}

/// Derived instead of random, so that sealing twice gives the same bytes. It repeats only with the
/// same record, operation and header. GCM-SIV then reveals only whether the outcomes are equal, and
/// an operation never has two.
fn nonce(aad: &[u8]) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce.copy_from_slice(&digest(&SHA256, aad).as_ref()[..NONCE_LEN]);
    Nonce::assume_unique_for_key(nonce)
}

/// Most bytes that sealing adds to an outcome: header, authentication tag, lengths of texts, and
/// the codec's name.
pub const SEAL_BYTES_MAX: usize = 2 + KEY_ID_BYTES_MAX + MAX_TAG_LEN + 2 + 3 * 8 + TAG_BYTES;

const TAG_BYTES: usize = "sealed/v1".len();

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that zstd cannot compress.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    fn envelopes(compression: Compression) -> Envelopes {
        let id = "i".repeat(KEY_ID_BYTES_MAX);
        let text = format!("{id}:q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=");
        Envelopes::new(Keys::parse(&text).unwrap(), compression)
    }

    fn bound() -> Binding {
        Binding {
            id: RecordId::from_bytes([7; 32]),
            operation: uuid::Uuid::from_u128(7).into(),
            fingerprint: Fingerprint::of_parts(&[b"request"]),
            ended: Ended::Completed,
        }
    }

    fn text(bytes: impl Into<bytes::Bytes>) -> Outcome {
        Outcome::whole(Tag::from_static("text/v1"), bytes).with_resource("payment", "pay_1")
    }

    fn parts_bytes(outcome: &Outcome) -> usize {
        let resource = outcome.resource.as_ref().map_or(0, |it| it.kind.len() + it.id.len());
        outcome.tag.as_str().len() + outcome.bytes.len() + resource
    }

    #[test]
    fn sealing_never_adds_more_than_it_says() {
        for compression in [Compression::Off, Compression::Above(0)] {
            for bytes in [0, 1, 100, 5_000] {
                let outcome = text(noise(bytes));
                let sealed = envelopes(compression).seal(&bound(), &outcome).unwrap();
                let added = parts_bytes(&sealed) - parts_bytes(&outcome);
                assert!(added <= SEAL_BYTES_MAX, "{bytes}: {added}");
                assert_eq!(envelopes(compression).open(&bound(), &sealed).unwrap(), outcome);
            }
        }
    }

    #[test]
    fn compression_is_used_above_its_size_and_only_where_it_saves_something() {
        let method = |compression, outcome: &Outcome| {
            envelopes(compression).seal(&bound(), outcome).unwrap().bytes[0]
        };
        let (long, noise) = (text("all alike ".repeat(1_000)), text(noise(10_000)));
        assert_eq!(method(Compression::Above(1_000), &long), ZSTD);
        assert_eq!(method(Compression::Above(1_000), &noise), AS_IT_IS);
        assert_eq!(method(Compression::Above(20_000), &long), AS_IT_IS);
        assert_eq!(method(Compression::Off, &long), AS_IT_IS);
    }

    #[test]
    fn an_outcome_too_large_to_be_unpacked_is_not_packed() {
        let envelopes = envelopes(Compression::Above(0));
        let huge = text(vec![0; UNPACKED_BYTES_MAX + 1]);
        let sealed = envelopes.seal(&bound(), &huge).unwrap();
        assert_eq!(sealed.bytes[0], AS_IT_IS);
        assert_eq!(envelopes.open(&bound(), &sealed).unwrap(), huge);
    }

    #[test]
    fn what_says_that_it_unpacks_to_too_much_is_refused_before_it_is_unpacked() {
        let mut sealed = envelopes(Compression::Above(0))
            .seal(&bound(), &text("all alike ".repeat(1_000)))
            .unwrap();
        let mut bytes = sealed.bytes.to_vec();
        bytes[1..5].copy_from_slice(&(UNPACKED_BYTES_MAX as u32 + 1).to_le_bytes());
        sealed.bytes = bytes.into();
        let opened = envelopes(Compression::Off).open(&bound(), &sealed);
        assert_eq!(opened, Err(SealProblem::Malformed("size")));
    }

    /// Written by this release, for later ones to read.
    #[test]
    fn what_this_release_seals_stays_as_it_is() {
        let outcome = text("done");
        let sealed = envelopes(Compression::Off).seal(&bound(), &outcome).unwrap();
        let hex: String = sealed.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
        assert_eq!(envelopes(Compression::Off).open(&bound(), &sealed).unwrap(), outcome);
    }

    const GOLDEN: &str = concat!(
        "002069696969696969696969696969696969696969696969696969696969696969694c03a661ae090b55",
        "790f53d4349eaa4def4f2c5278d7b932cc6d74d5b32f7f2f679c45f6894db789e831d30b0874b86b0ff2",
        "b9e29aa9c06fec9595d93f6034a593",
    );
}
