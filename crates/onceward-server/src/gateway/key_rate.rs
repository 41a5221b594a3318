//! The rate of requests with one key.
//!
//! A fixed number of keys is remembered, so a flood of keys takes no memory. To make room, the key is
//! forgotten that may be sent again soonest; its next request counts as its first.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use onceward_core::{Key, Scope};
use parking_lot::Mutex;

/// Number of sets. A key belongs to one of them.
const SETS: usize = 8192;

/// Keys in a set: 65,536 in all, in 1.1 MB.
const WAYS: usize = 8;

/// Limits the requests with each key: an average rate, and a burst.
pub(super) struct KeyRate {
    /// Nanoseconds between two requests at the average rate.
    interval: u64,
    /// Nanoseconds that the requests of a burst take at the average rate.
    burst: u64,
    began: Instant,
    /// With random keys, so that two keys with one hash cannot be constructed.
    hasher: RandomState,
    sets: Box<[Mutex<[KeyUsage; WAYS]>]>,
}

/// The requests with one key (the generic cell rate algorithm).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct KeyUsage {
    hash: u64,
    /// Time at which all requests so far have passed at the average rate, in nanoseconds since
    /// [`KeyRate::began`].
    passed_at: u64,
}

/// A key was sent too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyTooOften {
    /// Time until it may be sent again.
    pub(super) wait: Duration,
}

impl KeyRate {
    /// A rate with a burst of at least one request.
    pub(super) fn new(per_second: NonZeroU32, burst: u32) -> Self {
        let interval = 1_000_000_000 / u64::from(per_second.get());
        Self {
            interval,
            burst: interval * u64::from(burst.max(1)),
            began: Instant::now(),
            hasher: RandomState::new(),
            sets: (0..SETS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Counts a request with a key, or refuses it. Refused requests do not count.
    pub(super) fn admit(&self, scope: &Scope, key: &Key, now: Instant) -> Result<(), KeyTooOften> {
        let hash = self.hasher.hash_one((scope.as_bytes(), key.expose()));
        let now = nanoseconds(now.saturating_duration_since(self.began));
        let mut set = self.sets[hash as usize % SETS].lock();
        let usage = usage_of(&mut set, hash);
        let passed_at = usage.passed_at.max(now) + self.interval;
        match passed_at.checked_sub(now + self.burst) {
            None | Some(0) => {
                *usage = KeyUsage { hash, passed_at };
                Ok(())
            }
            Some(wait) => Err(KeyTooOften { wait: Duration::from_nanos(wait) }),
        }
    }
}

/// Returns the usage of a key. One that is not remembered takes the place of the least used.
fn usage_of(set: &mut [KeyUsage; WAYS], hash: u64) -> &mut KeyUsage {
    let known = set.iter().position(|usage| usage.hash == hash);
    let least = || (0..WAYS).min_by_key(|way| set[*way].passed_at).unwrap_or_default();
    let usage = &mut set[known.unwrap_or_else(least)];
    if usage.hash != hash {
        *usage = KeyUsage { hash, passed_at: 0 };
    }
    usage
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: u32, burst: u32) -> KeyRate {
        KeyRate::new(NonZeroU32::new(per_second).unwrap(), burst)
    }

    fn scope(caller: &str) -> Scope {
        Scope::new("tenant", caller, "operation").unwrap()
    }

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn a_key_passes_at_its_rate_and_after_a_rest_with_its_burst() {
        let (rate, scope, key) = (rate(10, 3), scope("c"), key("k"));
        let ask = |after: u64| rate.admit(&scope, &key, rate.began + Duration::from_millis(after));
        let wait = |millis| Err(KeyTooOften { wait: Duration::from_millis(millis) });
        assert_eq!([ask(0), ask(0), ask(0), ask(0)], [Ok(()), Ok(()), Ok(()), wait(100)]);
        assert_eq!([ask(60), ask(99)], [wait(40), wait(1)], "what is refused does not count");
        assert_eq!([ask(100), ask(100), ask(200)], [Ok(()), wait(100), Ok(())]);
        assert_eq!(
            [ask(9000), ask(9000), ask(9000), ask(9000)],
            [Ok(()), Ok(()), Ok(()), wait(100)]
        );
    }

    #[test]
    fn keys_and_callers_do_not_slow_each_other() {
        let rate = rate(1, 1);
        let ask = |caller, name: &str| rate.admit(&scope(caller), &key(name), rate.began).is_ok();
        assert_eq!([ask("a", "k"), ask("a", "k")], [true, false]);
        assert_eq!([ask("b", "k"), ask("a", "l")], [true, true]);
    }

    #[test]
    fn a_burst_of_none_is_one() {
        assert_eq!(rate(5, 0).admit(&scope("c"), &key("k"), Instant::now()), Ok(()));
    }

    /// Three times the keys that are remembered, and a hammered one: its rate is kept, and each new key passes.
    #[test]
    fn a_flood_of_keys_takes_no_memory_and_frees_no_hammered_key() {
        let (rate, scope, hammered) = (rate(1, 5), scope("c"), key("hammered"));
        let now = rate.began;
        let passed = (0..5).filter(|_| rate.admit(&scope, &hammered, now).is_ok()).count();
        assert_eq!(passed, 5);
        for number in 0..3 * SETS * WAYS {
            assert_eq!(rate.admit(&scope, &key(&number.to_string()), now), Ok(()), "key {number}");
            if number % 10_000 == 0 {
                assert!(rate.admit(&scope, &hammered, now).is_err(), "after {number} keys");
            }
        }
        assert_eq!(size_of_val(&*rate.sets), SETS * size_of::<Mutex<[KeyUsage; WAYS]>>());
    }

    #[test]
    fn the_least_used_key_is_forgotten() {
        let used = |hash: u64| KeyUsage { hash, passed_at: 100 + hash };
        let mut set: [KeyUsage; WAYS] = std::array::from_fn(|way| used(way as u64 + 1));
        assert_eq!(*usage_of(&mut set, 3), used(3));
        *usage_of(&mut set, 99) = KeyUsage { hash: 99, passed_at: 500 };
        assert!(!set.contains(&used(1)) && (2..=8).all(|hash| set.contains(&used(hash))));
    }
}
