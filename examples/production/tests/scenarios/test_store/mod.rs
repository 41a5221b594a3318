//! A store for each test, by the variables that name it.

#[cfg(any(feature = "postgres", feature = "redis"))]
mod on_server;

use example_production::Settings;
use tempfile::TempDir;

#[cfg(feature = "postgres")]
pub(crate) use on_server::postgres;
#[cfg(feature = "redis")]
pub(crate) use on_server::redis;

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
    #[cfg(any(feature = "embedded", feature = "postgres", feature = "redis"))]
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
    let url = format!("file:{}/store", directory.path().display());
    Some(TestStore { _directory: Some(directory), ..TestStore::at(url) })
}
