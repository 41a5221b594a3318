//! The load: wrk with `load.lua`.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

use crate::Fallible;
use crate::orders::BODY;

/// Connections, each with one request at a time.
pub(crate) const CONNECTIONS: u64 = 64;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/load.lua");

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Load {
    /// No key at all
    #[value(skip)]
    Pass,
    /// A new key each time
    First,
    /// A few keys again and again
    Replay,
}

impl Load {
    pub(crate) const ALL: [Self; 3] = [Self::Pass, Self::First, Self::Replay];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Pass => "Pass-through: requests without a key",
            Self::First => "First requests",
            Self::Replay => "Replays",
        }
    }
}

/// wrk's measurements.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Measured {
    pub(crate) requests: u64,
    micros: u64,
    /// Answers with a status of 400 or more.
    refused: u64,
    /// Connections that failed, and answers that did not come.
    broken: u64,
    pub(crate) p50_micros: u64,
    pub(crate) p99_micros: u64,
}

impl Measured {
    pub(crate) fn per_second(&self) -> f64 {
        self.requests as f64 / (self.micros as f64 / 1e6)
    }

    /// Whether every answer was a success.
    pub(crate) fn check(&self) -> Fallible<()> {
        match (self.refused, self.broken) {
            (0, 0) => Ok(()),
            (refused, broken) => {
                Err(format!("of {}, {refused} were refused, {broken} broke", self.requests).into())
            }
        }
    }
}

/// Sends load for a while. `run` is a number that no other run against the server has: keys
/// are made of it.
pub(crate) async fn send(
    load: Load,
    run: u32,
    to: SocketAddr,
    path: &str,
    duration: Duration,
) -> Fallible<Measured> {
    let load = match load {
        Load::Pass => "pass",
        Load::First => "first",
        Load::Replay => "replay",
    };
    let output = Command::new("wrk")
        .args(["--threads=1", &format!("--connections={CONNECTIONS}")])
        .arg(format!("--duration={}s", duration.as_secs()))
        .args(["--script", SCRIPT, &format!("http://{to}"), "--"])
        .args([load, &run.to_string(), BODY, path])
        .output()
        .await
        .map_err(|error| format!("wrk cannot be started (is it installed?): {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let told = text.lines().find(|line| line.starts_with('{'));
    let told = told.ok_or_else(|| {
        format!("wrk says nothing: {text}{}", String::from_utf8_lossy(&output.stderr))
    })?;
    Ok(serde_json::from_str(told)?)
}
