//! The systemd unit, and the program's side of systemd's protocol.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Parser as _;
use onceward_server::cli::Cli;
use onceward_server::config::Config;
use onceward_services::{Found, Program, or_skip};

use crate::onceward;

const UNIT: &str = include_str!("../../../../packaging/systemd/onceward.service");
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/onceward.toml");

/// Values of a setting in the unit.
fn settings(name: &str) -> Vec<&'static str> {
    let values = UNIT.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    values.collect()
}

#[test]
fn the_unit_names_commands_and_flags_that_exist() {
    let lines = ["ExecStartPre", "ExecStart", "ExecReload"].map(settings).concat();
    let ours: Vec<_> = lines.iter().filter(|line| line.starts_with("/usr/bin/onceward ")).collect();
    assert_eq!(ours.len(), 3, "{lines:?}");
    for line in ours {
        if let Err(error) = Cli::try_parse_from(line.split(' ')) {
            panic!("{line}: {error}");
        }
    }
}

#[test]
fn the_stop_timeout_leaves_time_for_the_default_drain() {
    let [timeout] = settings("TimeoutStopSec")[..] else { panic!("one TimeoutStopSec") };
    let seconds: u64 = timeout.trim_end_matches('s').parse().unwrap();
    let drain = Config::default().limits.drain.0;
    assert!(Duration::from_secs(seconds) >= drain + Duration::from_secs(20), "{drain:?}");
}

#[test]
fn the_packaged_configuration_is_fine_and_keeps_records_in_the_state_directory() {
    let output = onceward(&["config", "check", CONFIG]);
    assert!(output.contains(": valid;"), "{output}");
    let text = fs::read_to_string(CONFIG).unwrap();
    let [directory] = settings("StateDirectory")[..] else { panic!("one StateDirectory") };
    assert!(text.contains(&format!("\"file:/var/lib/{directory}/")), "{text}");
}

#[test]
fn systemd_accepts_the_unit() {
    let Some(Found::Executable(analyze)) = or_skip(Program::SystemdAnalyze.find()) else { return };
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join("onceward.service");
    // The program is not installed at the unit's path.
    let text = UNIT.replace("/usr/bin/onceward ", concat!(env!("CARGO_BIN_EXE_onceward"), " "));
    fs::write(&unit, text).unwrap();
    let mut analyze = Command::new(analyze);
    let output = analyze.args(["verify", "--man=no"]).arg(&unit).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let about_it = errors.lines().any(|line| line.contains("onceward.service"));
    assert!(output.status.success() && !about_it, "{errors}");
}

/// A process that is killed at the end of its test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _perhaps_ended_already = self.0.kill();
        let _its_end = self.0.wait();
    }
}

#[test]
fn the_service_manager_is_told_when_the_gateway_listens_and_how_long_it_drains() {
    assert_eq!(settings("Type"), ["notify"]);
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let receive = || {
        let mut message = [0; 256];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    let config = directory.path().join("onceward.toml");
    let settings = "[limits]\ndrain = \"70s\"\n[store]\nurl = \"memory:\"\n\
                    [[listeners]]\naddress = \"127.0.0.1:0\"\n";
    fs::write(&config, settings).unwrap();
    let mut gateway = Command::new(env!("CARGO_BIN_EXE_onceward"));
    gateway.args(["gateway", "--config"]).arg(&config).env("NOTIFY_SOCKET", &socket);
    let gateway = gateway.stdout(Stdio::null()).stderr(Stdio::null());
    let mut gateway = Running(gateway.spawn().unwrap());

    assert_eq!(receive(), "READY=1");
    let mut kill = Command::new("kill");
    assert!(kill.args(["-TERM", &gateway.0.id().to_string()]).status().unwrap().success());
    assert_eq!(receive(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=90000000");
    assert!(gateway.0.wait().unwrap().success());
}
