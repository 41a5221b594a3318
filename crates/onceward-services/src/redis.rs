//! Redis, alone or with a replica.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

use crate::error::ServiceError;
use crate::found::Found;
use crate::home::Home;
use crate::program::Program;
use crate::resp::{Reply, ask};
use crate::server::{Ready, Recipe, Server, Stop};
use crate::wait;

/// How long a replica may take to have the data of its primary.
const LINKING: Duration = Duration::from_secs(20);

/// Settings of a Redis. Every process of this machine may connect, without a password.
///
/// ```no_run
/// # use onceward_services::{Redis, ServiceError};
/// # fn start() -> Result<(), ServiceError> {
/// let redis = Redis::default().setting("maxmemory-policy", "noeviction").start()?;
/// println!("redis-cli -u {}", redis.url());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Redis {
    settings: Vec<(String, String)>,
}

/// A Redis with a replica.
#[derive(Debug)]
pub struct RedisPair {
    /// Takes writes.
    pub primary: Server,
    /// Follows.
    pub replica: Server,
}

/// Every acknowledged write survives `kill`. Replication starts without a delay of five seconds.
const SETTINGS: [(&str, &str); 6] = [
    ("bind", "127.0.0.1"),
    ("daemonize", "no"),
    ("save", ""),
    ("appendonly", "yes"),
    ("appendfsync", "everysec"),
    ("repl-diskless-sync-delay", "0"),
];

impl Default for Redis {
    fn default() -> Self {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self { settings: SETTINGS.map(owned).to_vec() }
    }
}

impl Redis {
    /// With the settings that `redis-server` has by itself, on the loopback address: to try a
    /// configuration as it is.
    pub fn unconfigured() -> Self {
        Self { settings: Vec::new() }.setting("bind", "127.0.0.1")
    }

    /// Whether its data survives a restart; it does by default. Otherwise it comes back empty.
    #[must_use]
    pub fn persistent(self, on: bool) -> Self {
        self.setting("appendonly", if on { "yes" } else { "no" })
    }

    /// One setting of `redis.conf`; the last one of a name counts.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.retain(|(other, _)| other != name);
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts an empty one.
    ///
    /// # Errors
    ///
    /// If Redis is missing or does not start.
    pub fn start(&self) -> Result<Server, ServiceError> {
        let found = Program::Redis.find()?;
        Home::for_starting(|home| self.start_in(home, &found, "redis", 0))
    }

    /// Starts an empty one and a replica that follows it.
    ///
    /// # Errors
    ///
    /// If Redis is missing, does not start, or the replica does not follow.
    pub fn start_with_replica(&self) -> Result<RedisPair, ServiceError> {
        let found = Program::Redis.find()?;
        Home::for_starting(|home| {
            let primary = self.start_in(home, &found, "primary", 0)?;
            let following = format!("127.0.0.1 {}", primary.port());
            let settings = self.clone().setting("replicaof", &following);
            let replica = settings.start_in(home, &found, "replica", 1)?;
            let pair = RedisPair { primary, replica };
            pair.wait_until_linked()?;
            Ok(pair)
        })
    }

    /// One of several in a home.
    pub(crate) fn start_in(
        &self,
        home: &Arc<Home>,
        found: &Found,
        name: &str,
        index: u16,
    ) -> Result<Server, ServiceError> {
        let port = home.port(index);
        let directory = home.room(&format!("{name}-data"))?;
        let mut arguments = vec!["--port".to_owned(), port.to_string()];
        arguments.extend(["--dir".to_owned(), directory.display().to_string()]);
        for (name, value) in &self.settings {
            arguments.push(format!("--{name}"));
            arguments.extend(words_of(name, value));
        }
        let recipe = Recipe {
            name: name.to_owned(),
            found: found.clone(),
            executable: Program::Redis.executables()[0],
            arguments,
            port,
            url: format!("redis://127.0.0.1:{port}/"),
            ready: Ready::Logs("Ready to accept connections"),
            stop: Stop::Signal(Signal::TERM),
        };
        Server::new(home, recipe)
    }
}

impl RedisPair {
    /// Waits until the replica follows the primary and has all its data.
    ///
    /// # Errors
    ///
    /// If it does not in 20 s.
    pub fn wait_until_linked(&self) -> Result<(), ServiceError> {
        let linked = wait::until(LINKING, || is_linked(&self.replica).then_some(()));
        linked.ok_or_else(|| self.replica.failed("does not follow its primary"))
    }
}

/// Whether a replica has the data of its primary.
pub(crate) fn is_linked(replica: &Server) -> bool {
    match ask(replica, &["INFO", "replication"]) {
        Ok(Reply::Text(text)) => text.contains("master_link_status:up"),
        Ok(_) | Err(_) => false,
    }
}

/// The only setting here with two words is `replicaof`; on a command line each is one argument,
/// and an empty value is one too.
fn words_of(name: &str, value: &str) -> Vec<String> {
    match name {
        "replicaof" => value.split(' ').map(str::to_owned).collect(),
        _ => vec![value.to_owned()],
    }
}
