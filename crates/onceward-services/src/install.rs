//! Installs missing programs: Debian packages for root, images where Docker runs.

use std::io::stderr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::ServiceError;
use crate::program::{Program, images_only, succeeds};

/// The way to install programs on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// `apt-get`, without a password: this process is root on Debian.
    Packages,
    /// `docker pull`.
    Images,
    /// The user runs `apt-get`, which needs root.
    ByHandWithApt,
    /// The user installs it.
    ByHand,
}

/// Returns the way to install programs on this machine.
pub fn plan() -> Plan {
    let has_apt = Path::new("/usr/bin/apt-get").exists() && !images_only();
    let is_root = rustix::process::geteuid().is_root();
    match (has_apt, is_root) {
        (true, true) => Plan::Packages,
        (true, false) if !docker_runs() => Plan::ByHandWithApt,
        (false, _) if !docker_runs() => Plan::ByHand,
        (true, false) | (false, _) => Plan::Images,
    }
}

impl Plan {
    /// The command that installs a program by this plan, for people to read.
    pub fn command(self, program: Program) -> String {
        let name = program.name();
        match (self, program.image()) {
            (Self::Packages, _) => format!("apt-get install {}", program.package()),
            (Self::Images, Some(image)) => format!("docker pull {image}"),
            (Self::ByHandWithApt, _) => format!("sudo apt-get install {}", program.package()),
            (Self::ByHand, Some(_)) => {
                format!("install your system's package of {name}, or start Docker")
            }
            (Self::Images | Self::ByHand, None) => {
                format!("install your system's package of {name}")
            }
        }
    }

    /// True if [`install`] can do it without the user.
    pub const fn is_automatic(self) -> bool {
        match self {
            Self::Packages | Self::Images => true,
            Self::ByHandWithApt | Self::ByHand => false,
        }
    }
}

/// Installs the programs that are missing. The installers' output goes to standard error. No
/// server is left running.
///
/// # Errors
///
/// If one is missing afterwards, with what to do.
pub fn install(programs: &[Program]) -> Result<(), ServiceError> {
    let plan = plan();
    let mut missing = programs.to_vec();
    missing.retain(|program| program.find().is_err());
    if !missing.is_empty() {
        run(plan, &missing)?;
    }
    match missing.into_iter().find(|program| program.find().is_err()) {
        None => Ok(()),
        Some(program) => Err(ServiceError::Missing { program, advice: plan.command(program) }),
    }
}

/// Advice about a missing program.
pub(crate) fn advice(program: Program) -> String {
    let plan = plan();
    if plan.is_automatic() && Program::ALL.contains(&program) {
        "cargo xtask services install".to_owned()
    } else {
        plan.command(program)
    }
}

fn run(plan: Plan, missing: &[Program]) -> Result<(), ServiceError> {
    match plan {
        Plan::Packages => {
            let packages = missing.iter().map(|program| program.package());
            let mut apt = Command::new("/bin/sh");
            apt.args(["-c", include_str!("apt.sh"), "onceward-apt"]).args(packages);
            shown(&mut apt)
        }
        Plan::Images => missing
            .iter()
            .filter_map(|program| program.image())
            .try_for_each(|image| shown(Command::new("docker").args(["pull", image]))),
        Plan::ByHandWithApt | Plan::ByHand => Ok(()),
    }
}

/// Redirects output to standard error, because standard output is for results, such as URLs.
fn shown(command: &mut Command) -> Result<(), ServiceError> {
    let status = command.stdin(Stdio::null()).stdout(stderr()).status();
    // The caller looks for the programs afterwards, so a failure is reported there.
    status.map(drop).map_err(ServiceError::io("installing servers"))
}

fn docker_runs() -> bool {
    succeeds(Command::new("docker").args(["info"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_says_how_to_get_every_program() {
        let redis = Program::Redis;
        assert_eq!(Plan::Packages.command(redis), "apt-get install redis-server");
        assert_eq!(Plan::ByHandWithApt.command(redis), "sudo apt-get install redis-server");
        assert_eq!(Plan::Images.command(redis), "docker pull redis:7.4");
        assert!(Plan::ByHand.command(redis).contains("Redis"));
        let by_hand = "install your system's package of Go";
        assert_eq!(
            [Plan::Images, Plan::ByHand].map(|plan| plan.command(Program::Go)),
            [by_hand; 2]
        );
    }
}
