//! Confirmations before a change.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use super::Fallible;

/// Describes a change and asks for confirmation, unless `yes` is given.
pub(super) fn confirm(change: &str, yes: bool) -> Fallible {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err("cannot ask for confirmation without a terminal: check what the command will \
                    change, then add --yes"
            .into());
    }
    eprint!("{change}\nContinue? Type yes: ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "yes" => Ok(()),
        _ => Err("not confirmed; nothing has changed".into()),
    }
}
