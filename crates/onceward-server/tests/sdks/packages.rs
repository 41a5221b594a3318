//! Client libraries at pinned versions, installed once into the build cache.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use onceward_services::{Program, ServiceError};
use sha2::{Digest as _, Sha256};

use crate::client::PROGRAMS;

const PYTHON: [&str; 4] =
    ["stripe==16.1.0", "Adyen==16.0.0", "squareup==46.0.0.20260916", "requests==2.34.2"];
const NODE: [&str; 3] = ["stripe@23.1.0", "axios@1.21.1", "axios-retry@4.5.0"];

/// Copies the jars of a pom. Its version is pinned, like those of the libraries.
const COPY_JARS: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// Python interpreter with the libraries.
pub(crate) fn python() -> Result<PathBuf, ServiceError> {
    Program::Python.find()?;
    let home = installed("python", &PYTHON.join(" "), |home| {
        run(Command::new("python3").args(["-m", "venv"]).arg(home))?;
        let mut pip = Command::new(home.join("bin/python"));
        run(pip.args(["-m", "pip", "install", "--quiet"]).args(PYTHON))
    })?;
    Ok(home.join("bin/python"))
}

/// Directory with the libraries for Node.
pub(crate) fn node() -> Result<PathBuf, ServiceError> {
    Program::Npm.find()?;
    installed("node", &NODE.join(" "), |home| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--silent", "--prefix"]).arg(home);
        run(npm.args(NODE))
    })
}

/// Compiles a Go program.
pub(crate) fn go(name: &str) -> Result<PathBuf, ServiceError> {
    Program::Go.find()?;
    let source = Path::new(PROGRAMS).join(name);
    let home = installed(name, &text_of(&source), |home| {
        let mut go = Command::new("go");
        go.current_dir(&source).args(["build", "-mod=readonly", "-o"]).arg(home.join("program"));
        run(&mut go)
    })?;
    Ok(home.join("program"))
}

/// Compiles a Java program, with the jars of its pom in `libs`.
pub(crate) fn java(name: &str, class: &str) -> Result<PathBuf, ServiceError> {
    Program::Java.find()?;
    Program::Maven.find()?;
    let source = Path::new(PROGRAMS).join(name);
    installed(name, &text_of(&source), |home| {
        let libs = home.join("libs");
        let mut maven = Command::new("mvn");
        maven.args(["-B", "-q", "-ntp", "-f"]).arg(source.join("pom.xml")).arg(COPY_JARS);
        maven.arg("-DincludeScope=runtime");
        run(maven.arg(format!("-DoutputDirectory={}", libs.display())))?;
        let mut javac = Command::new("javac");
        javac.arg("-cp").arg(format!("{}/*", libs.display())).arg("-d").arg(home);
        run(javac.arg(source.join(format!("{class}.java"))))
    })
}

/// Text of all files of a directory, to notice changes.
fn text_of(directory: &Path) -> String {
    let mut files: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

/// Directory of an installation with these versions. It is created under another name and renamed,
/// so an interrupted installation is not used.
fn installed(
    name: &str,
    versions: &str,
    install: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, ServiceError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let digest = Sha256::digest(versions);
    let digest: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sdks");
    let home = cache.join(format!("{name}-{digest}"));
    if home.exists() {
        return Ok(home);
    }
    println!("installing libraries for {name} (once, into the build cache)");
    let making = cache.join(format!("{name}-{digest}.{}", std::process::id()));
    let made = fs::create_dir_all(&making).map_err(|error| error.to_string());
    let made = made.and_then(|()| install(&making));
    let made = made.and_then(|()| moved(&making, &home).map_err(|error| error.to_string()));
    let _gone_if_it_was_moved = fs::remove_dir_all(&making);
    let packages = format!("client libraries for {name}");
    made.map_err(|why| ServiceError::Packages { packages, why })?;
    Ok(home)
}

/// Renames a directory, unless another process has created the target meanwhile.
fn moved(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to).or_else(|error| if to.exists() { Ok(()) } else { Err(error) })
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {last}")) }
}
