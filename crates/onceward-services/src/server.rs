//! A running server: stop, kill, pause, start again.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::ServiceError;
use crate::found::{Found, succeeds};
use crate::home::Home;
use crate::launch::Launch;
use crate::{tree, wait};

/// Limit of a start: ten times the time of the slowest, a Kafka cluster, on a busy machine with two
/// cores. A server that exits is noticed at once.
const STARTING: Duration = Duration::from_secs(120);
/// Limit of a stop before the server is killed: ten times the time of a Kafka broker there.
const STOPPING: Duration = Duration::from_secs(30);
/// How much of a log an error shows.
const TAIL_LINES: usize = 20;

/// A private server. Dropped, it is killed; the last one of its directory removes that.
///
/// All calls block, and may come from any thread.
#[derive(Debug)]
pub struct Server {
    recipe: Recipe,
    home: Arc<Home>,
    running: Mutex<Option<Running>>,
}

/// The way to start a server.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// Unique in its home; names its files.
    pub(crate) name: String,
    pub(crate) found: Found,
    pub(crate) executable: &'static str,
    pub(crate) arguments: Vec<String>,
    pub(crate) port: u16,
    pub(crate) url: String,
    pub(crate) ready: Ready,
    pub(crate) stop: Stop,
}

/// The way to see that a server is ready.
#[derive(Debug)]
pub(crate) enum Ready {
    /// Text that it logs. A log has one writer, while another process may answer on the port.
    Logs(&'static str),
    /// Its answer to a request.
    Answers(Box<dyn Probe>),
}

/// A request that shows whether a server is ready.
pub(crate) trait Probe: fmt::Debug + Send + Sync {
    /// Returns true if the server is ready, and false if it does not answer. Another process may
    /// have taken the port; the probe must not accept its answers.
    ///
    /// # Errors
    ///
    /// If the server will never be ready, with the reason.
    fn is_ready(&self) -> Result<bool, String>;
}

/// The way to stop a server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    /// A signal.
    Signal(Signal),
    /// A request to its port. After it, a kill loses no data.
    Request(fn(u16) -> io::Result<()>),
    /// It is killed, because it keeps no data.
    Kill,
}

#[derive(Debug)]
struct Running {
    child: Child,
    container: Option<String>,
    /// How long the log was before this life.
    log_begin: u64,
}

impl Server {
    /// Starts a server in a home.
    pub(crate) fn new(home: &Arc<Home>, recipe: Recipe) -> Result<Self, ServiceError> {
        let server = Self::stopped(home, recipe);
        server.start()?;
        Ok(server)
    }

    /// Returns a server that is not started yet.
    pub(crate) fn stopped(home: &Arc<Home>, recipe: Recipe) -> Self {
        Self { recipe, home: Arc::clone(home), running: Mutex::new(None) }
    }

    /// Where clients connect to; the same after every start.
    pub fn url(&self) -> &str {
        &self.recipe.url
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.recipe.port
    }

    /// Its `host:port`, the format of Kafka's clients; the same after every start.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// The temporary directory that it lives in, with its log; removed at the end.
    pub fn directory(&self) -> &Path {
        self.home.directory()
    }

    /// Its log, all lives together.
    pub fn log(&self) -> PathBuf {
        self.directory().join(format!("{}.log", self.recipe.name))
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        tail(&read_from(&self.log(), 0))
    }

    /// Whether its process is there; paused counts.
    pub fn is_running(&self) -> bool {
        self.running().as_mut().is_some_and(Running::is_alive)
    }

    /// Starts it again, on the same port and with the same data, and returns when it is ready.
    /// Does nothing if it runs.
    ///
    /// # Errors
    ///
    /// If it ends or is not ready in time, with the end of its log.
    pub fn start(&self) -> Result<(), ServiceError> {
        let mut running = self.running();
        if running.as_mut().is_some_and(Running::is_alive) {
            return Ok(());
        }
        let started = running.insert(self.spawn()?);
        match wait::until(STARTING, || self.progress(started)) {
            Some(Progress::Ready) => Ok(()),
            Some(Progress::Failed(why)) => Err(self.failed(why)),
            Some(Progress::Ended) => Err(self.failed("ended while it started")),
            None => Err(self.failed("was not ready in time")),
        }
    }

    /// Ends it in good order and returns when it is gone. Its data stays for the next start.
    ///
    /// # Errors
    ///
    /// If it had to be killed.
    pub fn stop(&self) -> Result<(), ServiceError> {
        let mut slot = self.running();
        let Some(running) = slot.as_mut() else { return Ok(()) };
        match self.recipe.stop {
            Stop::Request(finish) if running.is_alive() => {
                running.resume();
                let finished = finish(self.port());
                let killed = self.end(&mut slot);
                finished.map_err(|error| self.failed(format!("did not stop: {error}"))).and(killed)
            }
            Stop::Request(_) | Stop::Kill => self.end(&mut slot),
            Stop::Signal(signal) => {
                running.resume();
                running.signal(signal);
                let ended = wait::until(STOPPING, || (!running.is_alive()).then_some(()));
                let killed = self.end(&mut slot);
                ended.map_or_else(|| Err(self.failed("did not stop in time")), |()| killed)
            }
        }
    }

