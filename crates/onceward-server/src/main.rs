//! The program `onceward`.

use std::process::ExitCode;

use clap::Parser;
use onceward_server::cli::Cli;

/// Shared memory is freed and grown all the time; glibc's grows by a system call a page.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    Cli::parse().run()
}
