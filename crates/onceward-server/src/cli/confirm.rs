//! Asking a person before something is decided.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use super::Fallible;

/// Says what is about to be done, and goes on only if somebody wants it.
pub(super) fn confirm(what: &str, yes: bool) -> Fallible {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err("nobody is here to confirm it: look at it first, then give --yes".into());
    }
    eprint!("{what}\nGo on? Type yes: ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "yes" => Ok(()),
        _ => Err("not confirmed; nothing was changed".into()),
    }
}
