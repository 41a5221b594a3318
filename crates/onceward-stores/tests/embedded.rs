//! The embedded store: the one suite, and what it promises beyond.

mod calls;
mod lives;

mod embedded {
    pub(crate) mod common;
    mod conformance;
    mod damage;
    mod faults;
    mod golden;
    mod kill;
    mod memory;
    mod power;
    mod refusal;
    mod reopen;
}
