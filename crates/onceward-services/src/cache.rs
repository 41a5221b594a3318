//! Cache of packages from the registries of languages, shared by all clones.

use std::env;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, stderr};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Readable by everyone: if the tests run as root, servers run as another user.
const MODE: u32 = 0o755;

/// Directory of the cache that exists if the installation is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Installation {
    directory: PathBuf,
}

impl Installation {
    /// Returns the installation of a name, which contains the versions.
    pub(crate) fn named(name: &str) -> Self {
        Self { directory: cache().join(name) }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn exists(&self) -> bool {
        self.directory.exists()
    }

    /// Runs an installer with an empty directory, and renames the directory afterwards. Does
    /// nothing if the installation exists. If several processes install, one of them does and the
    /// others wait. Output goes to standard error, because URLs are written to standard output.
    pub(crate) fn install(&self, installer: impl FnOnce(&Path) -> Command) -> io::Result<()> {
        create(&cache())?;
        let lock = File::create(self.beside("lock"))?;
        lock.lock()?;
        if self.exists() {
            return Ok(());
        }
        // Left by an installation that was killed.
        let making = self.beside("making");
        let _is_not_there = fs::remove_dir_all(&making);
        create(&making)?;
        let mut command = readable(&installer(&making));
        let status = command.stdin(Stdio::null()).stdout(stderr()).status()?;
        if !status.success() {
            fs::remove_dir_all(&making)?;
            return Err(io::Error::other(format!("{}: {status}", making.display())));
        }
        fs::rename(&making, &self.directory)
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.directory.clone().into_os_string();
        path.push(format!(".{suffix}"));
        path.into()
    }
}

/// `~/.cache/onceward/services`; another directory for root, whose home other users cannot read.
fn cache() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/var/cache/onceward/services".into();
    }
    let of_user = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|it| it.is_absolute());
    let of_user = of_user.or_else(|| env::home_dir().map(|home| home.join(".cache")));
    of_user.unwrap_or_else(env::temp_dir).join("onceward/services")
}

fn create(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(MODE).create(directory)?;
    // The umask may have taken bits away.
    let missing = directory.metadata()?.permissions().mode() & MODE != MODE;
    if missing { fs::set_permissions(directory, Permissions::from_mode(MODE)) } else { Ok(()) }
}

/// Wraps a command so that everyone can read the files that it creates.
fn readable(installer: &Command) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"umask 022 && exec "$@""#, "onceward-install"]);
    command.arg(installer.get_program()).args(installer.get_args());
    for (name, value) in installer.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    fn in_temporary(name: &str) -> Installation {
        let unique = format!("onceward-cache-{}-{name}", std::process::id());
        Installation { directory: env::temp_dir().join(unique) }
    }

    fn shell(script: &str, directory: &Path) -> Command {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script, "installer"]).arg(directory);
        shell
    }

    fn removed(installation: &Installation) {
        let _is_not_there = fs::remove_dir_all(&installation.directory);
        let _is_not_there = fs::remove_dir_all(installation.beside("making"));
        fs::remove_file(installation.beside("lock")).unwrap();
    }

    #[test]
    fn of_several_that_install_at_once_one_does() {
        let (installation, installers) = (in_temporary("once"), AtomicUsize::new(0));
        let install = || {
            installation.install(|making| {
                installers.fetch_add(1, Ordering::Relaxed);
                shell("sleep 0.1; touch \"$1/file\"", making)
            })
        };
        thread::scope(|scope| {
            let all: Vec<_> = (0..3).map(|_| scope.spawn(install)).collect();
            all.into_iter().for_each(|one| one.join().unwrap().unwrap());
        });
        assert_eq!(installers.into_inner(), 1);
        assert!(installation.directory().join("file").exists());
        removed(&installation);
    }

    #[test]
    fn a_failed_installation_does_not_exist_and_can_be_repeated() {
        let installation = in_temporary("failed");
        installation.install(|making| shell("touch \"$1/rest\"; exit 1", making)).unwrap_err();
        assert!(!installation.exists() && !installation.beside("making").exists());
        installation.install(|making| shell("test ! -e \"$1/rest\"", making)).unwrap();
        assert!(installation.exists());
        removed(&installation);
    }
}
