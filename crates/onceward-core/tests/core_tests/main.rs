//! The tests of the core, in one program: each program links the core and the testkit anew.

mod bulk;
mod common;
mod engine;
mod lease_renewal;
mod reference;
mod replay_check;
mod run;
mod sent_claims;
mod state_machine;
mod stores;
mod unknown;
mod upkeep;
