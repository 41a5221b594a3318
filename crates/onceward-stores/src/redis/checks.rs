//! Checks whether a server is safe for records.

use std::fmt;

use onceward_core::StoreError;
use redis::Value;

use super::connection::Connections;
use super::settings::Allow;

/// Oldest release whose scripts can be allowed to write when memory is full.
const OLDEST: (u32, u32) = (7, 0);

/// Why a server is not safe for records, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsafe {
    /// It evicts records that still count.
    #[error(
        "{node}its maxmemory-policy is `{policy}`, which removes records when memory is full. Run \
         `CONFIG SET maxmemory-policy noeviction` and `CONFIG REWRITE`, or accept it with \
         `allow=eviction`"
    )]
    Eviction {
        /// The node of a cluster, followed by a colon and a space; empty for a single server.
        node: String,
        /// The configured policy.
        policy: String,
    },
    /// A restart would lose records.
    #[error(
        "{node}it keeps no append-only file, so a restart forgets records. Run `CONFIG SET \
         appendonly yes` and `CONFIG REWRITE`, or accept it with `allow=no-persistence`"
    )]
    NoPersistence {
        /// The node of a cluster, followed by a colon and a space; empty for a single server.
        node: String,
    },
    /// Settlements would fail when memory is full.
    #[error(
        "{node}it is version {version}, and scripts need 7.0 or later (or Valkey) to settle what \
         runs when memory is full. Use a newer server"
    )]
    OldVersion {
        /// The node of a cluster, followed by a colon and a space; empty for a single server.
        node: String,
        /// The version that it reports.
        version: String,
    },
    /// It takes no writes.
    #[error("{node}it is a replica and takes no writes. Name the primary instead")]
    Replica {
        /// The node of a cluster, followed by a colon and a space; empty for a single server.
        node: String,
    },
}

/// Share of `maxmemory`, in percent, at which a server counts as nearly full: time to act before
/// claims are refused.
const NEARLY_FULL_PERCENT: u64 = 90;

/// The state of a server that takes writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerReport {
    /// The node of a cluster; empty for a single server.
    pub(super) node: String,
    pub(super) faults: Vec<Unsafe>,
    /// Keys that it has evicted since its start.
    pub(super) evicted_keys: u64,
    used_bytes: u64,
    /// Zero means no limit.
    max_bytes: u64,
}

/// The memory use of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Memory {
    node: String,
    used_bytes: u64,
    max_bytes: u64,
}

/// Inspects every server that takes writes.
pub(super) async fn look(connections: &Connections) -> Result<Vec<ServerReport>, StoreError> {
    let answers = connections.call_all(&redis::cmd("INFO")).await?;
    Ok(answers
        .into_iter()
        .map(|(node, info)| ServerReport::read(node, &Info::read(info)))
        .collect())
}

/// Returns the first fault that is not allowed. Warns of allowed ones.
pub(super) fn refused(reports: &[ServerReport], allow: Allow) -> Option<Unsafe> {
    let found = reports.iter().flat_map(|it| &it.faults).cloned();
    let (accepted, refused): (Vec<_>, Vec<_>) = found.partition(|it| it.is_allowed(allow));
    for fault in accepted {
        tracing::warn!(%fault, "a Redis server is used although it is not safe for records");
    }
    refused.into_iter().next()
}

impl ServerReport {
    fn read(node: String, info: &Info) -> Self {
        let number = |name| info.get(name).and_then(|it| it.parse().ok()).unwrap_or(0);
        Self {
            faults: faults(&node, info),
            evicted_keys: number("evicted_keys"),
            used_bytes: number("used_memory"),
            max_bytes: number("maxmemory"),
            node,
        }
    }

    /// The memory use, if the server has a limit.
    pub(super) fn memory(&self) -> Option<Memory> {
        let Self { node, used_bytes, max_bytes, .. } = self.clone();
        (max_bytes > 0).then_some(Memory { node, used_bytes, max_bytes })
    }
}

