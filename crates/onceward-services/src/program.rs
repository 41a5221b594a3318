//! The programs of the servers, and their places.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::ServiceError;
use crate::install;

/// A program that has to be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// `postgres`, with `initdb` and `psql`.
    Postgres,
    /// `pgbouncer`.
    PgBouncer,
    /// `redis-server`, or `valkey-server`.
    Redis,
    /// `promtool`, which checks alert rules.
    Promtool,
    /// `systemd-analyze`, which checks units.
    SystemdAnalyze,
    /// `python3`, with `venv`.
    Python,
    /// `npm`, with `node`.
    Npm,
    /// `go`.
    Go,
    /// `javac`, with `java`.
    Java,
    /// `mvn`.
    Maven,
}

/// Place of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// An executable of this machine.
    Executable(PathBuf),
    /// A Docker image that is here already.
    Image(&'static str),
}

impl Program {
    /// Servers, and what is installed with them.
    pub const ALL: [Self; 4] = [Self::Postgres, Self::PgBouncer, Self::Redis, Self::Promtool];

    /// Tools of single tests, which come from no image: a checker of units, and the languages of
    /// client libraries.
    pub const TOOLS: [Self; 6] =
        [Self::SystemdAnalyze, Self::Python, Self::Npm, Self::Go, Self::Java, Self::Maven];

    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::PgBouncer => "PgBouncer",
            Self::Redis => "Redis",
            Self::Promtool => "promtool",
            Self::SystemdAnalyze => "systemd-analyze",
            Self::Python => "Python",
            Self::Npm => "npm",
            Self::Go => "Go",
            Self::Java => "a JDK",
            Self::Maven => "Maven",
        }
    }

    /// Names of its executable, the first one also inside of its image.
    pub(crate) const fn executables(self) -> &'static [&'static str] {
        match self {
            Self::Postgres => &["postgres"],
            Self::PgBouncer => &["pgbouncer"],
            Self::Redis => &["redis-server", "valkey-server"],
            Self::Promtool => &["promtool"],
            Self::SystemdAnalyze => &["systemd-analyze"],
            Self::Python => &["python3"],
            Self::Npm => &["npm"],
            Self::Go => &["go"],
            Self::Java => &["javac"],
            Self::Maven => &["mvn"],
        }
    }

    /// Its Debian package.
    pub(crate) const fn package(self) -> &'static str {
        match self {
            Self::Postgres => "postgresql",
            Self::PgBouncer => "pgbouncer",
            Self::Redis => "redis-server",
            Self::Promtool => "prometheus",
            Self::SystemdAnalyze => "systemd",
            Self::Python => "python3-venv",
            Self::Npm => "npm",
            Self::Go => "golang-go",
            Self::Java => "default-jdk-headless",
            Self::Maven => "maven",
        }
    }

    /// Its Docker image, if it has one.
    pub(crate) const fn image(self) -> Option<&'static str> {
        match self {
            Self::Postgres => Some("postgres:17"),
            Self::PgBouncer => Some("edoburu/pgbouncer:latest"),
            Self::Redis => Some("redis:7.4"),
            Self::Promtool => Some("prom/prometheus:latest"),
            Self::SystemdAnalyze
            | Self::Python
            | Self::Npm
            | Self::Go
            | Self::Java
            | Self::Maven => None,
        }
    }

    /// Looks for it: an executable on `PATH`, then where packages put it, then an image that
    /// Docker has already. `ONCEWARD_SERVICES_FROM=images` leaves executables out, for one who
    /// has another version of them.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Missing`], with what to do.
    pub fn find(self) -> Result<Found, ServiceError> {
        let executable = || first_executable(&directories(), self.executables());
        let only_image = images_only() && self.image().is_some();
        let executable = if only_image { None } else { executable() };
        let found = executable.map(Found::Executable).or_else(|| self.image_here());
        found.ok_or_else(|| ServiceError::Missing { program: self, advice: install::advice(self) })
    }

    fn image_here(self) -> Option<Found> {
        let image = self.image()?;
        let mut inspect = Command::new("docker");
        inspect.args(["image", "inspect", image]);
        succeeds(&mut inspect).then_some(Found::Image(image))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Executable(path) => write!(to, "{}", path.display()),
            Self::Image(image) => write!(to, "image {image}"),
        }
    }
}

impl Found {
    /// Returns the version that the program prints.
    pub fn version(&self, program: Program) -> Option<String> {
        let mut command = match self {
            Self::Executable(path) => Command::new(path),
            Self::Image(image) => {
                let mut docker = Command::new("docker");
                docker.args(["run", "--rm", "--entrypoint", program.executables()[0], image]);
                docker
            }
        };
        let output = command.arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().next().map(str::to_owned)
    }

    /// Another executable of the same package, as `initdb` is of PostgreSQL. What is on `PATH`
    /// may be a link to one executable of several, so its target's neighbours count too.
    pub(crate) fn sibling(&self, name: &str) -> Self {
        let Self::Executable(path) = self else { return self.clone() };
        let beside = path.with_file_name(name);
        let beside_target = path.canonicalize().map(|target| target.with_file_name(name));
        match beside_target {
            Ok(sibling) if !is_executable(&beside) => Self::Executable(sibling),
            Ok(_) | Err(_) => Self::Executable(beside),
        }
    }
}

/// Whether the person wants servers from images although there may be executables.
pub(crate) fn images_only() -> bool {
    env::var_os("ONCEWARD_SERVICES_FROM").is_some_and(|from| from == "images")
}

/// Runs a command without its output.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn first_executable(directories: &[PathBuf], names: &[&str]) -> Option<PathBuf> {
    let mut candidates =
        names.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    candidates.find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// `PATH`, and where packages put servers that they do not put on it.
fn directories() -> Vec<PathBuf> {
    let mut all: Vec<_> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    all.extend(versioned("/usr/lib/postgresql", "bin"));
    all.extend(versioned("/opt/homebrew/opt", "bin"));
    all.extend(["/usr/sbin", "/usr/local/sbin", "/usr/local/bin"].map(PathBuf::from));
    all
}

/// `parent/*/child`, newest first as far as names tell.
fn versioned(parent: &str, child: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries.map(|entry| entry.path()).collect();
    found.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    found.iter().rev().map(|path| path.join(child)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_not_an_executable() {
        assert_eq!(first_executable(&["/".into()], &["tmp"]), None);
        assert_eq!(first_executable(&["/bin".into()], &["none", "sh"]), Some("/bin/sh".into()));
    }

    #[test]
    fn a_sibling_is_in_the_same_directory() {
        let sh = Found::Executable("/bin/sh".into());
        assert_eq!(sh.sibling("cat"), Found::Executable("/bin/cat".into()));
        assert_eq!(Found::Image("an:image").sibling("cat"), Found::Image("an:image"));
    }
}
