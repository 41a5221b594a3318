//! Tools that the steps need, and the packages of the workspace.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// A tool that a step needs and a newcomer may not have.
#[derive(Clone, Copy)]
pub(crate) struct Tool {
    command: &'static str,
    package: &'static str,
    pub(crate) advice: &'static str,
}

/// Checks licences, sources and bans of dependencies.
pub(crate) const DENY: Tool = Tool {
    command: "deny",
    package: "cargo-deny",
    advice: "cargo-deny is not installed (cargo install --locked cargo-deny)",
};

/// Builds Debian packages.
pub(crate) const DEB: Tool = Tool {
    command: "deb",
    package: "cargo-deb",
    advice: "cargo-deb is not installed (cargo install --locked cargo-deb)",
};

/// Returns whether a tool is installed. On CI it is installed into the cache if it is missing.
pub(crate) fn available(tool: Tool) -> bool {
    if env::var_os("CI").is_some() { installed(tool) } else { is_there(tool) }
}

/// Installs a tool into the cache if it is missing. Returns false if that fails.
pub(crate) fn installed(tool: Tool) -> bool {
    if !is_there(tool) {
        println!("installing {} (once, into the build cache)", tool.package);
        let mut install = crate::cargo("install --locked --quiet");
        install.arg(tool.package).arg("--root").arg(directory());
        let _looked_for_again_below = install.status();
    }
    is_there(tool)
}

fn is_there(tool: Tool) -> bool {
    let mut version = crate::cargo(tool.command);
    add_to_path(version.arg("--version"));
    version.output().is_ok_and(|output| output.status.success())
}

/// Returns whether a program is there whose Debian package has the same name. As root on Debian
/// it is installed if it is missing.
pub(crate) fn debian(program: &str) -> bool {
    let there = || Command::new(program).arg("--version").output().is_ok();
    if !there() {
        println!("{program} is missing; trying to install it");
        let mut install = Command::new("apt-get");
        let _looked_for_again_below = install.args(["install", "--yes", program]).output();
    }
    there()
}

/// A directory with Restate's server and SDK, installed there by npm, and our handler.
pub(crate) fn restate() -> Option<PathBuf> {
    let home = directory().join("restate");
    if !home.join("node_modules/@restatedev/restate-server").exists() {
        std::fs::create_dir_all(&home).ok()?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&home);
        npm.args(["@restatedev/restate-server", "@restatedev/restate-sdk"]);
        npm.output().ok().filter(|output| output.status.success())?;
    }
    let handler = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/http/handler.mjs");
    std::fs::copy(handler, home.join("handler.mjs")).ok()?;
    Some(home)
}

/// Adds the tools in the cache to a command's PATH.
pub(crate) fn add_to_path(command: &mut Command) {
    let mut paths = vec![directory().join("bin")];
    paths.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    if let Ok(joined) = env::join_paths(paths) {
        command.env("PATH", joined);
    }
}

fn directory() -> PathBuf {
    target_directory().join("tools")
}

/// Cargo's target directory.
pub(crate) fn target_directory() -> PathBuf {
    metadata()["target_directory"].as_str().unwrap_or("target").into()
}

/// The workspace's libraries that have features, each with the features to check alone. Features
/// that the facade passes on are checked with the facade only.
pub(crate) fn libraries() -> Vec<(String, Vec<String>)> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let facade = packages.iter().find(|package| package["name"] == "onceward");
    let handed_on = facade.map(|facade| facade["features"].to_string()).unwrap_or_default();
    let is_library = |package: &&Value| {
        let targets = package["targets"].as_array();
        targets.into_iter().flatten().any(|target| target["kind"][0] == "lib")
    };
    let with_features = |package: &Value| {
        let name = package["name"].as_str()?.to_owned();
        let mut features: Vec<_> = package["features"].as_object()?.keys().cloned().collect();
        features.retain(|feature| feature != "default");
        let has_any = !features.is_empty();
        features.retain(|feature| !handed_on.contains(&format!("\"{name}/{feature}\"")));
        has_any.then_some((name, features))
    };
    packages.iter().filter(is_library).filter_map(with_features).collect()
}

fn metadata() -> Value {
    let output = crate::cargo("metadata --no-deps --format-version 1").output();
    let json = output.map(|output| output.stdout).unwrap_or_default();
    serde_json::from_slice(&json).unwrap_or_default()
}
