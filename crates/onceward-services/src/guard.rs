//! The guard: a process that outlives this one and cleans up after it.
//!
//! Not `PR_SET_PDEATHSIG`: that fires when the *thread* that started the server ends, which for
//! a server shared between tests is much too early; it does not exist outside of Linux; and it
//! removes no directory.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::error::ServiceError;

/// Ends the servers of one directory, and removes it, when dropped or when this process ends.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    /// Starts to guard a directory.
    pub(crate) fn of(directory: &Path) -> Result<Self, ServiceError> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", include_str!("guard.sh"), "onceward-guard"]).arg(directory);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Neither Ctrl-C nor a signal to our process group may end it before its time, and
        // it keeps no working directory busy.
        shell.process_group(0).current_dir("/");
        let shell = shell.spawn().map_err(ServiceError::io("starting the guard of servers"))?;
        Ok(Self { shell })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _already_ended = self.shell.wait();
    }
}