impl Memory {
    pub(super) fn is_full(&self) -> bool {
        self.used_bytes >= self.max_bytes
    }

    pub(super) fn is_nearly_full(&self) -> bool {
        u128::from(self.used_bytes) * 100
            >= u128::from(self.max_bytes) * u128::from(NEARLY_FULL_PERCENT)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.node.is_empty() {
            write!(f, "{}: ", self.node)?;
        }
        let (used, max) = (self.used_bytes >> 10, self.max_bytes >> 10);
        write!(
            f,
            "{used} of {max} KiB are used (maxmemory). New claims are refused when all are; give \
             the server more memory, or keep records for a shorter time"
        )
    }
}

impl Unsafe {
    fn is_allowed(&self, allow: Allow) -> bool {
        match self {
            Self::Eviction { .. } => allow.eviction,
            Self::NoPersistence { .. } => allow.no_persistence,
            // Without these, settlements would fail.
            Self::OldVersion { .. } | Self::Replica { .. } => false,
        }
    }
}

/// The reply of `INFO`, which hosted servers allow too, unlike `CONFIG`.
struct Info(String);

impl Info {
    fn read(value: Value) -> Self {
        Self(redis::from_redis_value(value).unwrap_or_default())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    }
}

fn faults(node: &str, info: &Info) -> Vec<Unsafe> {
    let node = if node.is_empty() { String::new() } else { format!("{node}: ") };
    let mut found = Vec::new();
    let version = info.get("redis_version").unwrap_or("unknown");
    if parsed(version).is_none_or(|it| it < OLDEST) {
        found.push(Unsafe::OldVersion { node: node.clone(), version: version.to_owned() });
    }
    if info.get("role") == Some("slave") {
        found.push(Unsafe::Replica { node: node.clone() });
    }
    let policy = info.get("maxmemory_policy").unwrap_or("unknown");
    if policy != "noeviction" {
        found.push(Unsafe::Eviction { node: node.clone(), policy: policy.to_owned() });
    }
    if info.get("aof_enabled") != Some("1") {
        found.push(Unsafe::NoPersistence { node });
    }
    found
}

fn parsed(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &str) -> Vec<Unsafe> {
        faults("", &Info(lines.to_owned()))
    }

    const FINE: &str =
        "redis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";

    #[test]
    fn a_safe_server_has_no_faults_and_each_fault_is_found() {
        assert_eq!(found(FINE), []);
        assert_eq!(found(&FINE.replace("7.0.15", "8.2.1")), []);
        let old = found(&FINE.replace("7.0.15", "6.2.14"));
        assert!(matches!(&old[..], [Unsafe::OldVersion { version, .. }] if version == "6.2.14"));
        let evicts = found(&FINE.replace("noeviction", "allkeys-lru"));
        assert!(
            matches!(&evicts[..], [Unsafe::Eviction { policy, .. }] if policy == "allkeys-lru")
        );
        let forgets = found(&FINE.replace("aof_enabled:1", "aof_enabled:0"));
        assert!(matches!(&forgets[..], [Unsafe::NoPersistence { .. }]));
        assert_eq!(found(&FINE.replace("master", "slave")).len(), 1);
        assert_eq!(found("").len(), 3, "what is not said is not assumed");
    }

    #[test]
    fn memory_is_warned_of_before_it_is_full() {
        let memory = |used: u64, max: u64| {
            let info = format!("used_memory:{used}\r\nmaxmemory:{max}\r\n");
            ServerReport::read(String::new(), &Info(info)).memory()
        };
        let is = |used| memory(used, 1_000).map(|it| (it.is_nearly_full(), it.is_full()));
        assert_eq!(memory(7, 0), None, "no limit");
        assert_eq!(is(899), Some((false, false)));
        assert_eq!(is(900), Some((true, false)));
        assert_eq!(is(1_000), Some((true, true)));
    }
}
