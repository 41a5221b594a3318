//! Settings of an embedded store.

/// Sizes and limits. The defaults are for a server with other things to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Cache for blocks of the tree; a third of a typical small working set.
    pub cache_bytes: u64,
    /// New records in memory before they are written into the tree's files. Up to four times as
    /// much is in memory when the disk is slow.
    pub memtable_bytes: u64,
    /// Size of a log segment. Segments are filled once, so that a sync never allocates, and reused.
    pub segment_bytes: u64,
    /// Free space on the disk below which new claims are refused, so that running ones can still be
    /// settled.
    pub reserve_bytes: u64,
    /// Most calls in one batch, which share one sync.
    pub batch_calls_max: usize,
    /// Size at which a batch is closed, so that one sync does not take too long.
    pub batch_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            memtable_bytes: 32 << 20,
            segment_bytes: 32 << 20,
            reserve_bytes: 128 << 20,
            batch_calls_max: 1_024,
            batch_bytes_max: 4 << 20,
        }
    }
}

/// Smallest segment: a header and some frames.
pub(super) const SEGMENT_BYTES_MIN: u64 = 64 << 10;

impl Settings {
    /// Smallest sizes, for tests and for devices where megabytes count.
    pub fn small() -> Self {
        Self {
            cache_bytes: 1 << 20,
            memtable_bytes: 1 << 20,
            segment_bytes: 256 << 10,
            reserve_bytes: 4 << 20,
            ..Self::default()
        }
    }

    /// The settings with every value large enough to work at all.
    pub(super) fn sane(mut self) -> Self {
        self.cache_bytes = self.cache_bytes.max(256 << 10);
        self.memtable_bytes = self.memtable_bytes.max(16 << 10);
        self.segment_bytes = self.segment_bytes.max(SEGMENT_BYTES_MIN);
        self.batch_calls_max = self.batch_calls_max.max(1);
        self.batch_bytes_max = self.batch_bytes_max.max(1);
        self
    }
}
