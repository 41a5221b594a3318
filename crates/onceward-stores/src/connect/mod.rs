//! Opening stores by their URL.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the table of schemes, options of the public API |
//! | `url_parts` | path and options of a URL |
//! | `memory`, `file`, `redis`, `postgres`, `tiered` | settings and opening, one file for each kind of store |
//! | `error` | what is wrong with a URL |

mod error;
#[cfg(feature = "embedded")]
mod file;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "tiered")]
mod tiered;
mod url_parts;

use std::fmt;
#[cfg(feature = "embedded")]
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use onceward_core::FullStore;

#[cfg(feature = "sealed")]
use crate::sealed::{SealedStore, Sealing};
pub use error::ConnectError;
use url_parts::UrlParts;

/// A store, shared by engines, operators and background tasks.
pub type SharedStore = Arc<dyn FullStore>;

/// Opens the store that a URL names.
///
/// | URL | store | options |
/// |---|---|---|
/// | `memory:` | [`MemoryStore`](onceward_core::MemoryStore): gone with the process | `records_max`, `bytes_max` |
/// | `redis://localhost` | `RedisStore` on a server; `rediss:` with TLS, `redis-cluster://node-1,node-2` and `rediss-cluster:` on a cluster (feature `redis`) | `prefix`, `timeout`, `connections`, `margin`, `wait_replicas`, `wait_timeout`, `quarantine`, `empty`, `allow`, `ca`, `cert`, `key` |
/// | `file:./data` | `EmbeddedStore` in a directory (feature `embedded`) | `cache_bytes`, `memtable_bytes`, `segment_bytes`, `reserve_bytes`, `batch_calls_max`, `batch_bytes_max` |
/// | `postgres://user:password@host/database` | `PostgresStore` (feature `postgres`) | `schema`, `migrate`, `connections`, `transactions_max`, `batch_calls_max`, `call_timeout`, `statement_timeout`, `lock_timeout`, `connect_timeout`, `pgbouncer`, `listen`, `listen_url`, `purge_slack_max`, `sslmode`, `sslrootcert`, `application_name`, `options`, `target_session_attrs`, `channel_binding` |
///
/// Options are query parameters, as in `file:./data?cache_bytes=256MiB`. A value is a whole number,
/// which may end in `KiB`, `MiB` or `GiB`; a time such as `500ms` or `2s`; `true` or `false`; or a
/// word that `docs/stores.md` lists. In a directory's name write `%3F`, `%23` and `%25` for `?`,
/// `#` and `%`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use onceward_core::Engine;
///
/// let store = onceward_stores::connect("memory:?records_max=100000").await?;
/// let engine = Engine::new(store);
/// # Ok(())
/// # }
/// ```
pub async fn connect(url: &str) -> Result<SharedStore, ConnectError> {
    Connect::new(url).open().await
}

/// Returns the directory and the settings of a `file:` URL, for tools that work on the directory
/// itself; `None` for other stores.
#[cfg(feature = "embedded")]
pub fn embedded_at(
    url: &str,
) -> Result<Option<(PathBuf, crate::embedded::Settings)>, ConnectError> {
    let StoreUrl { parts, .. } = StoreUrl::parse(url)?;
    if parts.scheme == "file" { file::read(&parts).map(Some) } else { Ok(None) }
}

/// Returns the driver's URL and the store's settings of a `postgres:` URL, for tools that work on
/// the tables themselves; `None` for other stores.
#[cfg(feature = "postgres")]
pub fn postgres_at(url: &str) -> Result<Option<(String, crate::postgres::Settings)>, ConnectError> {
    let StoreUrl { parts, .. } = StoreUrl::parse(url)?;
    let is_postgres = matches!(parts.scheme, "postgres" | "postgresql");
    if is_postgres { postgres::read(&parts).map(Some) } else { Ok(None) }
}

/// A store to open: its URL, and options that are not in the URL.
///
/// `Debug` shows the scheme only, as URLs carry passwords.
#[derive(Clone)]
pub struct Connect {
    url: String,
    #[cfg(feature = "tiered")]
    cache: Option<String>,
    #[cfg(feature = "sealed")]
    sealing: Option<Sealing>,
}

