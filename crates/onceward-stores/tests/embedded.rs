//! The embedded store: the one suite, and what it promises beyond.

mod embedded {
    pub(crate) mod common;
    mod conformance;
    mod review;
}
