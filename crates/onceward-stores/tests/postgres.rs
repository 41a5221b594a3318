//! The PostgreSQL store: the one suite, and what it promises beyond. Without PostgreSQL (or
//! PgBouncer) the tests that need it are skipped.

mod calls;

mod postgres {
    pub(crate) mod common;
    mod conformance;
}
