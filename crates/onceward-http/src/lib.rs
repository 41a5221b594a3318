//! The Idempotency-Key protocol as a tower layer: one effect and one answer for every retry
//! of an HTTP request.

mod canonical;
mod multipart;

/// For this crate's fuzz targets, benchmarks and tests. Not part of the API.
#[doc(hidden)]
pub mod testing {
    pub use crate::canonical::*;
    pub use crate::multipart::*;
}
