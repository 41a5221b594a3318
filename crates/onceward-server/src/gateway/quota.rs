//! Quotas of one caller and of all callers together: new keys a second, live keys, stored bytes; and
//! of one key: requests a second.
//! Usage is counted in this process, from its start on; the limits of the store are exact.

use std::collections::HashMap;
use std::future::Future;
use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::time::{Duration, Instant};

use onceward_core::{Identity, Intent, Key, Scope};
use onceward_http::{Admission, OverQuota};
use onceward_stores::SharedStore;
use parking_lot::Mutex;

use super::key_rate::{KeyRate, KeyTooOften};
use crate::config::{QuotaLimits, Quotas};

const SHARDS: usize = 16;

/// A shard with more callers than this removes those without usage.
const CALLERS_MAX: usize = 10_000;

/// A part of all callers.
struct Shard {
    usages: HashMap<Box<str>, Usage>,
    /// Number of callers at which the next clean-up runs. Twice the number that the last one left,
    /// so that not every new caller causes a clean-up.
    clean_at: usize,
}

/// Number of parts of the retention time: usage expires one part at a time.
const PARTS: usize = 24;

/// The quotas of all callers.
pub(crate) struct Quota {
    caller: QuotaLimits,
    total: QuotaLimits,
    retention: Duration,
    store: SharedStore,
    identity: Identity,
    total_usage: Mutex<Usage>,
    /// `None` without a limit.
    key_rate: Option<KeyRate>,
    shards: [Mutex<Shard>; SHARDS],
    hasher: std::hash::RandomState,
}

/// The usage of one caller, or of all.
#[derive(Debug, Clone)]
struct Usage {
    /// New keys that are allowed now (a token bucket).
    tokens: f64,
    /// Time at which `tokens` was computed.
    updated: Instant,
    /// Keys and bytes by the part of time in which they were added, the newest at `part`.
    live: [(u64, u64); PARTS],
    part: u64,
    /// Start of `part`.
    part_since: Instant,
}

/// An exceeded quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Exceeded {
    cap: Cap,
    /// Time until a new key may be allowed again.
    wait: Duration,
}

/// A limit of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cap {
    /// New keys a second.
    Rate,
    /// Keys within their retention.
    Keys,
    /// Bytes of their stored responses.
    Bytes,
}

impl Cap {
    const fn setting(self) -> &'static str {
        match self {
            Self::Rate => "new_keys_per_second",
            Self::Keys => "live_keys",
            Self::Bytes => "live_bytes",
        }
    }
}

/// An exceeded quota, and the section that sets it.
struct QuotaHit {
    section: &'static str,
    exceeded: Exceeded,
}

impl Quota {
    pub(crate) fn new(
        quotas: &Quotas,
        retention: Duration,
        store: SharedStore,
        identity: Identity,
    ) -> Self {
        let empty = |_| Mutex::new(Shard { usages: HashMap::new(), clean_at: CALLERS_MAX });
        let (shards, hasher) = (std::array::from_fn(empty), Default::default());
        let (caller, total) = (quotas.caller(), quotas.total);
        let total_usage = Mutex::new(Usage::new(Instant::now(), &total));
        let per_second = NonZeroU32::new(quotas.key_requests_per_second);
        let key_rate = per_second.map(|rate| KeyRate::new(rate, quotas.key_burst()));
        Self { caller, total, retention, store, identity, total_usage, key_rate, shards, hasher }
    }

    /// Runs `act` on the current usage of all callers, if it is limited.
    fn with_total<T>(&self, act: impl FnOnce(&mut Usage) -> T) -> Option<T> {
        (self.total != QuotaLimits::NONE).then(|| {
            let mut usage = self.total_usage.lock();
            usage.refresh(Instant::now(), &self.total, self.retention);
            act(&mut usage)
        })
    }

    /// Runs `act` on the current usage of one caller, if it is limited.
    fn with_caller<T>(&self, scope: &Scope, act: impl FnOnce(&mut Usage) -> T) -> Option<T> {
        (self.caller != QuotaLimits::NONE).then(|| self.with_usage(scope, act))
    }

    fn exceeded(&self, scope: &Scope) -> Option<QuotaHit> {
        let caller = self.with_caller(scope, |usage| usage.exceeded(&self.caller, self.retention));
        if let Some(exceeded) = caller.flatten() {
            return Some(QuotaHit { section: "quotas", exceeded });
        }
        let total = self.with_total(|usage| usage.exceeded(&self.total, self.retention)).flatten();
        total.map(|exceeded| QuotaHit { section: "quotas.total", exceeded })
    }

    fn with_usage<T>(&self, scope: &Scope, act: impl FnOnce(&mut Usage) -> T) -> T {
        let name = format!("{}\u{1f}{}", scope.tenant(), scope.caller());
        let shard = self.hasher.hash_one(&name) as usize % SHARDS;
        let mut shard = self.shards[shard].lock();
        let Shard { usages, clean_at } = &mut *shard;
        let now = Instant::now();
        if usages.len() >= *clean_at && !usages.contains_key(name.as_str()) {
            usages.retain(|_, usage| {
                usage.refresh(now, &self.caller, self.retention);
                !usage.is_unused(&self.caller)
            });
            *clean_at = CALLERS_MAX.max(2 * usages.len());
        }
        let usage = usages.entry(name.into()).or_insert_with(|| Usage::new(now, &self.caller));
        usage.refresh(now, &self.caller, self.retention);
        act(usage)
    }

    async fn is_known(&self, intent: &Intent) -> bool {
        let id = self.identity.record_id(&intent.scope, &intent.key);
        matches!(self.store.get(&id).await, Ok(Some(_)))
    }
}

