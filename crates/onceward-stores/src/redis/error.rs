//! Why a store does not open, and what a failed call says about its effect.

use std::time::Duration;

use onceward_core::{Effect, StoreError, StoreErrorKind, Timestamp};
use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::checks::Unsafe;

/// Why a [`RedisStore`](super::RedisStore) does not open. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address is not valid, or certificates cannot be read.
    #[error("the address or the certificates of a Redis store cannot be used: {0}")]
    Address(#[source] RedisError),
    /// A setting has an invalid value.
    #[error("the setting `{setting}` of a Redis store {problem}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// The problem.
        problem: &'static str,
    },
    /// The server does not answer, or refuses the login.
    #[error("the Redis server cannot be used: {0}")]
    Unavailable(#[source] StoreError),
    /// The server would lose records.
    #[error("the Redis server is not safe for records: {0}")]
    Unsafe(#[source] Unsafe),
    /// The server has no markers of this store, and [`OnEmpty::Refuse`](super::OnEmpty::Refuse) is
    /// set.
    #[error(
        "the Redis server has no data of this store (prefix `{prefix}`): it is new, or has lost \
         its data. If it is new, open it once with `empty=begin`"
    )]
    Empty {
        /// The prefix of the store's keys.
        prefix: String,
    },
}

/// The server has lost records, so no claims are granted for some time. The source of a
/// [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server has lost records, so new keys cannot be told from lost ones: no claims are granted for {left:?}, \
     or until an operator runs `onceward store accept-loss` (`RedisStore::accept_loss`)"
)]
pub struct Quarantined {
    /// End of the quarantine, on the server's clock.
    pub until: Timestamp,
    /// Time until then.
    pub left: Duration,
}

/// Too few replicas have a write. The source of a [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{acknowledged} of {wanted} replicas acknowledged it in time")]
pub struct Unreplicated {
    /// Replicas that have it.
    pub acknowledged: u32,
    /// Replicas that should have it.
    pub wanted: u32,
}

/// Whether the server may have seen a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// It was not sent, or everything that was sent was answered.
    Settled,
    /// It was sent, and not answered.
    Unanswered,
}

pub(super) fn store_error(kind: StoreErrorKind, effect: Effect) -> StoreError {
    StoreError::new("redis", kind, effect)
}

/// Classifies an error of the driver. What the server refused was not applied, unless the call was
/// sent more than once and another attempt was never answered.
pub(super) fn failed(error: RedisError, sent: Sent) -> StoreError {
    let (kind, refused) = meaning(&error);
    let effect = match (sent, refused) {
        (Sent::Settled, Refused::Surely) => Effect::NotApplied,
        (Sent::Unanswered, _) | (Sent::Settled, Refused::Perhaps) => Effect::MayHaveBeenApplied,
    };
    store_error(kind, effect).caused_by(error)
}

/// The error of a call without a reply in time.
pub(super) fn silent(sent: Sent) -> StoreError {
    let effect = match sent {
        Sent::Settled => Effect::NotApplied,
        Sent::Unanswered => Effect::MayHaveBeenApplied,
    };
    store_error(StoreErrorKind::Timeout, effect)
}

/// The error of a record that cannot be read.
pub(super) fn undecodable(why: &'static str) -> StoreError {
    store_error(StoreErrorKind::Undecodable, Effect::NotApplied).caused_by(why)
}

/// The error of a script's reply that is not one of the expected.
pub(super) fn unexpected(answer: &'static str) -> StoreError {
    store_error(StoreErrorKind::Unavailable, Effect::MayHaveBeenApplied).caused_by(answer)
}

/// Whether the server refused a call before it changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    Surely,
    Perhaps,
}

fn meaning(error: &RedisError) -> (StoreErrorKind, Refused) {
    match error.code() {
        Some("OOM") => (StoreErrorKind::Full, Refused::Surely),
        // Scripts read before they write.
        Some("UNDECODABLE" | "WRONGTYPE") => (StoreErrorKind::Undecodable, Refused::Surely),
        Some(code) if REFUSALS.contains(&code) => (StoreErrorKind::Unavailable, Refused::Surely),
        // A script failed halfway, or its reply cannot be read.
        Some(_) => (StoreErrorKind::Unavailable, Refused::Perhaps),
        None => match error.kind() {
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
                (StoreErrorKind::Unavailable, Refused::Perhaps)
            }
            // `Sent` says whether it was sent.
            _ if error.is_timeout() => (StoreErrorKind::Timeout, Refused::Surely),
            _ => (StoreErrorKind::Unavailable, Refused::Surely),
        },
    }
}

/// Error codes by which a server refuses to run anything.
const REFUSALS: [&str; 17] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "DENIED",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "NOSCRIPT",
    "READONLY",
    "TRYAGAIN",
    "UNBLOCKED",
    "WRONGPASS",
];

pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    #[test]
    fn what_the_server_refuses_was_not_applied() {
        let full = "OOM command not allowed when used memory > 'maxmemory'.";
        for (text, kind) in [
            (full, StoreErrorKind::Full),
            ("LOADING Redis is loading the dataset in memory", StoreErrorKind::Unavailable),
            ("READONLY You can't write against a read only replica.", StoreErrorKind::Unavailable),
            ("CLUSTERDOWN The cluster is down", StoreErrorKind::Unavailable),
            ("NOREPLICAS Not enough good replicas to write.", StoreErrorKind::Unavailable),
            ("WRONGTYPE Operation against a key", StoreErrorKind::Undecodable),
            ("UNDECODABLE state", StoreErrorKind::Undecodable),
        ] {
            let error = failed(said(text), Sent::Settled);
            assert_eq!((error.kind, error.effect), (kind, Effect::NotApplied), "{text}");
            let again = failed(said(text), Sent::Unanswered);
            assert_eq!(again.effect, Effect::MayHaveBeenApplied, "{text}, sent twice");
        }
    }

    #[test]
    fn a_call_without_a_reply_may_have_been_applied() {
        let script = "ERR user_script:7: attempt to compare nil with number";
        assert!(failed(said(script), Sent::Settled).may_have_been_applied());
        let lost = || RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(failed(lost(), Sent::Unanswered).may_have_been_applied());
        assert!(!failed(lost(), Sent::Settled).may_have_been_applied());
    }
}
