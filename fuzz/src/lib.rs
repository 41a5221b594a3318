//! Fuzz targets: every parser of untrusted input.
//!
//! A target is a plain function that panics if a promise is broken. The runner of this crate
//! mutates the target's seeds on the stable toolchain, each execution from a number of its
//! own, so a failure is repeated by its number. `libfuzzer/` wraps the same functions for
//! cargo-fuzz, which is guided by coverage and needs a nightly toolchain.

mod canonical;
mod key_header;
mod multipart;
pub mod mutation;
mod reply_codec;
pub mod run;

pub use canonical::canonical_json;
pub use key_header::key_header;
pub use multipart::multipart;
pub use reply_codec::reply_codec;

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Panics if a promise is broken.
    pub run: fn(&[u8]),
    /// Inputs to mutate.
    pub seeds: &'static [&'static [u8]],
    /// Pieces that mutations insert.
    pub words: &'static [&'static [u8]],
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "canonical_json",
        run: canonical_json,
        seeds: canonical::SEEDS,
        words: canonical::WORDS,
    },
    Target {
        name: "key_header",
        run: key_header,
        seeds: key_header::SEEDS,
        words: key_header::WORDS,
    },
    Target {
        name: "reply_codec",
        run: reply_codec,
        seeds: reply_codec::SEEDS,
        words: reply_codec::WORDS,
    },
    Target { name: "multipart", run: multipart, seeds: multipart::SEEDS, words: multipart::WORDS },
];
