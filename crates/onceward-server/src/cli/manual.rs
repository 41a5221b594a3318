//! Shell completions and manual pages, generated from the definition of the command line.

use std::error::Error;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use super::Cli;

/// Tells `man` neither to hyphenate nor to justify, so that examples can be copied.
const NO_HYPHENATION: &[u8] = b".nh\n.ad l\n";

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
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let written = fs::create_dir_all(directory).and_then(|()| write(&program, directory));
    written.map_err(|error| format!("--out {}: {error}", directory.display()).into())
}

fn write(command: &Command, directory: &Path) -> io::Result<()> {
    let man = Man::new(command.clone());
    let mut page = NO_HYPHENATION.to_vec();
    man.render(&mut page)?;
    fs::write(directory.join(man.get_filename()), page)?;
    command.get_subcommands().try_for_each(|below| write(below, directory))
}
