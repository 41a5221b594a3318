//! What records take in each store, by what was measured (docs/benchmarks.md).

use serde::Serialize;

use super::PlannedStore;
use crate::cli::output::count;

/// What is to be kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) records: u64,
    pub(super) tombstones: u64,
    pub(super) reply_bytes: u64,
}

/// How much of something a store needs, and how that was reckoned.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Need {
    pub(super) store: PlannedStore,
    pub(super) what: &'static str,
    pub(super) bytes: u64,
    pub(super) formula: String,
}

/// Bytes of a record in a file beside its reply: 1,194 encoded with a reply of 1,024.
const EMBEDDED_BESIDE: u64 = 170;
/// What a file takes of what is encoded, at most, while records come and expire.
const EMBEDDED_TIMES: f64 = 1.49;
/// Log segments, and dead values that are not worth a rewriting.
const EMBEDDED_FIXED: u64 = 512 << 20;
/// Beside ten million records.
const EMBEDDED_MEMORY: u64 = 400 << 20;
/// Bytes of a record in Redis beside its reply, and its share of the index. Up to 64 bytes
/// of reply the hash is a list (776 bytes with 32), above a table (1,481 bytes with 1,024).
const REDIS_BESIDE: [u64; 2] = [744, 457];
const REDIS_LIST_BYTES_MAX: u64 = 64;
const REDIS_INDEX: u64 = 128;
/// A record without a reply.
const REDIS_TOMBSTONE: u64 = 584;
/// Bytes of a row beside its reply, with indexes, room for updates, and what vacuum has not
/// cleared yet: 1,925 with a reply of 1,024.
const POSTGRES_BESIDE: u64 = 901;
/// Rows are removed up to a sixteenth of their retention late, so that many go together.
const POSTGRES_LATE: f64 = 17.0 / 16.0;

pub(super) fn of(store: PlannedStore, load: &Load) -> Vec<Need> {
    let need = |what, bytes, formula| Need { store, what, bytes, formula };
    let Load { records, tombstones, reply_bytes } = *load;
    let (shown, reply) = (count(records), count(reply_bytes));
    match store {
        PlannedStore::Embedded => {
            let encoded = records * (reply_bytes + EMBEDDED_BESIDE) + tombstones * EMBEDDED_BESIDE;
            let bytes = times(encoded, EMBEDDED_TIMES) + EMBEDDED_FIXED;
            let buried = buried(tombstones, EMBEDDED_BESIDE);
            let sum = format!("{shown} x ({reply} + {EMBEDDED_BESIDE}) B{buried}");
            let formula = format!("({sum}) x {EMBEDDED_TIMES} + 512 MiB");
            let memory = "measured beside 10,000,000 records".to_owned();
            vec![need("disk", bytes, formula), need("memory", EMBEDDED_MEMORY, memory)]
        }
        PlannedStore::Redis => {
            let beside = REDIS_BESIDE[usize::from(reply_bytes > REDIS_LIST_BYTES_MAX)];
            let tombstone = REDIS_TOMBSTONE + REDIS_INDEX;
            let bytes = records * (reply_bytes + beside + REDIS_INDEX) + tombstones * tombstone;
            let buried = buried(tombstones, tombstone);
            let formula = format!("{shown} x ({reply} + {beside} + {REDIS_INDEX}) B{buried}");
            vec![need("memory", bytes, formula)]
        }
        PlannedStore::Postgres => {
            let rows = records * (reply_bytes + POSTGRES_BESIDE) + tombstones * POSTGRES_BESIDE;
            let buried = buried(tombstones, POSTGRES_BESIDE);
            let formula = format!("({shown} x ({reply} + {POSTGRES_BESIDE}) B{buried}) x 17/16");
            vec![need("disk", times(rows, POSTGRES_LATE), formula)]
        }
    }
}

fn buried(tombstones: u64, bytes: u64) -> String {
    match tombstones {
        0 => String::new(),
        some => format!(" + {} x {bytes} B", count(some)),
    }
}

fn times(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was measured comes out again.
    #[test]
    fn measured_records_take_what_was_measured() {
        let one = |reply_bytes| Load { records: 1, tombstones: 0, reply_bytes };
        let first = |store, load| of(store, &load)[0].bytes;
        assert_eq!(first(PlannedStore::Redis, one(1024)), 1_481 + REDIS_INDEX);
        assert_eq!(first(PlannedStore::Redis, one(32)), 776 + REDIS_INDEX);
        assert_eq!(first(PlannedStore::Postgres, one(1024)), times(1_925, POSTGRES_LATE));
        assert_eq!(first(PlannedStore::Embedded, one(1024)), times(1_194, 1.49) + EMBEDDED_FIXED);
    }

    /// A thousand a second for a day, of a kilobyte: 88 GB of replies before anything else.
    #[test]
    fn the_textbook_example_is_more_than_its_payload() {
        let load = Load { records: 86_400_000, tombstones: 0, reply_bytes: 1_024 };
        assert!(of(PlannedStore::Redis, &load)[0].bytes > 88_000_000_000);
    }
}
