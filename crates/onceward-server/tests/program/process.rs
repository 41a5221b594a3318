//! The program as a process that is killed at the end of its test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `onceward`, running.
pub(crate) struct Program {
    child: Child,
    /// Output until it was ready.
    pub(crate) printed: String,
    /// Later lines, read by a thread so that the program never blocks on its output.
    rest: std::sync::mpsc::Receiver<String>,
}

impl Program {
    /// Starts the program and waits for a line that contains `ready`.
    pub(crate) fn start(arguments: &[&str], ready: &str) -> Self {
        Self::start_logging(arguments, ready, Stdio::inherit())
    }

    /// The same, with another destination for logs.
    pub(crate) fn start_logging(arguments: &[&str], ready: &str, logs: Stdio) -> Self {
        Self::start_with(arguments, ready, logs, &[])
    }

    /// The same, with environment variables.
    pub(crate) fn start_with(
        arguments: &[&str],
        ready: &str,
        logs: Stdio,
        variables: &[(&str, &str)],
    ) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onceward"))
            .args(arguments)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(logs)
            .spawn()
            .unwrap();
        let (lines, rest) = std::sync::mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
        let mut program = Self { child, printed: String::new(), rest };
        program.read_until(ready);
        program
    }

    /// Starts a gateway with its store in a directory.
    pub(crate) fn gateway(upstream: SocketAddr, data: &Path, listen: &str, more: &[&str]) -> Self {
        Self::before(upstream, data, listen, more, Stdio::inherit())
    }

    /// The same on a free port, with logs in a file.
    pub(crate) fn gateway_logging(
        upstream: SocketAddr,
        data: &Path,
        more: &[&str],
        logs: &Path,
    ) -> Self {
        let logs = std::fs::File::create(logs).unwrap();
        Self::before(upstream, data, "127.0.0.1:0", more, logs.into())
    }

    /// Starts a gateway on a free port, with a store that others may share.
    pub(crate) fn gateway_on(upstream: SocketAddr, store: &str, more: &[&str]) -> Self {
        Self::before_on(upstream, store, "127.0.0.1:0", more, Stdio::inherit())
    }

    fn before(upstream: SocketAddr, data: &Path, listen: &str, more: &[&str], logs: Stdio) -> Self {
        Self::before_on(upstream, &format!("file:{}", data.display()), listen, more, logs)
    }

    fn before_on(
        upstream: SocketAddr,
        store: &str,
        listen: &str,
        more: &[&str],
        logs: Stdio,
    ) -> Self {
        let upstream = format!("http://{upstream}");
        let mut arguments =
            vec!["gateway", "--upstream", &upstream, "--store", store, "--listen", listen];
        arguments.extend(["--single-tenant"]);
        arguments.extend(more);
        Self::start_logging(&arguments, "→", logs)
    }

    fn read_until(&mut self, ready: &str) {
        let end = Instant::now() + Duration::from_secs(30);
        while !self.printed.contains(ready) {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.rest.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("not ready, but: {}", self.printed));
            self.printed += &line;
            self.printed.push('\n');
        }
    }

    /// Address of its first listener, from its output.
    pub(crate) fn address(&self) -> SocketAddr {
        let after = self.printed.split("http://").nth(1).unwrap();
        after.split([' ', '/', '\n']).next().unwrap().parse().unwrap()
    }

    /// Response of the admin address to a GET.
    pub(crate) fn admin(&self, path: &str) -> String {
        let address = self.printed.split("metrics at http://").nth(1).expect("an admin address");
        let mut stream = TcpStream::connect(address.split('/').next().unwrap()).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Peak memory so far.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// CPU time so far, in hundredths of a second.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end, and returns success and its remaining output.
    pub(crate) fn wait(mut self) -> (bool, String) {
        let success = self.child.wait().unwrap().success();
        (success, self.rest.iter().collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _may_have_ended = self.child.kill();
        let _exit_status = self.child.wait();
    }
}

/// Runs a command to its end, and returns success and its output.
pub(crate) fn run(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_onceward")).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

/// An unused port.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
