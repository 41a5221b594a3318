//! The operator's commands. Each is written once, against the [`Desk`](crate::desk::Desk),
//! and works on a store or on a running gateway alike.

mod ask;
mod export;
mod failure;
mod interrupt;
mod operations;
mod out;
mod place;
mod plan;
mod progress;
mod records;
mod show;
mod store;
mod walk;

use std::process::ExitCode;

pub(crate) use failure::Failure;
pub(crate) use operations::OperationsCommand;
pub(crate) use plan::PlanArgs;
pub(crate) use records::RecordsCommand;
pub(crate) use store::StoreCommand;

type Fallible<T = ()> = Result<T, Failure>;

/// Runs a command to its end, on a runtime of its own.
fn run(command: impl Future<Output = Fallible>) -> ExitCode {
    match crate::run::runtime() {
        Ok(runtime) => {
            let done = runtime.block_on(command);
            // What still runs in the background has nothing to say any more.
            runtime.shutdown_background();
            done.map_or_else(Failure::exit, |()| ExitCode::SUCCESS)
        }
        Err(error) => Failure::from(error).exit(),
    }
}

impl RecordsCommand {
    /// Does it.
    pub(crate) fn run(self) -> ExitCode {
        run(self.execute())
    }
}

impl OperationsCommand {
    /// Does it.
    pub(crate) fn run(self) -> ExitCode {
        run(self.execute())
    }
}

impl StoreCommand {
    /// Does it.
    pub(crate) fn run(self) -> ExitCode {
        run(self.execute())
    }
}

impl PlanArgs {
    /// Does it.
    pub(crate) fn run(&self) -> ExitCode {
        self.execute().map_or_else(Failure::exit, |()| ExitCode::SUCCESS)
    }
}
