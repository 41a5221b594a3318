//! Sealed stores: the one suite, and what they promise beyond.

mod calls;

mod sealed {
    pub(crate) mod common;
    mod conformance;
    #[cfg(feature = "embedded")]
    mod embedded;
    mod keys;
    mod rotation;
    mod tamper;
}
