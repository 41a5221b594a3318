//! Real servers: started, asked, killed, paused, and gone in the end.

mod kafka;
mod nats;
mod support;

use std::env;
use std::io::{BufRead, BufReader};
use std::panic;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use onceward_services::{
    Kafka, Nats, PgBouncer, Postgres, Program, Redis, Reply, Server, ServiceError, ask, kafka,
    nats, or_skip, pgbouncer, postgres, query, query_in, redis, redis_cluster, redis_with_replica,
};
use support::{SharedMemory, eventually, nothing_is_left, processes_in};

/// Where it does not matter what a crash of the machine would do.
fn fast_postgres() -> Option<Server> {
    or_skip(Postgres::default().fsync(false).setting("max_connections", "27").start())
}

#[test]
fn postgres_keeps_what_it_committed_when_it_is_killed() {
    let Some(postgres) = postgres() else { return };
    query(&postgres, "create table t (n int); insert into t values (42)").unwrap();
    assert_eq!(query(&postgres, "show fsync").unwrap(), "on");
    let url = postgres.url().to_owned();
    postgres.kill().unwrap();
    assert!(!postgres.is_running());
    assert_eq!(processes_in(postgres.directory()), 0, "killed with all its processes");
    query(&postgres, "select 1").unwrap_err();
    postgres.start().unwrap();
    assert_eq!(postgres.url(), url);
    assert_eq!(query(&postgres, "select n from t").unwrap(), "42");
    postgres.restart().unwrap();
    assert_eq!(query(&postgres, "select n from t").unwrap(), "42");
}

#[test]
fn a_paused_postgres_answers_when_it_is_resumed() {
    let Some(postgres) = fast_postgres() else { return };
    postgres.pause();
    assert!(postgres.is_running());
    query(&postgres, "select 1").unwrap_err();
    postgres.resume();
    assert_eq!(query(&postgres, "select 1").unwrap(), "1");
    postgres.pause();
    postgres.stop().expect("a paused server can be stopped in good order");
    assert_eq!(processes_in(postgres.directory()), 0);
}

#[test]
fn pgbouncer_gives_each_transaction_a_connection() {
    let Some(postgres) = fast_postgres() else { return };
    let Some(pgbouncer) = pgbouncer(&postgres) else { return };
    assert_eq!(query(&pgbouncer, "show fsync").unwrap(), "off", "the settings are of this one");
    assert_eq!(query(&pgbouncer, "show max_connections").unwrap(), "27");
    let config = query_in(&pgbouncer, "pgbouncer", "show config").unwrap();
    assert!(config.contains("pool_mode|transaction"), "{config}");
    pgbouncer.kill().unwrap();
    pgbouncer.start().unwrap();
    postgres.restart().unwrap();
    let answers = || query(&pgbouncer, "select 1").is_ok_and(|answer| answer == "1");
    assert!(eventually(answers), "finds PostgreSQL again");
    pgbouncer.stop().unwrap();
    assert_eq!(processes_in(pgbouncer.directory()), 0);
    let wrong = PgBouncer::before(&postgres).setting("pool_mode", "nonsense").start();
    assert!(wrong.unwrap_err().to_string().contains("pool_mode"));
}

#[test]
fn redis_keeps_what_it_answered_when_it_is_killed() {
    let Some(redis) = redis() else { return };
    assert_eq!(ask(&redis, &["PING"]).unwrap(), "PONG".into());
    assert_eq!(ask(&redis, &["SET", "a", "b"]).unwrap(), "OK".into());
    redis.kill().unwrap();
    ask(&redis, &["PING"]).unwrap_err();
    redis.start().unwrap();
    assert_eq!(ask(&redis, &["GET", "a"]).unwrap(), "b".into());
    redis.restart().unwrap();
    assert_eq!(ask(&redis, &["GET", "a"]).unwrap(), "b".into());
    redis.pause();
    redis.resume();
    assert_eq!(ask(&redis, &["PING"]).unwrap(), "PONG".into());
}

#[test]
fn redis_comes_back_empty_if_it_is_told_to() {
    let Some(redis) = or_skip(Redis::default().persistent(false).start()) else { return };
    assert_eq!(ask(&redis, &["SET", "a", "b"]).unwrap(), "OK".into());
    redis.kill().unwrap();
    redis.start().unwrap();
    assert_eq!(ask(&redis, &["GET", "a"]).unwrap(), Reply::Nil);
}

#[test]
fn a_replica_follows_its_primary_and_can_be_promoted() {
    let Some(pair) = redis_with_replica() else { return };
    ask(&pair.primary, &["SET", "a", "b"]).unwrap();
    let copied = || ask(&pair.replica, &["GET", "a"]).is_ok_and(|reply| reply == "b".into());
    assert!(eventually(copied));
    pair.primary.kill().unwrap();
    assert_eq!(ask(&pair.replica, &["REPLICAOF", "NO", "ONE"]).unwrap(), "OK".into());
    assert_eq!(ask(&pair.replica, &["SET", "a", "c"]).unwrap(), "OK".into());
}

