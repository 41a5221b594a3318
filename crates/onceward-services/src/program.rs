//! The programs of the servers, and what they are called elsewhere.

/// A program that has to be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// `postgres`, with `initdb` and `psql`.
    Postgres,
    /// `pgbouncer`.
    PgBouncer,
    /// `redis-server`, or `valkey-server`.
    Redis,
    /// `nats-server`.
    Nats,
    /// `java`, at least version 17.
    JavaRuntime,
    /// Jars of Kafka's broker, Kafka Connect and Debezium's connector for PostgreSQL.
    Kafka,
    /// `promtool`, which checks alert rules.
    Promtool,
    /// `systemd-analyze`, which checks units.
    SystemdAnalyze,
    /// `python3`, with `venv`.
    Python,
    /// `npm`, with `node`.
    Npm,
    /// `go`.
    Go,
    /// `javac`, with `java`.
    Java,
    /// `mvn`.
    Maven,
}

impl Program {
    /// Servers, and what is installed with them.
    pub const ALL: [Self; 7] = [
        Self::Postgres,
        Self::PgBouncer,
        Self::Redis,
        Self::Nats,
        Self::JavaRuntime,
        Self::Kafka,
        Self::Promtool,
    ];

    /// Tools of single tests, which come from no image: a checker of units, and the languages of
    /// client libraries.
    pub const TOOLS: [Self; 6] =
        [Self::SystemdAnalyze, Self::Python, Self::Npm, Self::Go, Self::Java, Self::Maven];

    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::PgBouncer => "PgBouncer",
            Self::Redis => "Redis",
            Self::Nats => "NATS",
            Self::JavaRuntime => "Java (17 or later)",
            Self::Kafka => "Apache Kafka",
            Self::Promtool => "promtool",
            Self::SystemdAnalyze => "systemd-analyze",
            Self::Python => "Python",
            Self::Npm => "npm",
            Self::Go => "Go",
            Self::Java => "a JDK",
            Self::Maven => "Maven",
        }
    }

    /// Names of its executable, the first one also inside of its image.
    pub(crate) const fn executables(self) -> &'static [&'static str] {
        match self {
            Self::Postgres => &["postgres"],
            Self::PgBouncer => &["pgbouncer"],
            Self::Redis => &["redis-server", "valkey-server"],
            Self::Nats => &["nats-server"],
            Self::JavaRuntime => &["java"],
            Self::Kafka => &[],
            Self::Promtool => &["promtool"],
            Self::SystemdAnalyze => &["systemd-analyze"],
            Self::Python => &["python3"],
            Self::Npm => &["npm"],
            Self::Go => &["go"],
            Self::Java => &["javac"],
            Self::Maven => &["mvn"],
        }
    }

    /// Its Debian package, if it has one.
    pub(crate) const fn package(self) -> Option<&'static str> {
        match self {
            Self::Postgres => Some("postgresql"),
            Self::PgBouncer => Some("pgbouncer"),
            Self::Redis => Some("redis-server"),
            Self::Nats => Some("nats-server"),
            Self::JavaRuntime => Some("default-jre-headless"),
            Self::Kafka => None,
            Self::Promtool => Some("prometheus"),
            Self::SystemdAnalyze => Some("systemd"),
            Self::Python => Some("python3-venv"),
            Self::Npm => Some("npm"),
            Self::Go => Some("golang-go"),
            Self::Java => Some("default-jdk-headless"),
            Self::Maven => Some("maven"),
        }
    }

    /// Its Docker image, if it has one.
    pub(crate) const fn image(self) -> Option<&'static str> {
        match self {
            Self::Postgres => Some("postgres:17"),
            Self::PgBouncer => Some("edoburu/pgbouncer:latest"),
            Self::Redis => Some("redis:7.4"),
            Self::Nats => Some("nats:2.12-alpine"),
            Self::Promtool => Some("prom/prometheus:latest"),
            Self::JavaRuntime
            | Self::Kafka
            | Self::SystemdAnalyze
            | Self::Python
            | Self::Npm
            | Self::Go
            | Self::Java
            | Self::Maven => None,
        }
    }
}
