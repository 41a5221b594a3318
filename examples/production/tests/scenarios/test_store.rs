//! A store for each test, by the variables that name it.

#[cfg(any(feature = "postgres", feature = "redis"))]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use example_production::Settings;
#[cfg(any(feature = "postgres", feature = "redis"))]
use onceward_services::Server;
use tempfile::TempDir;

/// An empty store. Its directory, if it has one, is removed at the end.
pub(crate) struct TestStore {
    variables: Vec<(&'static str, String)>,
    _directory: Option<TempDir>,
}

impl TestStore {
    fn at(url: String) -> Self {
        Self { variables: vec![("ONCEWARD_STORE", url)], _directory: None }
    }

    /// The variables that make an instance use this store.
    pub(crate) fn variables(&self) -> Vec<(&'static str, &str)> {
        self.variables.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    /// The settings of an instance that uses this store.
    pub(crate) fn settings(&self) -> Settings {
        let owned = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone());
        Settings::read(self.variables.iter().map(owned)).unwrap()
    }
}

/// A store in this process.
pub(crate) fn memory() -> Option<TestStore> {
    Some(TestStore::at("memory".to_owned()))
}

/// A store in a directory of its own.
#[cfg(feature = "embedded")]
pub(crate) fn embedded() -> Option<TestStore> {
    let directory = tempfile::tempdir().unwrap();
    let mut store = TestStore::at(format!("file:{}/store", directory.path().display()));
    store._directory = Some(directory);
    Some(store)
}

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
    // Few connections, as all tests share the server.
    let options = format!("schema={}&connections=2", fresh_name());
    Some(TestStore::at(format!("{}?{options}", server.url())))
}

/// A name that no other test of this process has.
fn fresh_name() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
