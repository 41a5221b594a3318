//! Stores on a server that all tests of this process share. It ends with the process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use onceward_services::Server;

use super::TestStore;

/// A store with a key prefix of its own, or `None` where Redis is missing.
#[cfg(feature = "redis")]
pub(crate) fn redis() -> Option<TestStore> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    let server = SERVER.get_or_init(onceward_services::redis).as_ref()?;
    let mut store = TestStore::at(server.url().to_owned());
    store.variables.push(("ONCEWARD_KEY_PREFIX", format!("{}:", fresh_name())));
    Some(store)
}

/// A store with a schema of its own, or `None` where PostgreSQL is missing.
#[cfg(feature = "postgres")]
pub(crate) fn postgres() -> Option<TestStore> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    let server = SERVER.get_or_init(onceward_services::postgres).as_ref()?;
    // Few connections for each store, as many stores share the server.
    let options = format!("schema={}&connections=2", fresh_name());
    Some(TestStore::at(format!("{}?{options}", server.url())))
}

/// A name that no other test of this process has.
fn fresh_name() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
