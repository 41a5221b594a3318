//! `onceward reload`: signals a running gateway, and waits for the result, which the gateway writes
//! beside its pid file.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Signals the process in a pid file to reload, and waits for the result.
pub(super) fn run(pid_file: &Path) -> Result<(), Box<dyn Error>> {
    let text = std::fs::read_to_string(pid_file)
        .map_err(|error| format!("{}: {error}", pid_file.display()))?;
    let pid: u32 = text
        .trim()
        .parse()
        .map_err(|_| format!("{} does not contain a process id", pid_file.display()))?;
    let before = LastReload::read(pid_file)?.number;
    let sent = Command::new("kill").args(["-HUP", &pid.to_string()]).status()?;
    if !sent.success() {
        return Err(format!("cannot signal process {pid}: see that the gateway runs").into());
    }
    let deadline = Instant::now() + RELOAD_TIMEOUT;
    while Instant::now() < deadline {
        let last = LastReload::read(pid_file)?;
        if last.number > before {
            last.warnings.iter().for_each(|warning| println!("warning: {warning}"));
            let refused =
                |why| format!("not reloaded; the current configuration stays in force: {why}");
            return last.refused.map_or(Ok(()), |why| Err(refused(why).into()));
        }
        thread::sleep(RELOAD_POLL);
    }
    Err(format!(
        "process {pid} did not report within {RELOAD_TIMEOUT:?} whether it reloaded; see its log"
    )
    .into())
}

/// Timeout of a reload: much longer than one takes.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between two reads of the result.
const RELOAD_POLL: Duration = Duration::from_millis(20);

/// Result of the last reload, in a file beside the pid file (`PID_FILE.reload`).
#[derive(Debug, Default, Serialize, Deserialize)]
struct LastReload {
    /// Number of reloads since the gateway's start.
    number: u64,
    /// Why the configuration was refused; `None` if it was applied.
    refused: Option<String>,
    /// Changes under which keys that were used before are new.
    #[serde(default)]
    warnings: Vec<String>,
}

impl LastReload {
    fn read(pid_file: &Path) -> Result<Self, String> {
        let path = beside(pid_file, "reload");
        let at_path = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let text = std::fs::read(&path).map_err(|error| {
            at_path(&format!("{error}; give the --pid-file of a running gateway of this version"))
        })?;
        serde_json::from_slice(&text).map_err(|error| at_path(&error))
    }
}

/// Writes the results of reloads. The file is removed when the gateway stops.
pub(super) struct ReloadLog<'p> {
    pid_file: &'p Path,
    last: LastReload,
}

impl<'p> ReloadLog<'p> {
    pub(super) fn create(pid_file: &'p Path) -> Result<Self, String> {
        let log = Self { pid_file, last: LastReload::default() };
        log.write()?;
        Ok(log)
    }

    /// Adds the result of a reload: the warnings about its changes, or why it was refused.
    pub(super) fn add(&mut self, result: Result<Vec<String>, String>) {
        let number = self.last.number + 1;
        self.last = match result {
            Ok(warnings) => LastReload { number, refused: None, warnings },
            Err(refused) => LastReload { number, refused: Some(refused), warnings: Vec::new() },
        };
        if let Err(error) = self.write() {
            tracing::error!(%error, "the result of the reload cannot be written");
        }
    }

    /// Replaces the file atomically.
    fn write(&self) -> Result<(), String> {
        let (path, new) = (beside(self.pid_file, "reload"), beside(self.pid_file, "reload.new"));
        let text = serde_json::to_vec(&self.last).map_err(|error| error.to_string())?;
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }
}

impl Drop for ReloadLog<'_> {
    fn drop(&mut self) {
        let _may_be_gone = std::fs::remove_file(beside(self.pid_file, "reload"));
    }
}

fn beside(pid_file: &Path, what: &str) -> PathBuf {
    let mut name = pid_file.as_os_str().to_owned();
    name.push(format!(".{what}"));
    name.into()
}

/// The pid file. It is removed when the gateway stops.
pub(super) struct PidFile<'p>(&'p Path);

impl<'p> PidFile<'p> {
    pub(super) fn write(path: &'p Path) -> Result<Self, String> {
        let written = std::fs::write(path, format!("{}\n", std::process::id()));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        let _may_be_gone = std::fs::remove_file(self.0);
    }
}
