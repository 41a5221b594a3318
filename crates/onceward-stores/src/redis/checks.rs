//! What a server has to be like before records are trusted to it.

use onceward_core::StoreError;
use redis::Value;

use super::link::Link;
use super::settings::Allow;

/// The oldest release whose scripts can say that they fit when memory is full.
const OLDEST: (u32, u32) = (7, 0);

/// Why a server is not safe for records, with what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsafe {
    /// Records could vanish while they count.
    #[error(
        "{node}its maxmemory-policy is `{policy}`, which removes records when memory is full. Run \
         `CONFIG SET maxmemory-policy noeviction` and `CONFIG REWRITE`, or accept it with \
         `allow=eviction`"
    )]
    Eviction {
        /// Which node of a cluster, and a blank.
        node: String,
        /// What is set.
        policy: String,
    },
    /// A restart would forget.
    #[error(
        "{node}it keeps no append-only file, so a restart forgets records. Run `CONFIG SET \
         appendonly yes` and `CONFIG REWRITE`, or accept it with `allow=no-persistence`"
    )]
    NoPersistence {
        /// Which node of a cluster, and a blank.
        node: String,
    },
    /// Settlements would not fit when memory is full.
    #[error(
        "{node}it is version {version}, and scripts need 7.0 or later (or Valkey) to settle what \
         runs when memory is full. Use a newer server"
    )]
    OldVersion {
        /// Which node of a cluster, and a blank.
        node: String,
        /// What it says it is.
        version: String,
    },
    /// It takes no writes.
    #[error("{node}it is a replica and takes no writes. Name the primary instead")]
    Replica {
        /// Which node of a cluster, and a blank.
        node: String,
    },
}

/// Looks at every server that takes writes. What is allowed although it is not safe is warned
/// about.
pub(super) async fn look(link: &Link, allow: Allow) -> Result<Option<Unsafe>, StoreError> {
    let answers = link.call_all(&redis::cmd("INFO")).await?;
    let found = answers.into_iter().flat_map(|(node, info)| faults(&node, &Info::read(info)));
    let (accepted, refused): (Vec<_>, Vec<_>) = found.partition(|it| it.is_allowed(allow));
    for fault in accepted {
        tracing::warn!(%fault, "a Redis server that is not safe for records is used all the same");
    }
    Ok(refused.into_iter().next())
}

impl Unsafe {
    fn is_allowed(&self, allow: Allow) -> bool {
        match self {
            Self::Eviction { .. } => allow.eviction,
            Self::NoPersistence { .. } => allow.no_persistence,
            // Without them there are no settlements at all.
            Self::OldVersion { .. } | Self::Replica { .. } => false,
        }
    }
}

/// What `INFO` says: unlike `CONFIG`, hosted servers allow it too.
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
}
