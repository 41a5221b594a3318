//! Mistakes in `#[idempotent]` are told where they are.
//!
//! After a new compiler or a better message: `TRYBUILD=overwrite cargo test -p onceward --test ui`,
//! and read what changed.

#[test]
fn mistakes_are_told_where_they_are() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}
