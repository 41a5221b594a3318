//! The program `onceward`.

use std::process::ExitCode;

use clap::Parser;
use onceward_server::cli::Cli;
use rustix::fs::Mode;

/// Buffers shared between threads grow and shrink all the time; glibc's allocator grows them by
/// one system call per page.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Records and exports contain services' responses: only the owner may read new files.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    Cli::parse().run()
}
