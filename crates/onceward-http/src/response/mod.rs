//! Responses: their stored form, and replays made from it.
//!
//! | file | contents |
//! |---|---|
//! | `codec` | the stored form `http/v1` |
//! | `error_code` | the error code in a JSON body |
//! | `replay` | the response to a retry; rebuilding sensitive replies |

mod codec;
mod error_code;
mod replay;

pub use codec::{NeverStored, TAG, outcome_head, outcome_of, outcome_of_all, response_of};
pub(crate) use codec::{encode_head, round_trip, stored_outcome, stored_reply};
pub(crate) use replay::{Rebuild, replay};
