//! How an operation is protected: every limit with its reason, checked once.

use std::time::Duration;

use crate::record::Retention;
use crate::store::Lapsed;

/// How an operation is protected. Exists only valid; see [`PolicyBuilder`] for the settings.
///
/// ```
/// use std::time::Duration;
/// use onceward_core::{OnLapse, Policy};
///
/// let policy = Policy::builder()
///     .lease(Duration::from_secs(60))
///     .retention(Duration::from_secs(7 * 24 * 3600))
///     .on_lapse(OnLapse::Resolve)
///     .build()?;
/// assert_eq!(policy.renew_every(), Duration::from_secs(20));
/// # Ok::<(), onceward_core::InvalidPolicy>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Policy(PolicyBuilder);

/// Rule for an intent whose owner's lease has lapsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum OnLapse {
    /// The outcome is unknown until there is evidence.
    Unknown,
    /// Like `Unknown`, and the engine's [`Resolver`](crate::Resolver) is asked at once.
    Resolve,
    /// Run again under a higher fence. **Only** for effects that check the fence or are
    /// idempotent themselves: the old owner may still be running.
    Takeover,
}

/// Whether a completed outcome is checked against the source of truth before it is replayed: for
/// operations where an outcome that no longer stands must not be shown, such as a debit whose row was
/// deleted in a correction of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum ReplayCheck {
    /// The stored outcome is enough.
    Never,
    /// The engine's [`Resolver`](crate::Resolver) is asked, and must say that the operation
    /// happened. If it says that it did not, the retry is
    /// [refused](crate::Rejection::Contradicted); if it does not know, fails or is missing, the retry
    /// is told to [come back](crate::BeginError::Unconfirmed). The operation never runs again for it.
    /// Kept failures are not checked: they are replayed as they are.
    Resolver,
}

/// Rule for a key whose outcome is past its retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// The key is new again.
    Forget,
    /// The key is answered as expired for this further time.
    Tombstone(Duration),
}

/// Treatment of a result that the handler did not classify itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// It is the outcome: keep it and replay it.
    Keep,
    /// Nothing happened: free the key.
    Release,
    /// It cannot be proved what happened.
    Unknown,
}

/// The settings of a [`Policy`], with careful defaults.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct PolicyBuilder {
    lease: Duration,
    renew_every: Option<Duration>,
    drift: Option<Duration>,
    retention: Duration,
    expiry: Expiry,
    wait: Duration,
    poll_every: Duration,
    retry_after: Duration,
    on_lapse: OnLapse,
    replay_check: ReplayCheck,
    failures: Disposition,
    call_timeout: Duration,
    claim_patience: Duration,
    settle_wait: Duration,
    settle_patience: Duration,
    keep_key: bool,
    reference_retention: Option<Duration>,
}

impl Default for PolicyBuilder {
    fn default() -> Self {
        Self {
            // Renewed at a third while the handler runs, so this does not limit the handler: it
            // is how long a crash stays unnoticed.
            lease: Duration::from_secs(30),
            renew_every: None,
            drift: None,
            // At least what Stripe promises, so clients assume it.
            retention: Duration::from_secs(24 * 3600),
            expiry: Expiry::Forget,
            wait: Duration::ZERO,
            poll_every: Duration::from_millis(100),
            retry_after: Duration::from_secs(1),
            on_lapse: OnLapse::Unknown,
            replay_check: ReplayCheck::Never,
            failures: Disposition::Keep,
            // Drivers hung for five times their own timeout while they reconnected, so the
            // engine has its own.
            call_timeout: Duration::from_secs(2),
            claim_patience: Duration::from_secs(5),
            settle_wait: Duration::from_secs(5),
            settle_patience: Duration::from_secs(600),
            keep_key: false,
            reference_retention: None,
        }
    }
}

/// Shortest lease: below it, renewals would be most of the traffic.
const LEASE_MIN: Duration = Duration::from_millis(10);
/// Longest lease: a crash would stay unnoticed for a day.
const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest retention and tombstone: ten years, the longest audit period we know of.
const RETENTION_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);
/// Default retention of business references: while books are open and statements are disputed.
const REFERENCE_RETENTION: Duration = Duration::from_secs(366 * 24 * 3600);
/// Longest wait for a running owner: proxies and browsers give up after that.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Longest time that a duplicate is told to wait: no client waits for longer than a day.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest patience with a store.
const PATIENCE_MAX: Duration = Duration::from_secs(24 * 3600);

impl PolicyBuilder {
    /// How long a grant lasts until it is renewed (10 ms to 24 h; 30 s).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How often a lease is renewed (a third of the lease).
    pub fn renew_every(mut self, interval: Duration) -> Self {
        self.renew_every = Some(interval);
        self
    }

