//! Places of programs on this machine.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::program::Program;
use crate::registry::{KAFKA_VERSION, Registry};

/// The oldest Java that runs Kafka 4.
const OLDEST_JAVA: u32 = 17;

/// Place of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// An executable of this machine.
    Executable(PathBuf),
    /// A Docker image that is here already.
    Image(&'static str),
    /// Java programs.
    Jars {
        /// The `java` to run them.
        java: PathBuf,
        /// The directory with `libs/*.jar`.
        directory: PathBuf,
    },
}

impl Program {
    /// Looks for it. An executable on `PATH` comes first, then places where packages put it, then an
    /// image that Docker has already.
    pub(crate) fn look(self) -> Option<Found> {
        let only_image = images_only() && self.image().is_some();
        let here = if only_image { None } else { self.here() };
        here.or_else(|| self.image_here())
    }

    fn here(self) -> Option<Found> {
        match Registry::of(self) {
            Some(Registry::Maven) => {
                let java = Self::JavaRuntime.executable()?;
                let installed = Registry::Maven.installation();
                let jars = Found::Jars { java, directory: installed.directory().to_owned() };
                installed.exists().then_some(jars)
            }
            Some(Registry::Python { .. }) | None => self.executable().map(Found::Executable),
        }
    }

    /// Its executable on this machine.
    pub(crate) fn executable(self) -> Option<PathBuf> {
        let mut directories = directories();
        directories.extend(Registry::of(self).and_then(Registry::executables));
        match self {
            Self::JavaRuntime => java(&directories),
            _ => executables(&directories, self.executables()).next(),
        }
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
            Self::Jars { directory, .. } => write!(to, "{}", directory.display()),
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
            Self::Jars { .. } => return Some(KAFKA_VERSION.to_owned()),
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

fn executables(directories: &[PathBuf], names: &[&str]) -> impl Iterator<Item = PathBuf> {
    let in_all = |name: &&str| directories.iter().map(|it| it.join(name)).collect::<Vec<_>>();
    names.iter().flat_map(in_all).filter(|path| is_executable(path))
}

/// Returns the first `java` that is new enough. Its version is asked for once per process, because
/// that starts a JVM.
fn java(directories: &[PathBuf]) -> Option<PathBuf> {
    static JAVA: OnceLock<PathBuf> = OnceLock::new();
    if let Some(java) = JAVA.get() {
        return Some(java.clone());
    }
    let is_new = |java: &PathBuf| {
        let version = Found::Executable(java.clone()).version(Program::JavaRuntime);
        version.and_then(|line| java_version(&line)).is_some_and(|version| version >= OLDEST_JAVA)
    };
    let java = executables(directories, Program::JavaRuntime.executables()).find(is_new)?;
    Some(JAVA.get_or_init(|| java).clone())
}

/// Parses the first line of `java --version`. Java 8 does not have that option.
fn java_version(line: &str) -> Option<u32> {
    line.split([' ', '.', '-', '+']).nth(1)?.parse().ok()
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// `PATH`, and where packages put servers that they do not put on it.
fn directories() -> Vec<PathBuf> {
    let mut all: Vec<_> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    all.extend(versioned("/usr/lib/postgresql", "bin"));
    all.extend(versioned("/usr/lib/jvm", "bin"));
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
        let first = |directory: PathBuf, names| executables(&[directory], names).next();
        assert_eq!(first("/".into(), &["tmp"]), None);
        assert_eq!(first("/bin".into(), &["none", "sh"]), Some("/bin/sh".into()));
    }

    #[test]
    fn every_way_that_java_tells_its_version_is_understood() {
        assert_eq!(java_version("openjdk 17.0.15 2025-04-15"), Some(17));
        assert_eq!(java_version("openjdk 25 2025-09-16 LTS"), Some(25));
        assert_eq!(java_version("openjdk 26-ea 2026-03-17"), Some(26));
        assert_eq!(java_version("java 21.0.1+12 2023-10-17"), Some(21));
        assert_eq!(java_version("Unrecognized option: --version"), None);
    }

    #[test]
    fn a_sibling_is_in_the_same_directory() {
        let sh = Found::Executable("/bin/sh".into());
        assert_eq!(sh.sibling("cat"), Found::Executable("/bin/cat".into()));
        assert_eq!(Found::Image("an:image").sibling("cat"), Found::Image("an:image"));
    }
}