impl Connect {
    /// Takes the URL of a store. It is checked by [`open`](Self::open).
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            #[cfg(feature = "tiered")]
            cache: None,
            #[cfg(feature = "sealed")]
            sealing: None,
        }
    }

    /// Adds a cache in front of a `postgres:` store: the Redis at a URL. See
    /// [`tiered`](crate::tiered).
    ///
    /// The options of that URL are `prefix`, `timeout`, `pause`, `keep`, `busy`, `trust`,
    /// `outcome_bytes_max`, `connections`, `ca`, `cert` and `key`.
    #[cfg(feature = "tiered")]
    #[must_use]
    pub fn cache(mut self, url: impl Into<String>) -> Self {
        self.cache = Some(url.into());
        self
    }

    /// Seals the outcomes, with [`Keys`](crate::sealed::Keys) alone or with all settings.
    #[cfg(feature = "sealed")]
    #[must_use]
    pub fn sealed(mut self, sealing: impl Into<Sealing>) -> Self {
        self.sealing = Some(sealing.into());
        self
    }

    /// Checks the URLs and their options, as [`open`](Self::open) does first. Opens nothing and
    /// contacts no server.
    pub fn check(&self) -> Result<(), ConnectError> {
        let parts = StoreUrl::parse(&self.url)?.parts;
        #[cfg(feature = "tiered")]
        if let Some(cache) = &self.cache {
            return tiered::check(&parts, &StoreUrl::parse(cache)?.parts);
        }
        match parts.scheme {
            "memory" => memory::limits(&parts).map(drop),
            #[cfg(feature = "embedded")]
            "file" => file::read(&parts).map(drop),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => postgres::check(&parts),
            #[cfg(feature = "redis")]
            _ => redis::check(&parts),
            #[cfg(not(feature = "redis"))]
            _ => Ok(()),
        }
    }

    /// Opens the store. Needs a tokio runtime.
    pub async fn open(self) -> Result<SharedStore, ConnectError> {
        let store = self.open_unsealed().await?;
        #[cfg(feature = "sealed")]
        if let Some(sealing) = self.sealing {
            return Ok(Arc::new(SealedStore::new(store, sealing)));
        }
        Ok(store)
    }

    async fn open_unsealed(&self) -> Result<SharedStore, ConnectError> {
        let address = StoreUrl::parse(&self.url)?;
        #[cfg(feature = "tiered")]
        if let Some(cache) = &self.cache {
            return tiered::open(address.parts, StoreUrl::parse(cache)?.parts).await;
        }
        (address.open)(address.parts).await
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.url.split_once(':').map_or("", |(scheme, _)| scheme);
        let mut shown = f.debug_struct("Connect");
        shown.field("scheme", &scheme);
        #[cfg(feature = "tiered")]
        shown.field("cache", &self.cache.is_some());
        #[cfg(feature = "sealed")]
        shown.field("sealing", &self.sealing);
        shown.finish_non_exhaustive()
    }
}

type Opening = Pin<Box<dyn Future<Output = Result<SharedStore, ConnectError>> + Send>>;
type Open = fn(UrlParts) -> Opening;

/// A scheme of store URLs.
struct Scheme {
    name: &'static str,
    example: &'static str,
    support: Support,
}

#[derive(Clone, Copy)]
enum Support {
    Built(Open),
    #[cfg_attr(
        all(feature = "embedded", feature = "postgres", feature = "redis"),
        expect(dead_code, reason = "nothing is left out")
    )]
    LeftOut(&'static str),
}

/// All schemes. A new store is a line here, and a function that opens it.
static SCHEMES: [Scheme; 8] = [
    Scheme {
        name: "memory",
        example: "memory:",
        support: Support::Built(|parts| Box::pin(memory::open(parts))),
    },
    Scheme { name: "file", example: "file:./data", support: FILE },
    Scheme { name: "redis", example: "redis://localhost", support: REDIS },
    Scheme { name: "rediss", example: "", support: REDIS },
    Scheme { name: "redis-cluster", example: "", support: REDIS },
    Scheme { name: "rediss-cluster", example: "", support: REDIS },
    Scheme { name: "postgres", example: "postgres://localhost", support: POSTGRES },
    Scheme { name: "postgresql", example: "", support: POSTGRES },
];

#[cfg(feature = "embedded")]
const FILE: Support = Support::Built(|parts| Box::pin(file::open(parts)));
#[cfg(not(feature = "embedded"))]
const FILE: Support = Support::LeftOut("embedded");

#[cfg(feature = "postgres")]
const POSTGRES: Support = Support::Built(|parts| Box::pin(postgres::open(parts)));
#[cfg(not(feature = "postgres"))]
const POSTGRES: Support = Support::LeftOut("postgres");

#[cfg(feature = "redis")]
const REDIS: Support = Support::Built(|parts| Box::pin(redis::open(parts)));
#[cfg(not(feature = "redis"))]
const REDIS: Support = Support::LeftOut("redis");

/// A URL whose store is in this build.
struct StoreUrl {
    open: Open,
    parts: UrlParts,
}

impl StoreUrl {
    fn parse(url: &str) -> Result<Self, ConnectError> {
        let (name, rest) = url.split_once(':').ok_or(ConnectError::NoScheme)?;
        if name.is_empty()
            || !name.bytes().all(|it| it.is_ascii_alphanumeric() || b"+-.".contains(&it))
        {
            return Err(ConnectError::NoScheme);
        }
        // Schemes compare without case (RFC 3986).
        let scheme = SCHEMES.iter().find(|scheme| scheme.name.eq_ignore_ascii_case(name));
        let Some(Scheme { name: scheme, support, .. }) = scheme else {
            return Err(ConnectError::UnknownScheme { scheme: name.to_owned() });
        };
        match *support {
            Support::Built(open) => Ok(Self { open, parts: UrlParts::parse(scheme, rest)? }),
            Support::LeftOut(feature) => Err(ConnectError::MissingFeature { scheme, feature }),
        }
    }
}
