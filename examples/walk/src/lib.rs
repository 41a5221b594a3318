//! For the examples' tests: a README's curl walk is run against the real program and must
//! come out as the README says, and a service's `app` is asked in process.
//!
//! Only tests depend on it. Who copies an example leaves it behind.

mod answer;
mod app;
mod program;
mod promise;
mod readme;
mod tools;

pub use answer::Answer;
pub use app::App;
pub use program::Program;
pub use promise::Promise;
pub use readme::{Readme, Step};
pub use tools::Tools;
