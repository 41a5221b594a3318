//! Stores for the suite, and moving their clocks.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use onceward_core::{FullStore, MemoryLimits, MemoryStore};
use onceward_server::config::Config;
use onceward_server::gateway::Gateway;
use onceward_services::{MovedDatabase, Postgres, Server, age, or_skip};
use onceward_stores::Connect;
use onceward_stores::embedded::{EmbeddedStore, Environment, Settings};
use onceward_stores::sealed::{Keys, SealedStore};
use onceward_testkit::clock::ManualClock;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Memory,
    Embedded,
    Sealed,
    Redis,
    Postgres,
    SealedPostgres,
    Tiered,
}

/// A Redis in front of PostgreSQL.
type Cache = Option<&'static Server>;

/// One store.
#[derive(Clone)]
pub(crate) enum TestStore {
    Memory(ManualClock),
    Embedded { clock: ManualClock, directory: PathBuf, sealed: bool },
    Redis { server: &'static Server, prefix: String },
    Postgres { database: MovedDatabase<'static>, clock: String, cache: Cache, sealed: bool },
}

impl TestStore {
    /// Creates a store; `None` if its server is missing.
    pub(crate) fn of(kind: Kind, directory: &Path) -> Option<Self> {
        let embedded = |sealed| Self::Embedded {
            clock: ManualClock::new(),
            directory: directory.to_owned(),
            sealed,
        };
        let postgres = |sealed, cache| {
            let (database, clock) = (moved_database()?, fresh_name());
            database.begin(&clock).unwrap();
            Some(Self::Postgres { database, clock, cache, sealed })
        };
        match kind {
            Kind::Memory => Some(Self::Memory(ManualClock::new())),
            Kind::Embedded => Some(embedded(false)),
            Kind::Sealed => Some(embedded(true)),
            Kind::Redis => Some(Self::Redis { server: redis()?, prefix: fresh_name() }),
            Kind::Postgres => postgres(false, None),
            Kind::SealedPostgres => postgres(true, None),
            Kind::Tiered => postgres(false, Some(redis()?)),
        }
    }

    pub(crate) async fn open(&self) -> Arc<dyn FullStore> {
        match self {
            Self::Memory(clock) => {
                Arc::new(MemoryStore::with(MemoryLimits::default(), Arc::new(clock.clone())))
            }
            Self::Embedded { clock, directory, sealed } => {
                let clock = Arc::new(clock.clone());
                let environment = Environment { clock, ..Environment::default() };
                let store =
                    EmbeddedStore::open_in(directory, Settings::default(), environment).unwrap();
                if *sealed {
                    Arc::new(SealedStore::new(Arc::new(store), keys()))
                } else {
                    Arc::new(store)
                }
            }
            Self::Redis { server, prefix } => {
                let url = format!("{}?prefix={prefix}", server.url());
                Connect::new(url).open().await.unwrap()
            }
            Self::Postgres { database, clock, cache, sealed } => {
                let url = MovedDatabase::url(database.server().port(), clock);
                // Few connections, because many stores share one server.
                let connect = Connect::new(format!("{url}&schema={clock}&connections=2"));
                // No trust in the cache, because the clock jumps.
                let before = |it: &Server| format!("{}?prefix={clock}&trust=0s", it.url());
                let connect = match cache {
                    Some(cache) => connect.cache(before(cache)),
                    None => connect,
                };
                let connect = if *sealed { connect.sealed(keys()) } else { connect };
                connect.open().await.unwrap()
            }
        }
    }

    /// Starts a second gateway on the store, if several processes can share it.
    pub(crate) async fn peer(&self, config: &Config) -> Option<Gateway> {
        match self {
            Self::Memory(_) | Self::Embedded { .. } => None,
            Self::Redis { .. } | Self::Postgres { .. } => {
                let mut config = config.clone();
                config.listeners[0].address.set_port(0);
                Some(Gateway::start_on(self.open().await, config).await.unwrap())
            }
        }
    }

    pub(crate) fn pass(&self, time: Duration) -> BoxFuture<'static, ()> {
        let store = self.clone();
        let passing = tokio::task::spawn_blocking(move || match store {
            Self::Memory(clock) | Self::Embedded { clock, .. } => clock.advance(time),
            Self::Redis { server, prefix } => age(&[server], &prefix, time).unwrap(),
            Self::Postgres { database, clock, .. } => database.pass(&clock, time).unwrap(),
        });
        Box::pin(async move { passing.await.expect("time passes") })
    }
}

fn keys() -> Keys {
    Keys::parse("k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").unwrap()
}

/// A name that is unique within this process.
fn fresh_name() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("suite_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn redis() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(onceward_services::redis).as_ref()
}

/// A database without fsync, whose cost is not tested here.
fn moved_database() -> Option<MovedDatabase<'static>> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    static DATABASE: OnceLock<Option<MovedDatabase<'static>>> = OnceLock::new();
    let server = || SERVER.get_or_init(|| or_skip(Postgres::default().fsync(false).start()));
    *DATABASE.get_or_init(|| server().as_ref().map(|it| MovedDatabase::create(it).unwrap()))
}
