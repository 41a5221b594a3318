//! Processes that work on a store until they are killed, and a ledger of what they said.

mod ledger;
mod process;
mod worker;

use onceward_core::{Outcome, Tag};

pub(crate) use ledger::{Ledger, after_life};
pub(crate) use process::Life;
pub(crate) use worker::work;

fn outcome(text: impl Into<String>) -> Outcome {
    Outcome::whole(Tag::from_static("text/v1"), text.into().into_bytes())
}
