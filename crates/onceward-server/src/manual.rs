//! Shell completions and manual pages, generated from the definition of the command line.

use std::error::Error;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;

/// Prints the completion script of a shell.
pub(crate) fn completions(shell: Shell) -> Result<(), Box<dyn Error>> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "onceward", &mut script);
    match io::stdout().lock().write_all(&script) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a manual page for the program and for each subcommand.
pub(crate) fn pages(directory: &Path) -> Result<(), Box<dyn Error>> {
    let written = fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    written.map_err(|error| format!("--out {}: {error}", directory.display()).into())
}