    /// How much earlier than the store the owner counts its lease as over, for clocks that
    /// run at different speeds (a hundredth of the lease).
    pub fn drift(mut self, drift: Duration) -> Self {
        self.drift = Some(drift);
        self
    }

    /// How long an outcome is replayed (up to ten years; 24 h). At least as long as any
    /// client retries.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// The rule for a key after its retention (it is forgotten).
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.expiry = expiry;
        self
    }

    /// How long a duplicate waits for the running owner before it is rejected (no wait).
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How often a waiting duplicate polls where no notification wakes it (100 ms).
    pub fn poll_every(mut self, interval: Duration) -> Self {
        self.poll_every = interval;
        self
    }

    /// How long a rejected duplicate is told to wait (1 ms to 24 h; 1 s).
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = delay;
        self
    }

    /// The rule for a lapsed lease (the outcome is unknown).
    pub fn on_lapse(mut self, on_lapse: OnLapse) -> Self {
        self.on_lapse = on_lapse;
        self
    }

    /// Whether completed outcomes are checked before they are replayed (they are not).
    pub fn replay_check(mut self, check: ReplayCheck) -> Self {
        self.replay_check = check;
        self
    }

    /// The treatment of errors that the handler did not classify (they are kept and replayed).
    /// A panic is always unknown.
    pub fn failures(mut self, disposition: Disposition) -> Self {
        self.failures = disposition;
        self
    }

    /// How long one store call may take (2 s).
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// How long a claim is tried before the caller is told that the store is unavailable
    /// (5 s).
    pub fn claim_patience(mut self, patience: Duration) -> Self {
        self.claim_patience = patience;
        self
    }

    /// How long the caller waits until its settlement is stored before it is retried in the
    /// background (5 s).
    pub fn settle_wait(mut self, wait: Duration) -> Self {
        self.settle_wait = wait;
        self
    }

    /// How long a settlement is retried before the record is left unknown (10 min).
    pub fn settle_patience(mut self, patience: Duration) -> Self {
        self.settle_patience = patience;
        self
    }

    /// Stores the client's key as plain text, for operators (no).
    pub fn keep_key(mut self, keep: bool) -> Self {
        self.keep_key = keep;
        self
    }

    /// How long an outcome is known by its business reference (a year, or the retention where
    /// that is longer). At least as long as the retention.
    pub fn reference_retention(mut self, retention: Duration) -> Self {
        self.reference_retention = Some(retention);
        self
    }

    /// Checks the settings against each other.
    pub fn build(self) -> Result<Policy, InvalidPolicy> {
        let policy = Policy(self);
        let Policy(it) = &policy;
        within("lease", it.lease, LEASE_MIN, LEASE_MAX)?;
        within("retention", it.retention, Duration::from_millis(1), RETENTION_MAX)?;
        within("wait", it.wait, Duration::ZERO, WAIT_MAX)?;
        within("poll_every", it.poll_every, Duration::from_millis(1), WAIT_MAX)?;
        within("retry_after", it.retry_after, Duration::from_millis(1), RETRY_AFTER_MAX)?;
        within("call_timeout", it.call_timeout, Duration::from_millis(1), PATIENCE_MAX)?;
        within("claim_patience", it.claim_patience, Duration::ZERO, PATIENCE_MAX)?;
        within("settle_wait", it.settle_wait, Duration::ZERO, PATIENCE_MAX)?;
        within("settle_patience", it.settle_patience, it.settle_wait, PATIENCE_MAX)?;
        let reference = policy.reference_retention();
        within("reference_retention", reference, it.retention, RETENTION_MAX)?;
        if let Expiry::Tombstone(tombstone) = it.expiry {
            within("tombstone", tombstone, Duration::from_millis(1), RETENTION_MAX)?;
        }
        if it.lease > it.retention {
            let (lease, retention) = (it.lease, it.retention);
            return Err(InvalidPolicy::LeaseLongerThanRetention { lease, retention });
        }
        let (lease, renew_every, drift) = (it.lease, policy.renew_every(), policy.drift());
        within("renew_every", renew_every, Duration::from_millis(1), lease / 2)?;
        within("drift", drift, Duration::ZERO, lease / 4)?;
        Ok(policy)
    }
}

fn within(
    setting: &'static str,
    value: Duration,
    min: Duration,
    max: Duration,
) -> Result<(), InvalidPolicy> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(InvalidPolicy::OutOfRange { setting, value, min, max })
    }
}

