//! Names of keys and channels.
//!
//! Records are spread over [`BUCKETS`] buckets by the first bits of their ids. A bucket is a hash
//! tag: its records, its loss marker and its index share a slot of a cluster, so that one script
//! can use all of them. Ids are hashes, so a busy tenant's records are in all buckets. The order of
//! ids is the order of buckets, so listings go through the buckets one by one.

use onceward_core::RecordId;

use super::codec::unhex;

/// Number of buckets: enough to spread over tens of nodes, and few enough to visit all of them in
/// milliseconds. It must be the same for all processes: never change it.
pub(super) const BUCKETS: u16 = 1024;

/// A range of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bucket(pub(super) u16);

impl Bucket {
    pub(super) fn of(id: &RecordId) -> Self {
        let [first, second, ..] = *id.as_bytes();
        Self(u16::from_be_bytes([first, second]) >> 6)
    }

    pub(super) fn all() -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        (0..BUCKETS).map(Self)
    }
}

#[derive(Debug)]
pub(super) struct KeyNames {
    prefix: String,
}

impl KeyNames {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(super) fn record(&self, id: &RecordId) -> String {
        format!("{}:{{{:03x}}}:{id}", self.prefix, Bucket::of(id).0)
    }

    /// Key of the bucket's loss marker; see `mark.lua`.
    pub(super) fn mark(&self, bucket: Bucket) -> String {
        format!("{}:{{{:03x}}}:mark", self.prefix, bucket.0)
    }

    /// Key of the bucket's index: all its ids by state, then by due time.
    pub(super) fn index(&self, bucket: Bucket) -> String {
        format!("{}:{{{:03x}}}:index", self.prefix, bucket.0)
    }

    /// Channel on which the settlement of a record is published.
    pub(super) fn channel(&self, id: &RecordId) -> String {
        format!("{}:settled:{id}", self.prefix)
    }

    /// The record of a channel.
    pub(super) fn of_channel(channel: &str) -> Option<RecordId> {
        let (_, id) = channel.rsplit_once(':')?;
        unhex(id.as_bytes()).map(RecordId::from_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_the_order_of_ids_and_tag_the_keys() {
        let id = |first, second| {
            let mut bytes = [7; 32];
            [bytes[0], bytes[1]] = [first, second];
            RecordId::from_bytes(bytes)
        };
        assert_eq!(Bucket::of(&id(0, 63)), Bucket(0));
        assert_eq!(Bucket::of(&id(0, 64)), Bucket(1));
        assert_eq!(Bucket::of(&id(255, 255)), Bucket(BUCKETS - 1));
        let names = KeyNames::new("ow");
        assert!(names.record(&id(1, 64)).starts_with("ow:{005}:0140"));
        assert_eq!(names.mark(Bucket(5)), "ow:{005}:mark");
        assert_eq!(KeyNames::of_channel(&names.channel(&id(1, 64))), Some(id(1, 64)));
        assert_eq!(KeyNames::of_channel("ow:settled:else"), None);
    }
}
