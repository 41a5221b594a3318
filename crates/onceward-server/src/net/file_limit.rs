//! How many files, and so connections, the system lets this process have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Beside connections: the store's files, listeners, logs.
const OTHERS: u64 = 256;

/// Raises the soft limit, which is often 1024, as far as so many connections of clients need
/// it: each can have one to the upstream.
pub(crate) fn raise_file_limit(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = (connections as u64).saturating_mul(2).saturating_add(OTHERS);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit });
    if raised.is_err() || current < wanted {
        tracing::warn!(
            allowed = current,
            "limits.connections needs up to {wanted} open files, and the system allows fewer"
        );
    }
}
