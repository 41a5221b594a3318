//! `cargo xtask services`: private servers for a person or a command.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;

use clap::{Args, Subcommand, ValueEnum};
use onceward_services::{
    Connect, Kafka, KafkaCluster, Nats, PgBouncer, Plan, Postgres, Program, Redis, RedisCluster,
    RedisPair, Server, ServiceError, install, plan,
};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Arguments of `cargo xtask services`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Services {
    #[command(flatten)]
    wanted: Wanted,
    /// The same as `list`, and fails if something is missing
    #[arg(long)]
    check: bool,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Args)]
struct Wanted {
    /// Servers to start; without any, all of them
    servers: Vec<Service>,
    /// PostgreSQL does not wait for the disk: faster, and safe from everything but a power cut
    #[arg(long)]
    no_fsync: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Shows what is found where, its version, and what would be installed
    List,
    /// Installs what is missing: Debian packages for root, images where Docker runs, and packages of
    /// pip and Maven, into a cache that all clones share
    Install,
    /// Starts servers, runs a command with their URLs in its environment, stops them, and
    /// returns the command's status
    ///
    /// Examples:
    ///   cargo xtask services run -- env
    ///   cargo xtask services run postgres -- sh -c 'psql "$ONCEWARD_POSTGRES_URL"'
    #[command(verbatim_doc_comment)]
    Run {
        #[command(flatten)]
        wanted: Wanted,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Service {
    /// PostgreSQL
    Postgres,
    /// PgBouncer in transaction mode, before that PostgreSQL
    Pgbouncer,
    /// Redis
    Redis,
    /// Redis with a replica
    RedisReplica,
    /// Redis Cluster: three primaries, three replicas
    RedisCluster,
    /// NATS with JetStream
    Nats,
    /// Apache Kafka, one broker
    Kafka,
    /// Apache Kafka, three nodes
    KafkaCluster,
    /// Kafka Connect with Debezium's connector, beside that PostgreSQL and that one broker
    Connect,
}

/// Runs the subcommand.
pub(crate) fn run(services: Services) -> ExitCode {
    let done = match services.action {
        Some(Action::List) => list(false),
        None if services.check => list(true),
        Some(Action::Install) => install(&Program::ALL).map(|()| ExitCode::SUCCESS),
        Some(Action::Run { wanted, command }) => run_with(&wanted, &command),
        None => until_signal(&services.wanted),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

fn list(strict: bool) -> Result<ExitCode, ServiceError> {
    let plan = plan();
    let mut missing = false;
    for program in Program::ALL {
        match program.find() {
            Ok(found) => {
                let version = found.version(program).unwrap_or_else(|| "no version".to_owned());
                println!("{}: {found}, {version}", program.name());
            }
            Err(_) => {
                missing = true;
                println!("{}: missing; {}", program.name(), how(plan, program));
            }
        }
    }
    Ok(if missing && strict { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn how(plan: Plan, program: Program) -> String {
    let command = plan.command(program);
    if plan.is_automatic(program) {
        format!("`cargo xtask services install` would run {command}")
    } else {
        command
    }
}

/// Runs servers until Ctrl-C.
fn until_signal(wanted: &Wanted) -> Result<ExitCode, ServiceError> {
    // Before the start: from now on a signal ends the wait below, not this process.
    let mut signals = signals()?;
    let running = Running::start(wanted)?;
    running.variables().iter().for_each(|(name, url)| println!("{name}={url}"));
    eprintln!("running until Ctrl-C");
    signals.forever().next();
    drop(running);
    eprintln!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Runs a command beside servers.
fn run_with(wanted: &Wanted, words: &[String]) -> Result<ExitCode, ServiceError> {
    let signals = signals()?;
    let running = Running::start(wanted)?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).envs(running.variables());
    let status = command.spawn().and_then(|child| wait_for(child, signals));
    drop(running);
    match status {
        Ok(status) => Ok(exit_code(status)),
        Err(error) => {
            eprintln!("{}: {error}", words[0]);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The command ends by itself: Ctrl-C reaches it from the terminal, other signals through us.
fn wait_for(mut child: Child, mut signals: Signals) -> io::Result<ExitStatus> {
    let (pid, handle) = (Pid::from_child(&child), signals.handle());
    let forwarding = thread::spawn(move || {
        let others = signals.forever().filter(|signal| *signal != SIGINT);
        for signal in others.filter_map(Signal::from_named_raw) {
            let _has_just_ended = kill_process(pid, signal);
        }
    });
    let status = child.wait();
    handle.close();
    let _never_panics = forwarding.join();
    status
}

fn signals() -> Result<Signals, ServiceError> {
    Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|source| ServiceError::Io { doing: "listening for signals".to_owned(), source })
}

/// As shells do it: 128 and the signal, for a command that was ended by one.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The chosen servers.
#[derive(Debug, Default)]
struct Running {
    postgres: Option<Server>,
    pgbouncer: Option<Server>,
    redis: Option<Server>,
    pair: Option<RedisPair>,
    cluster: Option<RedisCluster>,
    nats: Option<Server>,
    kafka: Option<Server>,
    kafka_cluster: Option<KafkaCluster>,
    connect: Option<Server>,
}

impl Running {
    /// Starts them. Installs missing programs where that needs no password.
    fn start(wanted: &Wanted) -> Result<Self, ServiceError> {
        let services = wanted.services();
        let mut programs: Vec<_> = services.iter().flat_map(|it| it.programs()).copied().collect();
        programs.sort_unstable();
        programs.dedup();
        install(&programs)?;
        let mut running = Self::default();
        for service in services {
            eprintln!("starting {}", service.name());
            running.add(service, wanted)?;
        }
        Ok(running)
    }

    fn add(&mut self, service: Service, wanted: &Wanted) -> Result<(), ServiceError> {
        match service {
            Service::Postgres => drop(self.postgres(wanted)?),
            Service::Pgbouncer => {
                let pgbouncer = PgBouncer::before(self.postgres(wanted)?).start()?;
                self.pgbouncer = Some(pgbouncer);
            }
            Service::Redis => self.redis = Some(Redis::default().start()?),
            Service::RedisReplica => self.pair = Some(Redis::default().start_with_replica()?),
            Service::RedisCluster => {
                self.cluster = Some(RedisCluster::start(&Redis::default())?);
            }
            Service::Nats => self.nats = Some(Nats::default().start()?),
            Service::Kafka => drop(self.kafka()?),
            Service::KafkaCluster => {
                self.kafka_cluster = Some(Kafka::default().start_cluster()?);
            }
            Service::Connect => {
                self.postgres(wanted)?;
                let connect = Connect::to(&self.kafka()?.address()).start()?;
                self.connect = Some(connect);
            }
        }
        Ok(())
    }

    /// Returns PostgreSQL, and starts it if necessary.
    fn postgres(&mut self, wanted: &Wanted) -> Result<&Server, ServiceError> {
        let postgres = match self.postgres.take() {
            Some(postgres) => postgres,
            None => Postgres::default().fsync(!wanted.no_fsync).start()?,
        };
        Ok(self.postgres.insert(postgres))
    }

    /// Returns the single broker, and starts it if necessary.
    fn kafka(&mut self) -> Result<&Server, ServiceError> {
        let kafka = match self.kafka.take() {
            Some(kafka) => kafka,
            None => Kafka::default().start()?,
        };
        Ok(self.kafka.insert(kafka))
    }

    /// Their URLs, by the names of environment variables.
    fn variables(&self) -> Vec<(&'static str, String)> {
        let url = |server: &Server| server.url().to_owned();
        let pair = self.pair.as_ref();
        let all = [
            ("ONCEWARD_POSTGRES_URL", self.postgres.as_ref().map(url)),
            ("ONCEWARD_PGBOUNCER_URL", self.pgbouncer.as_ref().map(url)),
            ("ONCEWARD_REDIS_URL", self.redis.as_ref().map(url)),
            ("ONCEWARD_REDIS_PRIMARY_URL", pair.map(|pair| url(&pair.primary))),
            ("ONCEWARD_REDIS_REPLICA_URL", pair.map(|pair| url(&pair.replica))),
            ("ONCEWARD_REDIS_CLUSTER_URLS", self.cluster.as_ref().map(|it| it.urls().join(","))),
            ("ONCEWARD_NATS_URL", self.nats.as_ref().map(url)),
            ("ONCEWARD_KAFKA_URL", self.kafka.as_ref().map(url)),
            ("ONCEWARD_KAFKA_CLUSTER_URL", self.kafka_cluster.as_ref().map(KafkaCluster::url)),
            ("ONCEWARD_CONNECT_URL", self.connect.as_ref().map(url)),
        ];
        all.into_iter().filter_map(|(name, url)| Some((name, url?))).collect()
    }
}

impl Wanted {
    /// Each once, after the servers that it needs.
    fn services(&self) -> Vec<Service> {
        let mut services = self.servers.clone();
        if services.is_empty() {
            services = Service::value_variants().to_vec();
        }
        services.sort_unstable();
        services.dedup();
        services
    }
}

impl Service {
    const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Pgbouncer => "PgBouncer",
            Self::Redis => "Redis",
            Self::RedisReplica => "Redis with a replica",
            Self::RedisCluster => "Redis Cluster",
            Self::Nats => "NATS",
            Self::Kafka => "Kafka",
            Self::KafkaCluster => "Kafka cluster",
            Self::Connect => "Kafka Connect",
        }
    }

    const fn programs(self) -> &'static [Program] {
        match self {
            Self::Postgres => &[Program::Postgres],
            Self::Pgbouncer => &[Program::Postgres, Program::PgBouncer],
            Self::Redis | Self::RedisReplica | Self::RedisCluster => &[Program::Redis],
            Self::Nats => &[Program::Nats],
            Self::Kafka | Self::KafkaCluster => &[Program::JavaRuntime, Program::Kafka],
            Self::Connect => &[Program::Postgres, Program::JavaRuntime, Program::Kafka],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(servers: &[Service]) -> Vec<Service> {
        Wanted { servers: servers.to_vec(), no_fsync: false }.services()
    }

    #[test]
    fn nothing_asked_for_is_everything() {
        assert_eq!(wanted(&[]), Service::value_variants());
    }

    #[test]
    fn postgres_starts_once_and_before_what_needs_it() {
        use Service::{Connect, Kafka, Pgbouncer, Postgres};
        assert_eq!(wanted(&[Pgbouncer, Postgres, Pgbouncer]), [Postgres, Pgbouncer]);
        assert_eq!(wanted(&[Connect, Kafka, Postgres]), [Postgres, Kafka, Connect]);
    }

    #[test]
    fn a_command_ended_by_a_signal_returns_what_a_shell_would() {
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), ExitCode::from(7));
        assert_eq!(exit_code(ExitStatus::from_raw(15)), ExitCode::from(143));
    }
}
