//! Limit of open files, which also limits connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files besides connections: the store's, listeners, logs.
const OTHER_FILES: u64 = 256;

/// Raises the soft limit, often 1024, to what this many client connections need. Each may have
/// a second connection, to the upstream.
pub(crate) fn raise_file_limit(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = (connections as u64).saturating_mul(2).saturating_add(OTHER_FILES);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit });
    if raised.is_err() || current < wanted {
        tracing::warn!(
            allowed = current,
            "limits.connections = {connections} needs up to {wanted} open files and the system \
             allows fewer: raise the limit (ulimit -n, LimitNOFILE), or lower limits.connections"
        );
    }
}