impl Admission for Quota {
    fn admit_request(&self, scope: &Scope, key: &Key) -> Result<(), OverQuota> {
        let Some(rate) = &self.key_rate else { return Ok(()) };
        let limit = "quotas.key_requests_per_second".into();
        rate.admit(scope, key, Instant::now())
            .map_err(|KeyTooOften { wait }| OverQuota { retry_after: wait, limit })
    }

    fn admit_new_key<'a>(
        &'a self,
        intent: &'a Intent,
    ) -> Pin<Box<dyn Future<Output = Result<(), OverQuota>> + Send + 'a>> {
        Box::pin(async move {
            match self.exceeded(&intent.scope) {
                None => Ok(()),
                // A retry needs no new key and gets its response.
                Some(_) if self.is_known(intent).await => Ok(()),
                Some(QuotaHit { section, exceeded }) => {
                    let limit = format!("{section}.{}", exceeded.cap.setting()).into();
                    Err(OverQuota { retry_after: exceeded.wait, limit })
                }
            }
        })
    }

    fn granted(&self, scope: &Scope) {
        self.with_caller(scope, Usage::add_key);
        self.with_total(Usage::add_key);
    }

    fn stored(&self, scope: &Scope, bytes: usize) {
        let add = |usage: &mut Usage| usage.newest().1 += bytes as u64;
        self.with_caller(scope, add);
        self.with_total(add);
    }
}

impl Usage {
    fn new(now: Instant, caps: &QuotaLimits) -> Self {
        let tokens = f64::from(caps.burst());
        Self { tokens, updated: now, live: [(0, 0); PARTS], part: 0, part_since: now }
    }

    /// Refills tokens and expires usage up to `now`.
    fn refresh(&mut self, now: Instant, caps: &QuotaLimits, retention: Duration) {
        let passed = now.saturating_duration_since(self.updated).as_secs_f64();
        let rate = f64::from(caps.new_keys_per_second);
        self.tokens = (self.tokens + passed * rate).min(f64::from(caps.burst()));
        self.updated = now;
        let part = retention / PARTS as u32;
        for _ in 0..PARTS {
            if now.saturating_duration_since(self.part_since) < part {
                return;
            }
            self.part_since += part;
            self.part += 1;
            *self.newest() = (0, 0);
        }
        self.part_since = now; // all parts have expired
    }

    fn add_key(&mut self) {
        self.tokens -= 1.0;
        self.newest().0 += 1;
    }

    fn newest(&mut self) -> &mut (u64, u64) {
        &mut self.live[(self.part % PARTS as u64) as usize]
    }

    fn exceeded(&self, caps: &QuotaLimits, retention: Duration) -> Option<Exceeded> {
        if caps.new_keys_per_second > 0 && self.tokens < 1.0 {
            let missing = (1.0 - self.tokens) / f64::from(caps.new_keys_per_second);
            return Some(Exceeded { cap: Cap::Rate, wait: Duration::from_secs_f64(missing) });
        }
        let (keys, bytes) = self.live.iter().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        let cap = if caps.live_keys > 0 && keys >= caps.live_keys {
            Cap::Keys
        } else if caps.live_bytes.0 > 0 && bytes >= caps.live_bytes.0 {
            Cap::Bytes
        } else {
            return None;
        };
        Some(Exceeded { cap, wait: retention / PARTS as u32 })
    }

    fn is_unused(&self, caps: &QuotaLimits) -> bool {
        self.tokens >= f64::from(caps.burst()) && self.live.iter().all(|it| *it == (0, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Bytes;

    const HOUR: Duration = Duration::from_secs(3600);

    fn caps() -> QuotaLimits {
        QuotaLimits {
            new_keys_per_second: 10,
            new_keys_burst: 3,
            live_keys: 100,
            live_bytes: Bytes(1000),
        }
    }

    #[test]
    fn new_keys_come_back_with_time() {
        let (start, caps) = (Instant::now(), caps());
        let mut usage = Usage::new(start, &caps);
        usage.tokens -= 3.0;
        let wait = Duration::from_millis(100);
        assert_eq!(usage.exceeded(&caps, HOUR), Some(Exceeded { cap: Cap::Rate, wait }));
        usage.refresh(start + wait, &caps, HOUR);
        assert_eq!(usage.exceeded(&caps, HOUR), None);
        usage.refresh(start + HOUR, &caps, HOUR);
        assert_eq!(usage.tokens, 3.0);
    }

    #[test]
    fn what_is_kept_counts_until_its_retention_ends() {
        let (start, caps) = (Instant::now(), caps());
        for (full, expected) in [((100, 0), Cap::Keys), ((0, 1000), Cap::Bytes)] {
            let mut usage = Usage::new(start, &caps);
            *usage.newest() = full;
            usage.refresh(start + HOUR * 9 / 10, &caps, HOUR);
            assert_eq!(usage.exceeded(&caps, HOUR).map(|exceeded| exceeded.cap), Some(expected));
            usage.refresh(start + HOUR, &caps, HOUR);
            assert_eq!(usage.exceeded(&caps, HOUR), None, "{full:?}");
            assert!(usage.is_unused(&caps));
        }
    }

    #[test]
    fn nothing_is_a_limit_of_none() {
        let none = QuotaLimits::NONE;
        let mut usage = Usage::new(Instant::now(), &none);
        usage.tokens -= 1000.0;
        *usage.newest() = (1 << 40, 1 << 40);
        assert_eq!(usage.exceeded(&none, HOUR), None);
    }
}