    /// Kills it with all its processes at once, as `kill -9` or a power cut of the process
    /// does, and returns when they are gone. Its data stays for the next start.
    ///
    /// # Errors
    ///
    /// If the system does not end it.
    pub fn kill(&self) -> Result<(), ServiceError> {
        self.end(&mut self.running())
    }

    /// Stops it in good order and starts it again.
    ///
    /// # Errors
    ///
    /// As [`stop`](Self::stop) and [`start`](Self::start).
    pub fn restart(&self) -> Result<(), ServiceError> {
        self.stop()?;
        self.start()
    }

    /// Pauses it with all its processes (SIGSTOP), and returns when they are stopped: connections
    /// stay open, nothing answers.
    pub fn pause(&self) {
        if let Some(running) = self.running().as_ref() {
            running.pause();
        }
    }

    /// Lets it go on after a pause (SIGCONT).
    pub fn resume(&self) {
        if let Some(running) = self.running().as_ref() {
            running.resume();
        }
    }

    /// An error about this server, with the end of its log.
    pub(crate) fn failed(&self, what: impl Into<String>) -> ServiceError {
        let log = format!("{}:\n{}", self.log().display(), self.log_tail());
        ServiceError::Failed { server: self.recipe.name.clone(), what: what.into(), log }
    }

    /// For programs that are run beside the server.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self) -> Result<Running, ServiceError> {
        let log_begin = fs::metadata(self.log()).map_or(0, |data| data.len());
        let mut launched = self.launch().command()?;
        let log = append_to(&self.log())?;
        let again = log.try_clone().map_err(ServiceError::io("opening a log"))?;
        launched.command.stdout(log).stderr(again);
        let doing = format!("starting {}", self.recipe.name);
        let child = launched.command.spawn().map_err(ServiceError::io(doing))?;
        Ok(Running { child, container: launched.container, log_begin })
    }

    fn launch(&self) -> Launch<'_> {
        Launch {
            home: &self.home,
            name: &self.recipe.name,
            found: &self.recipe.found,
            executable: self.recipe.executable,
            arguments: &self.recipe.arguments,
        }
    }

    fn progress(&self, running: &mut Running) -> Option<Progress> {
        // Looked at first: a process that exited has written all of its log.
        if !running.is_alive() {
            return Some(Progress::Ended);
        }
        let ready = match &self.recipe.ready {
            Ready::Logs(words) => Ok(read_from(&self.log(), running.log_begin).contains(words)),
            Ready::Answers(probe) => probe.is_ready(),
        };
        match ready {
            Ok(true) => Some(Progress::Ready),
            Ok(false) => None,
            Err(why) => Some(Progress::Failed(why)),
        }
    }

    fn end(&self, slot: &mut Option<Running>) -> Result<(), ServiceError> {
        let Some(mut running) = slot.take() else { return Ok(()) };
        let ended = running.kill();
        // So that the guard never kills another process that got this id.
        let _was_never_written = fs::remove_file(self.launch().pid_file());
        if ended { Ok(()) } else { Err(self.failed("cannot be killed")) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ignored = self.kill();
    }
}

enum Progress {
    Ready,
    Failed(String),
    Ended,
}

impl Running {
    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn signal(&self, signal: Signal) {
        match &self.container {
            None => tree::signal(self.child.id(), signal),
            Some(name) => {
                docker(&["kill", "--signal", &signal.as_raw().to_string(), name]);
            }
        }
    }

    fn pause(&self) {
        match &self.container {
            None => tree::wait_until_stopped(&tree::pause(self.child.id())),
            Some(name) => drop(docker(&["pause", name])),
        }
    }

    fn resume(&self) {
        match &self.container {
            None => tree::resume(self.child.id()),
            Some(name) => drop(docker(&["unpause", name])),
        }
    }

    /// Whether all of it is gone.
    fn kill(&mut self) -> bool {
        if let Some(name) = &self.container {
            docker(&["rm", "--force", name]);
        }
        // A child that was waited for has given its id back: it may be another's by now.
        let others = if self.is_alive() { tree::kill(self.child.id()) } else { Default::default() };
        self.child.wait().is_ok() && tree::all_ended(&others)
    }
}

fn docker(words: &[&str]) -> bool {
    succeeds(Command::new("docker").args(words))
}

fn append_to(log: &Path) -> Result<File, ServiceError> {
    let opened = OpenOptions::new().create(true).append(true).open(log);
    opened.map_err(ServiceError::io(format!("opening {}", log.display())))
}

fn read_from(log: &Path, begin: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        file.seek(SeekFrom::Start(begin))?;
        file.read_to_end(&mut bytes)
    });
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the last lines, without the frames of Java's stack traces, which would hide the errors.
pub(crate) fn tail(log: &str) -> String {
    let is_frame = |line: &&str| line.starts_with("\tat ") || line.starts_with("\t... ");
    let lines: Vec<_> = log.lines().filter(|line| !is_frame(line)).collect();
    let begin = lines.len().saturating_sub(TAIL_LINES);
    lines[begin..].iter().map(|line| format!("    {line}\n")).collect()
}
