//! The user that servers run as.

use std::fs;

/// A unix user. PostgreSQL and PgBouncer refuse to run as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Users without rights that root can run servers as, the best one first.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];

impl Owner {
    /// The present user.
    pub(crate) fn current() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }

    /// Another user to run servers as, which only root needs.
    pub(crate) fn other_than_root() -> Option<Self> {
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let is_root = rustix::process::geteuid().is_root();
        is_root.then(|| UNPRIVILEGED.iter().find_map(|name| named(&users, name)))?
    }
}

fn named(users: &str, name: &str) -> Option<Owner> {
    let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let user = fields.find(|fields| fields.first() == Some(&name))?;
    Some(Owner { uid: user.get(2)?.parse().ok()?, gid: user.get(3)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users = "root:x:0:0::/root:/bin/sh\npostgres2:x:7:8:::\npostgres:x:101:104:,,:/v:/b\n";
        assert_eq!(named(users, "postgres"), Some(Owner { uid: 101, gid: 104 }));
        assert_eq!(named(users, "nobody"), None);
    }
}
