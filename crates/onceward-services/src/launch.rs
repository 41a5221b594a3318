//! The command that runs a program in a home, from the machine or from an image.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::ServiceError;
use crate::found::Found;
use crate::home::Home;
use crate::owner::Owner;

/// Writes the process id for the guard before the program starts. So the program ends with this
/// process even if it is killed during the start.
const NOTE_AND_RUN: &str = r#"echo $$ >"$0" && exec "$@""#;

/// Variables for the user's own servers.
const OF_OTHER_SERVERS: [&str; 5] =
    ["PGDATA", "PGPORT", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"];

/// JVM options for little memory, a fast start and a log of warnings and errors.
const JAVA_OPTIONS: [&str; 7] = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dfile.encoding=UTF-8",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
];

/// A program to run, and its name in the home.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) home: &'a Home,
    pub(crate) name: &'a str,
    pub(crate) found: &'a Found,
    /// Its executable's name inside of an image.
    pub(crate) executable: &'a str,
    pub(crate) arguments: &'a [String],
}

/// A command, and the container that it will run in.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) command: Command,
    pub(crate) container: Option<String>,
}

impl Launch<'_> {
    /// The command: in a process group of its own, because Ctrl-C is ours to handle, and
    /// without a standard input.
    pub(crate) fn command(&self) -> Result<Launched, ServiceError> {
        let (words, container) = self.words()?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", NOTE_AND_RUN]).arg(self.pid_file()).args(words);
        command.stdin(Stdio::null()).process_group(0).current_dir(self.home.directory());
        // Logs are read by us; and settings of the person's own servers are not for ours.
        command.env("LC_ALL", "C");
        for variable in OF_OTHER_SERVERS {
            command.env_remove(variable);
        }
        if let (Some(owner), None) = (self.home.owner(), &container) {
            command.uid(owner.uid).gid(owner.gid);
        }
        Ok(Launched { command, container })
    }

    /// Where the process id is.
    pub(crate) fn pid_file(&self) -> PathBuf {
        self.home.directory().join(format!("{}.pid", self.name))
    }

    fn words(&self) -> Result<(Vec<OsString>, Option<String>), ServiceError> {
        match self.found {
            Found::Executable(path) => {
                let arguments = self.arguments.iter().map(OsString::from);
                Ok(([path.into()].into_iter().chain(arguments).collect(), None))
            }
            Found::Image(image) => {
                let container = self.new_container()?;
                Ok((self.docker_words(image, &container), Some(container)))
            }
            Found::Jars { java, directory } => Ok((self.java_words(java, directory), None)),
        }
    }

    /// A command that writes files to the home only: a killed JVM would leave performance data and
    /// unpacked libraries in the system's temporary directory.
    fn java_words(&self, java: &Path, directory: &Path) -> Vec<OsString> {
        let mut words = vec![java.into()];
        words.extend(JAVA_OPTIONS.map(OsString::from));
        words.push(format!("-Djava.io.tmpdir={}", self.home.directory().display()).into());
        words.extend(["-cp".into(), directory.join("libs/*").into()]);
        words.extend(self.arguments.iter().map(OsString::from));
        words
    }

    /// On the host's network, with the home at the same path and the same user: so the program
    /// has the same arguments, ports and files as without Docker.
    fn docker_words(&self, image: &str, container: &str) -> Vec<OsString> {
        let Owner { uid, gid } = self.home.owner().unwrap_or_else(Owner::current);
        let home = self.home.directory().display();
        let mut words = words("docker run --rm --network host --env LC_ALL=C --name");
        words.push(container.into());
        words.push(format!("--user={uid}:{gid}").into());
        words.push(format!("--workdir={home}").into());
        words.push(format!("--mount=type=bind,source={home},target={home}").into());
        // initdb wants its user to have a name.
        words.push("--mount=type=bind,source=/etc/passwd,target=/etc/passwd,readonly".into());
        words.push(format!("--entrypoint={}", self.executable).into());
        words.push(image.into());
        words.extend(self.arguments.iter().map(OsString::from));
        words
    }

    /// A name that was not used before, noted for the guard: Docker needs a moment to forget a
    /// container that ended.
    fn new_container(&self) -> Result<String, ServiceError> {
        let note = self.home.directory().join(format!("{}.container", self.name));
        let life = fs::read_to_string(&note).map_or(1, |old| next_life(&old));
        let place = self.home.directory().file_name().unwrap_or_default().to_string_lossy();
        let container = format!("{place}-{}-{life}", self.name);
        write(&note, &container)?;
        Ok(container)
    }
}

fn next_life(container: &str) -> u32 {
    let life = container.rsplit('-').next().and_then(|life| life.parse().ok());
    life.map_or(1, |life: u32| life + 1)
}

fn write(file: &Path, text: &str) -> Result<(), ServiceError> {
    fs::write(file, text).map_err(ServiceError::io(format!("writing {}", file.display())))
}

fn words(text: &str) -> Vec<OsString> {
    text.split_whitespace().map(OsString::from).collect()
}
