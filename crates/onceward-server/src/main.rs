//! The program `onceward`.

use std::process::ExitCode;

use clap::Parser;
use onceward_server::cli::Cli;
use rustix::fs::Mode;

/// Shared memory is freed and grown all the time; glibc's grows by a system call a page.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Records and exports hold what services answered: new files are for their owner alone.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    Cli::parse().run()
}