#[test]
fn a_cluster_serves_all_slots_and_replaces_a_killed_primary() {
    let Some(cluster) = redis_cluster() else { return };
    assert_eq!(cluster.urls().len(), 6);
    let info = |node: usize| ask(&cluster.nodes[node], &["CLUSTER", "INFO"]);
    assert!(format!("{:?}", info(5).unwrap()).contains("cluster_slots_ok:16384"));
    cluster.nodes[0].kill().unwrap();
    let promoted = || {
        let role = ask(&cluster.nodes[3], &["ROLE"]).unwrap();
        matches!(role, Reply::List(parts) if parts[0] == "master".into())
    };
    assert!(eventually(promoted), "node 3 follows node 0 and takes its place");
    cluster.nodes[0].start().unwrap();
    cluster.wait_until_ok().unwrap();
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_directory() {
    let Some(postgres) = fast_postgres() else { return };
    let Some(pgbouncer) = pgbouncer(&postgres) else { return };
    let Some(cluster) = redis_cluster() else { return };
    let memory = SharedMemory::of(&postgres);
    let servers = [&postgres, &pgbouncer, &cluster.nodes[0]];
    let directories = servers.map(|server| server.directory().to_owned());
    cluster.nodes[1].pause();
    assert!(directories.iter().all(|directory| processes_in(directory) > 0));
    assert!(memory.as_ref().is_none_or(SharedMemory::exists));
    drop((postgres, pgbouncer, cluster));
    for directory in directories {
        assert_eq!(processes_in(&directory), 0);
        assert!(!directory.exists());
    }
    assert!(!memory.is_some_and(|memory| memory.exists()), "which a kill alone would leave");
}

#[test]
fn a_panic_leaves_no_process_and_no_directory() {
    let Some(redis) = redis() else { return };
    let directory = redis.directory().to_owned();
    let panicked = panic::catch_unwind(panic::AssertUnwindSafe(move || {
        assert!(!redis.is_running(), "on purpose");
    }));
    assert!(panicked.is_err());
    assert!(nothing_is_left(&directory));
}

/// Not a test of its own: the process that the next tests end.
#[test]
fn parent_to_be_ended() {
    let Ok(wanted) = env::var("ONCEWARD_PARENT_TO_BE_ENDED") else { return };
    let all = [("postgres", postgres as fn() -> Option<Server>), ("kafka", kafka), ("nats", nats)];
    let all = all.into_iter().filter(|(name, _)| wanted.contains(name));
    let servers: Vec<_> = all.map(|(_, start)| start().unwrap()).collect();
    let pair = redis_with_replica().unwrap();
    pair.replica.pause();
    for server in servers.iter().chain([&pair.primary]) {
        println!("directory {}", server.directory().display());
    }
    println!("ready");
    loop {
        thread::park();
    }
}

#[test]
fn a_parent_killed_with_9_leaves_no_process_and_no_directory() {
    let wanted = [Program::Postgres, Program::Redis];
    if wanted.into_iter().all(|program| or_skip(program.find()).is_some()) {
        ended_parent_leaves_nothing("KILL", "postgres and redis", 2);
    }
}

#[test]
fn a_parent_killed_with_9_leaves_neither_kafka_nor_nats() {
    let wanted = [Program::Kafka, Program::Nats, Program::Redis];
    if wanted.into_iter().all(|program| or_skip(program.find()).is_some()) {
        ended_parent_leaves_nothing("KILL", "kafka, nats and redis", 3);
    }
}

#[test]
fn ctrl_c_leaves_no_process_and_no_directory() {
    if or_skip(Program::Redis.find()).is_some() {
        ended_parent_leaves_nothing("INT", "redis", 1);
    }
}

fn ended_parent_leaves_nothing(signal: &str, wanted: &str, homes: usize) {
    let mut parent = spawn_parent(wanted);
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let lines: Vec<_> = lines.map(Result::unwrap).take_while(|line| line != "ready").collect();
    let directory = |line: &String| Some(PathBuf::from(line.split_once("directory ")?.1));
    let directories: Vec<_> = lines.iter().filter_map(directory).collect();
    assert_eq!(directories.len(), homes, "{lines:?}");
    assert!(directories.iter().all(|directory| processes_in(directory) > 0));
    let pid = parent.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    let ended = eventually(|| parent.try_wait().unwrap().is_some());
    if !ended {
        parent.kill().unwrap();
    }
    assert!(ended, "SIG{signal} ended nothing: a shell without job control ignores SIGINT");
    for directory in directories {
        assert!(nothing_is_left(&directory), "{}", directory.display());
    }
}

fn spawn_parent(wanted: &str) -> Child {
    let mut parent = Command::new(env::current_exe().unwrap());
    parent.args(["--exact", "parent_to_be_ended", "--nocapture", "--test-threads=1"]);
    parent.env("ONCEWARD_PARENT_TO_BE_ENDED", wanted);
    parent.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_server_that_cannot_start_shows_the_end_of_its_log() {
    let wrong = [
        (Postgres::default().setting("no_such_setting", "1").start(), "no_such_setting"),
        (Redis::default().setting("no-such-setting", "1").start(), "no-such-setting"),
        (Nats::default().setting("no_such_setting", "1").start(), "no_such_setting"),
        (Kafka::default().property("log.retention.ms", "long").start(), "log.retention.ms"),
    ];
    for (started, reason) in wrong {
        match started {
            Err(ServiceError::Failed { log, .. }) => assert!(log.contains(reason), "{log}"),
            other => assert!(or_skip(other).is_none(), "it cannot start"),
        }
    }
}
