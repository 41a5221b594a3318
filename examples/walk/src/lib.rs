//! Test support of the examples: runs a README's curl commands against the real program and compares
//! the responses, and sends requests to a service's router in process.
//!
//! Only tests depend on it. An example that is copied does not need it.

mod app;
mod expectation;
mod program;
mod readme;
mod required_tools;
mod response;

pub use app::App;
pub use expectation::Expectation;
pub use program::Program;
pub use readme::{Readme, Step};
pub use required_tools::RequiredTools;
pub use response::Response;
