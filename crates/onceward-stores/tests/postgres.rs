//! The PostgreSQL store: the one suite, and what it promises beyond. Without PostgreSQL (or
//! PgBouncer) the tests that need it are skipped.

mod calls;
mod ledger;

mod postgres {
    pub(crate) mod common;
    mod conformance;
    mod faults;
    mod kill;
    mod migrations;
    mod rows;
    mod together;
    mod transactions;
    mod wake;
}
