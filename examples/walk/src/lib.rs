//! Test support of the examples: runs a README's commands against the real program and compares what
//! they print, and sends requests to a service's router in process.
//!
//! Only tests depend on it. An example that is copied does not need it.

mod app;
mod expectation;
mod printed_line;
mod program;
mod readme;
mod required_tools;
mod response;

pub use app::App;
pub use expectation::Expectation;
pub use printed_line::PrintedLine;
pub use program::Program;
pub use readme::{Expected, Readme, Step};
pub use required_tools::RequiredTools;
pub use response::Response;
