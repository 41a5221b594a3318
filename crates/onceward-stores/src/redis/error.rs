//! Why a store does not open, and what a failed call says.

use std::time::Duration;

use onceward_core::{Effect, StoreError, StoreErrorKind, Timestamp};
use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::checks::Unsafe;

/// Why a [`RedisStore`](super::RedisStore) does not open. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address is not one, or certificates cannot be read.
    #[error("the address or the certificates of a Redis store cannot be used: {0}")]
    Address(#[source] RedisError),
    /// A setting makes no sense.
    #[error("the setting `{setting}` of a Redis store {problem}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Nobody answers, or it does not let us in.
    #[error("the Redis server cannot be used: {0}")]
    Unavailable(#[source] StoreError),
    /// The server would lose records that count.
    #[error("the Redis server is not safe for records: {0}")]
    Unsafe(#[source] Unsafe),
    /// There is no mark of this store, and [`OnEmpty::Refuse`](super::OnEmpty::Refuse) is set.
    #[error(
        "the Redis server has no mark of this store (prefix `{prefix}`): it is new, or has lost \
         its data. If it is new, open it once with `empty=begin`"
    )]
    Empty {
        /// The prefix of the store's keys.
        prefix: String,
    },
}

/// The server lost records; until then no claims are granted. The source of a [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server has lost records, so it cannot be told what is new: no claims are granted for {left:?}, \
     or until an operator runs `onceward store accept-loss` (`RedisStore::accept_loss`)"
)]
pub struct Quarantined {
    /// Until when, on the server's clock.
    pub until: Timestamp,
    /// How long that still is.
    pub left: Duration,
}

/// Fewer replicas than asked for have it. The source of a [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{acknowledged} of {wanted} replicas acknowledged it in time")]
pub struct Unreplicated {
    /// How many have it.
    pub acknowledged: u32,
    /// How many should.
    pub wanted: u32,
}

/// Whether the server can have seen a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// It never left, or all that left was answered.
    Settled,
    /// It left, and no answer came.
    Unanswered,
}

pub(super) fn store_error(kind: StoreErrorKind, effect: Effect) -> StoreError {
    StoreError::new("redis", kind, effect)
}

/// What an error of the driver means. What the server refused was not applied, unless it was
/// sent more than once and one of the others was never answered.
pub(super) fn failed(error: RedisError, sent: Sent) -> StoreError {
    let (kind, refused) = meaning(&error);
    let effect = match (sent, refused) {
        (Sent::Settled, Refused::Surely) => Effect::NotApplied,
        (Sent::Unanswered, _) | (Sent::Settled, Refused::Perhaps) => Effect::MayHaveBeenApplied,
    };
    store_error(kind, effect).caused_by(error)
}

/// No answer in time.
pub(super) fn silent(sent: Sent) -> StoreError {
    let effect = match sent {
        Sent::Settled => Effect::NotApplied,
        Sent::Unanswered => Effect::MayHaveBeenApplied,
    };
    store_error(StoreErrorKind::Timeout, effect)
}

/// A record that is there and cannot be read.
pub(super) fn undecodable(why: &'static str) -> StoreError {
    store_error(StoreErrorKind::Undecodable, Effect::NotApplied).caused_by(why)
}

/// The answer of a script is none that it gives.
pub(super) fn unexpected(answer: &'static str) -> StoreError {
    store_error(StoreErrorKind::Unavailable, Effect::MayHaveBeenApplied).caused_by(answer)
}

/// Whether the server said no before it changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    Surely,
    Perhaps,
}

fn meaning(error: &RedisError) -> (StoreErrorKind, Refused) {
    match error.code() {
        Some("OOM") => (StoreErrorKind::Full, Refused::Surely),
        // Scripts read what they are going to write before they write.
        Some("UNDECODABLE" | "WRONGTYPE") => (StoreErrorKind::Undecodable, Refused::Surely),
        Some(code) if REFUSALS.contains(&code) => (StoreErrorKind::Unavailable, Refused::Surely),
        // A script that failed in the middle, or an answer that cannot be read.
        Some(_) => (StoreErrorKind::Unavailable, Refused::Perhaps),
        None => match error.kind() {
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
                (StoreErrorKind::Unavailable, Refused::Perhaps)
            }
            // Where it failed is what `Sent` says.
            _ if error.is_timeout() => (StoreErrorKind::Timeout, Refused::Surely),
            _ => (StoreErrorKind::Unavailable, Refused::Surely),
        },
    }
}

/// What a server says instead of running anything.
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
    fn what_nobody_knows_may_have_been_applied() {
        let script = "ERR user_script:7: attempt to compare nil with number";
        assert!(failed(said(script), Sent::Settled).may_have_been_applied());
        let lost = || RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(failed(lost(), Sent::Unanswered).may_have_been_applied());
        assert!(!failed(lost(), Sent::Settled).may_have_been_applied());
    }
}
