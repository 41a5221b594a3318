//! Mistakes in `#[idempotent]` are told where they are.
//!
//! In this crate and not in the facade: trybuild compiles the dependencies of its crate once more,
//! and with all features of the facade that took six minutes.
//!
//! After a new compiler or a better message: `TRYBUILD=overwrite cargo test -p onceward-macros
//! --test ui`,
//! and read what changed.

#[test]
fn mistakes_are_told_where_they_are() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}
