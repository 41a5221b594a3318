//! Attacks on the running gateway, with their cost in memory. The service behind it records what
//! reaches it, and another client is served meanwhile.

mod bodies;
mod frames;
mod heads;
mod http2;
mod slow;
mod smuggling;
mod strict_service;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process::Program;
use strict_service::StrictService;

/// Returns whether to run the full length (`ONCEWARD_LONG=1`) instead of a shortened one.
pub(crate) fn long() -> bool {
    std::env::var("ONCEWARD_LONG").is_ok_and(|long| long == "1")
}

/// A gateway under attack.
struct Target {
    service: StrictService,
    program: Program,
    _data: TempDir,
    /// Memory before the attack.
    memory_kib: u64,
}

impl Target {
    fn start() -> Self {
        Self::with("")
    }

    fn with(settings: &str) -> Self {
        allow_many_files();
        let (service, data) = (StrictService::start(), tempfile::tempdir().unwrap());
        let config = data.path().join("onceward.toml");
        std::fs::write(&config, settings).unwrap();
        let (records, config) = (data.path().join("records"), config.to_str().unwrap());
        let more = ["--config", config];
        let program = Program::gateway(service.address, &records, "127.0.0.1:0", &more);
        let memory_kib = program.memory_kib();
        Self { service, program, _data: data, memory_kib }
    }

    fn address(&self) -> SocketAddr {
        self.program.address()
    }

    fn connect(&self) -> TcpStream {
        connect(self.address())
    }

    /// Sends bytes on a new connection and returns everything that comes back.
    fn send(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        let _it_may_be_closed_before_all_is_sent = stream.write_all(request);
        read_all(&mut stream)
    }

    /// Prints and limits the growth of peak memory since the start, in MiB.
    fn grown(&self, what: &str, most_mib: u64) {
        let now = self.program.memory_kib();
        let grown = now.saturating_sub(self.memory_kib) / 1024;
        println!("THREAT {what}: at most {} MiB, {grown} MiB more than before", now / 1024);
        assert!(grown <= most_mib, "{what}: grown by {grown} MiB");
    }
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Reads until the other side closes or resets the connection, or the timeout passes.
fn read_all(stream: &mut TcpStream) -> String {
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut part) {
        all.extend_from_slice(&part[..read]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Raises the test's own limit, which is often 1024, as the gateway does.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

fn post(path: &str, key: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: shop\r\nidempotency-key: {key}\r\n{headers}\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Status of the first response.
fn status(response: &str) -> u16 {
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_default()
}

/// A client that sends continuously, to measure whether others are served.
struct Bystander {
    stop: Arc<AtomicBool>,
    times: thread::JoinHandle<Vec<Duration>>,
}

impl Bystander {
    fn start(to: SocketAddr) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let times = thread::spawn(move || {
            let (mut times, mut number) = (Vec::new(), 0);
            while !stopped.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let mut stream = connect(to);
                let head = "connection: close\r\n";
                let request = post("/bystander", &format!("bystander-{number}"), head, "{}");
                stream.write_all(request.as_bytes()).unwrap();
                let answer = read_all(&mut stream);
                assert_eq!(status(&answer), 200, "a bystander got {answer:?}");
                times.push(begun.elapsed());
                number += 1;
                thread::sleep(Duration::from_millis(1));
            }
            times
        });
        Self { stop, times }
    }

    /// Stops the client, checks its latencies and prints them.
    fn end(self, what: &str) {
        self.stop.store(true, Ordering::Relaxed);
        let mut times = self.times.join().expect("a bystander is served");
        times.sort();
        let (median, slow) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        let count = times.len();
        println!("THREAT {what}: {count} requests of others, median {median:?}, p99 {slow:?}");
        assert!(slow < Duration::from_secs(2), "{what}: others wait for {slow:?}");
    }
}