impl Policy {
    /// Starts from the careful defaults.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder::default()
    }

    /// Starts from this policy.
    pub fn to_builder(&self) -> PolicyBuilder {
        self.0.clone()
    }

    /// How long a grant lasts until it is renewed.
    pub fn lease(&self) -> Duration {
        self.0.lease
    }

    /// How often a lease is renewed.
    pub fn renew_every(&self) -> Duration {
        self.0.renew_every.unwrap_or(self.0.lease / 3)
    }

    /// By how much the owner's own deadline lies before the lease's end.
    pub fn drift(&self) -> Duration {
        self.0.drift.unwrap_or(self.0.lease / 100)
    }

    /// How long outcomes and tombstones are kept.
    pub fn retention(&self) -> Retention {
        let tombstone = match self.0.expiry {
            Expiry::Forget => Duration::ZERO,
            Expiry::Tombstone(tombstone) => tombstone,
        };
        Retention { keep: self.0.retention, tombstone }
    }

    /// How long a duplicate waits for the running owner.
    pub fn wait(&self) -> Duration {
        self.0.wait
    }

    /// How often a waiting duplicate polls.
    pub fn poll_every(&self) -> Duration {
        self.0.poll_every
    }

    /// How long a rejected duplicate is told to wait.
    pub fn retry_after(&self) -> Duration {
        self.0.retry_after
    }

    /// The rule for a lapsed lease.
    pub fn on_lapse(&self) -> OnLapse {
        self.0.on_lapse
    }

    /// Whether completed outcomes are checked before they are replayed.
    pub fn replay_check(&self) -> ReplayCheck {
        self.0.replay_check
    }

    /// The treatment of unclassified errors.
    pub fn failures(&self) -> Disposition {
        self.0.failures
    }

    /// How long one store call may take.
    pub fn call_timeout(&self) -> Duration {
        self.0.call_timeout
    }

    /// How long a claim is tried.
    pub fn claim_patience(&self) -> Duration {
        self.0.claim_patience
    }

    /// How long the caller waits for its settlement.
    pub fn settle_wait(&self) -> Duration {
        self.0.settle_wait
    }

    /// How long a settlement is retried.
    pub fn settle_patience(&self) -> Duration {
        self.0.settle_patience
    }

    /// True if the client's key is stored as plain text.
    pub fn keep_key(&self) -> bool {
        self.0.keep_key
    }

    /// How long an outcome is known by its business reference.
    pub fn reference_retention(&self) -> Duration {
        self.0.reference_retention.unwrap_or(self.0.retention.max(REFERENCE_RETENTION))
    }

    pub(crate) fn lapsed(&self) -> Lapsed {
        match self.0.on_lapse {
            OnLapse::Takeover => Lapsed::Takeover,
            OnLapse::Unknown | OnLapse::Resolve => Lapsed::Unknown,
        }
    }
}

/// Why settings do not make a [`Policy`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPolicy {
    /// A duration is out of range.
    #[error("{setting} is {value:?}; it must be between {min:?} and {max:?}")]
    OutOfRange {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: Duration,
        /// The smallest allowed.
        min: Duration,
        /// The largest allowed.
        max: Duration,
    },
    /// A running claim would outlive its record.
    #[error(
        "the lease of {lease:?} is longer than the retention of {retention:?}; \
         shorten the lease or keep outcomes longer"
    )]
    LeaseLongerThanRetention {
        /// The lease.
        lease: Duration,
        /// The retention.
        retention: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(builder: PolicyBuilder) -> String {
        builder.build().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Policy::builder().build().unwrap(), Policy::default());
    }

    #[test]
    fn absurd_durations_are_refused_by_name_and_value() {
        let message = refused(Policy::builder().lease(Duration::ZERO));
        assert_eq!(message, "lease is 0ns; it must be between 10ms and 86400s");
        let message = refused(Policy::builder().lease(Duration::MAX));
        assert!(message.starts_with("lease is 18446744073709551615.999999999s"), "{message}");
        assert!(refused(Policy::builder().retention(Duration::MAX)).contains("retention"));
        assert!(refused(Policy::builder().wait(Duration::MAX)).contains("wait"));
        let message = refused(Policy::builder().retry_after(Duration::ZERO));
        assert_eq!(message, "retry_after is 0ns; it must be between 1ms and 86400s");
        let builder = Policy::builder().expiry(Expiry::Tombstone(Duration::ZERO));
        assert!(refused(builder).contains("tombstone is 0ns"));
        let builder = Policy::builder().renew_every(Duration::from_secs(16));
        assert!(refused(builder).contains("renew_every is 16s"));
    }

    #[test]
    fn a_lease_longer_than_the_retention_is_refused() {
        let builder =
            Policy::builder().lease(Duration::from_secs(60)).retention(Duration::from_secs(30));
        let message = refused(builder);
        assert!(message.contains("lease of 60s") && message.contains("retention of 30s"));
    }
}
