//! `cargo xtask deb`: a Debian package of the program.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::tools::{self, DEB};

/// Completion scripts, under the names that the package's metadata takes them by.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "onceward.bash"), ("zsh", "_onceward"), ("fish", "onceward.fish")];

/// Builds the program, what it generates, and the package.
pub(crate) fn run() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    if !tools::installed(DEB) {
        return Err(DEB.advice.into());
    }
    succeed(&mut crate::cargo("build --locked --release --package onceward-server"))?;
    let release = tools::target_directory().join("release");
    generate(&release.join("onceward"), &release.join("package"))?;
    // Symbols name the functions of a backtrace.
    let mut deb = crate::cargo("deb --no-build --no-strip --package onceward-server");
    tools::add_to_path(&mut deb);
    succeed(&mut deb)
}

/// Manual pages and completions, written by the program that goes into the package.
fn generate(program: &Path, out: &Path) -> Result<(), String> {
    let _pages_of_an_earlier_version = fs::remove_dir_all(out);
    fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    succeed(Command::new(program).args(["man", "--out"]).arg(out.join("man")))?;
    for (shell, name) in COMPLETIONS {
        let file = out.join(name);
        let script = File::create(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        succeed(Command::new(program).args(["completions", shell]).stdout(script))?;
    }
    Ok(())
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let succeeded = command.status().is_ok_and(|status| status.success());
    if succeeded { Ok(()) } else { Err(format!("failed: {command:?}")) }
}
