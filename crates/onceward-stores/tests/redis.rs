//! The Redis store: the one suite, on a server and on a cluster, and what it promises beyond.

mod calls;

mod redis {
    pub(crate) mod common;
    mod conformance;
}
