#![doc = include_str!("../../../README.md")]

#[cfg(feature = "macros")]
#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

pub use onceward_core::*;
#[cfg(feature = "http")]
pub use onceward_http as http;
#[cfg(feature = "macros")]
pub use onceward_macros::idempotent;
#[cfg(feature = "stores")]
pub use onceward_stores as stores;

/// The code in the documents compiles and runs.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../docs/http.md")]
struct HttpDocument;
#[cfg(all(doctest, feature = "axum", feature = "embedded", feature = "postgres"))]
#[doc = include_str!("../../../docs/stores.md")]
struct StoresDocument;
#[cfg(all(doctest, feature = "embedded", feature = "macros", feature = "postgres"))]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryDocument;
#[cfg(doctest)]
#[doc = include_str!("../../../docs/unknown.md")]
struct UnknownDocument;
#[cfg(all(doctest, feature = "embedded", feature = "sealed"))]
#[doc = include_str!("../../../docs/sealing.md")]
struct SealingDocument;
