//! Memory and disk that records need in each store, by measured overheads (docs/benchmarks.md).

use serde::Serialize;

use super::PlannedStore;
use crate::cli::output::count;

/// The records to store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) records: u64,
    pub(super) tombstones: u64,
    pub(super) reply_bytes: u64,
}

/// An amount of memory or disk, and its formula.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Need {
    pub(super) store: PlannedStore,
    pub(super) what: &'static str,
    pub(super) bytes: u64,
    pub(super) formula: String,
}

/// Overhead of an encoded record: 1,194 bytes with a reply of 1,024.
const EMBEDDED_OVERHEAD: u64 = 170;
/// Highest ratio of file size to encoded records, while records come and expire.
const EMBEDDED_FILE_RATIO: f64 = 1.49;
/// Log segments, and dead values too few to compact.
const EMBEDDED_FIXED: u64 = 512 << 20;
/// Measured with ten million records.
const EMBEDDED_MEMORY: u64 = 400 << 20;
/// Overhead of a record in Redis, without its index entry. With a reply of up to 64 bytes Redis
/// encodes the hash as a list (776 bytes with 32), otherwise as a table (1,481 bytes with 1,024).
const REDIS_OVERHEAD: [u64; 2] = [744, 457];
const REDIS_LIST_BYTES_MAX: u64 = 64;
/// Index entry of a record.
const REDIS_INDEX: u64 = 128;
/// A record without a reply.
const REDIS_TOMBSTONE: u64 = 584;
/// Overhead of a row: indexes, room for updates, and rows that vacuum has not removed yet. 1,925
/// bytes with a reply of 1,024.
const POSTGRES_OVERHEAD: u64 = 901;
/// Rows are removed in batches, up to a sixteenth of their retention late.
const POSTGRES_LATE: f64 = 17.0 / 16.0;

pub(super) fn of(store: PlannedStore, load: &Load) -> Vec<Need> {
    let need = |what, bytes, formula| Need { store, what, bytes, formula };
    let Load { records, tombstones, reply_bytes } = *load;
    let (shown, reply) = (count(records), count(reply_bytes));
    match store {
        PlannedStore::Embedded => {
            let encoded =
                records * (reply_bytes + EMBEDDED_OVERHEAD) + tombstones * EMBEDDED_OVERHEAD;
            let bytes = times(encoded, EMBEDDED_FILE_RATIO) + EMBEDDED_FIXED;
            let tombstones = tombstone_term(tombstones, EMBEDDED_OVERHEAD);
            let sum = format!("{shown} x ({reply} + {EMBEDDED_OVERHEAD}) B{tombstones}");
            let formula = format!("({sum}) x {EMBEDDED_FILE_RATIO} + 512 MiB");
            let memory = "measured with 10,000,000 records".to_owned();
            vec![need("disk", bytes, formula), need("memory", EMBEDDED_MEMORY, memory)]
        }
        PlannedStore::Redis => {
            let overhead = REDIS_OVERHEAD[usize::from(reply_bytes > REDIS_LIST_BYTES_MAX)];
            let tombstone = REDIS_TOMBSTONE + REDIS_INDEX;
            let bytes = records * (reply_bytes + overhead + REDIS_INDEX) + tombstones * tombstone;
            let tombstones = tombstone_term(tombstones, tombstone);
            let formula = format!("{shown} x ({reply} + {overhead} + {REDIS_INDEX}) B{tombstones}");
            vec![need("memory", bytes, formula)]
        }
        PlannedStore::Postgres => {
            let rows = records * (reply_bytes + POSTGRES_OVERHEAD) + tombstones * POSTGRES_OVERHEAD;
            let tombstones = tombstone_term(tombstones, POSTGRES_OVERHEAD);
            let formula =
                format!("({shown} x ({reply} + {POSTGRES_OVERHEAD}) B{tombstones}) x 17/16");
            vec![need("disk", times(rows, POSTGRES_LATE), formula)]
        }
    }
}

fn tombstone_term(tombstones: u64, bytes: u64) -> String {
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

    /// The formulas reproduce the measurements.
    #[test]
    fn measured_records_take_what_was_measured() {
        let one = |reply_bytes| Load { records: 1, tombstones: 0, reply_bytes };
        let first = |store, load| of(store, &load)[0].bytes;
        assert_eq!(first(PlannedStore::Redis, one(1024)), 1_481 + REDIS_INDEX);
        assert_eq!(first(PlannedStore::Redis, one(32)), 776 + REDIS_INDEX);
        assert_eq!(first(PlannedStore::Postgres, one(1024)), times(1_925, POSTGRES_LATE));
        assert_eq!(first(PlannedStore::Embedded, one(1024)), times(1_194, 1.49) + EMBEDDED_FIXED);
    }

    /// A thousand replies of 1 KiB per second for a day: 88 GB of replies alone.
    #[test]
    fn the_textbook_example_is_more_than_its_payload() {
        let load = Load { records: 86_400_000, tombstones: 0, reply_bytes: 1_024 };
        assert!(of(PlannedStore::Redis, &load)[0].bytes > 88_000_000_000);
    }
}
