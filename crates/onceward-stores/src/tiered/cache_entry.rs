//! Entries of the cache: a record, its generation, and a MAC that proves who wrote it.
//!
//! ```text
//! format u8 | generation i64 | HMAC-SHA-256 over format, generation, id and record | record
//! ```

use hmac::{Hmac, KeyInit, Mac};
use onceward_core::{Record, RecordId, Scope};
use sha2::Sha256;

use crate::codec::{self, Boot, CurrentBoot};
use crate::postgres::CacheGeneration;

const FORMAT: u8 = 1;
const HEAD_BYTES: usize = 9;
const PROOF_BYTES: usize = 32;

/// Boots do not matter here: PostgreSQL's clock judges a lease.
const BOOT: Boot = Boot(0);

/// Encodes a record for Redis.
pub(super) fn write(record: &Record, generation: &CacheGeneration) -> Vec<u8> {
    let mut entry = Vec::with_capacity(256);
    entry.push(FORMAT);
    entry.extend(generation.number.to_le_bytes());
    entry.extend([0; PROOF_BYTES]);
    codec::encode(record, BOOT, &mut entry);
    let (head, body) = entry.split_at(HEAD_BYTES + PROOF_BYTES);
    let proof = proof(generation, &record.id, &head[..HEAD_BYTES], body).finalize().into_bytes();
    entry[HEAD_BYTES..][..PROOF_BYTES].copy_from_slice(&proof);
    entry
}

/// Decodes an entry that a process wrote in this generation. `None` for anything else: an entry
/// that is damaged, forged, of another record or of an earlier generation counts as absent.
pub(super) fn read(id: &RecordId, entry: &[u8], generation: &CacheGeneration) -> Option<Record> {
    let (head, rest) = entry.split_at_checked(HEAD_BYTES)?;
    let (told, body) = rest.split_at_checked(PROOF_BYTES)?;
    if head[0] != FORMAT || head[1..] != generation.number.to_le_bytes() {
        return None;
    }
    proof(generation, id, head, body).verify_slice(told).ok()?;
    let since = generation.now;
    Some(codec::decode(id, body, CurrentBoot { boot: BOOT, since }).ok()?.record)
}

/// Scope of cached records. Only operators need the real one, and they read PostgreSQL.
pub(super) fn placeholder_scope() -> Scope {
    #[expect(clippy::expect_used, reason = "these are valid parts")]
    Scope::new("-", "-", "-").expect("a scope")
}

fn proof(generation: &CacheGeneration, id: &RecordId, head: &[u8], body: &[u8]) -> Hmac<Sha256> {
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(&generation.secret).expect("a key");
    mac.update(head);
    mac.update(id.as_bytes());
    mac.update(body);
    mac
}

#[cfg(test)]
mod tests {
    use onceward_core::{
        Fence, Fingerprint, Outcome, OwnerToken, Retained, Sketch, State, Tag, Timestamp,
    };

    use super::*;

    fn generation(number: i64) -> CacheGeneration {
        CacheGeneration { number, secret: [9; 32], now: Timestamp::from_millis(1_000) }
    }

    fn record(id: u8) -> Record {
        let time = Timestamp::from_millis(5_000);
        Record {
            id: RecordId::from_bytes([id; 32]),
            operation: uuid::Uuid::from_u128(1).into(),
            scope: Scope::new("t", "c", "o").unwrap(),
            key: None,
            fingerprint: Fingerprint::of_parts(&[b"x"]),
            sketch: Sketch::default(),
            path: None,
            state: State::Completed {
                outcome: Outcome::whole(Tag::from_static("text/v1"), &b"paid"[..]),
                retained: Retained { until: time, tombstone_until: time },
            },
            owner: OwnerToken::from_bytes([1; 16]),
            fence: Fence(7),
            attempts: 1,
            taken_over: false,
            created_at: time,
            updated_at: time,
        }
    }

    #[test]
    fn an_entry_comes_back_as_the_record_that_it_was() {
        let (record, generation) = (record(1), generation(3));
        let entry = write(&record, &generation);
        assert_eq!(read(&record.id, &entry, &generation), Some(record));
    }

    #[test]
    fn what_is_not_ours_of_this_record_and_of_this_generation_is_absent() {
        let (record, generation) = (record(1), generation(3));
        let entry = write(&record, &generation);
        let other = RecordId::from_bytes([2; 32]);
        assert_eq!(read(&other, &entry, &generation), None);
        assert_eq!(read(&record.id, &entry, &self::generation(4)), None);
        let strange = CacheGeneration { secret: [8; 32], ..generation.clone() };
        assert_eq!(read(&record.id, &entry, &strange), None);
        for position in 0..entry.len() {
            let mut changed = entry.clone();
            changed[position] ^= 1;
            assert_eq!(read(&record.id, &changed, &generation), None, "byte {position}");
            assert_eq!(read(&record.id, &entry[..position], &generation), None);
        }
    }
}
