//! One server in its own process, and its use of the machine.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio_postgres::NoTls;

use crate::Fallible;
use crate::subject::Subject;

/// Connections to the database: more would only wait for each other there.
const POOLED: usize = 16;

/// Serves until the process is ended; the address is the first line on standard output.
pub(crate) async fn serve(subject: Subject, database: Option<&str>) -> Fallible<()> {
    let database = database.map(pool).transpose()?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    Ok(axum::serve(listener, subject.router(database)?).await?)
}

fn pool(url: &str) -> Fallible<Pool> {
    let manager = Manager::new(url.parse()?, NoTls);
    Ok(Pool::builder(manager).max_size(POOLED).build()?)
}

/// A running server; dropped, it is gone.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
}

/// Resources that a process has used so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) resident_bytes: u64,
}

impl Server {
    /// A fresh process, which finds memory that this machine has at hand.
    ///
    /// A virtual machine may give unused memory back to its host within seconds, and
    /// wait for it page by page when it is used again: here 3 microseconds a kilobyte, beside
    /// 0.15 else. Which server has to wait would be chance, so none has to.
    pub(crate) async fn start(subject: Subject, database: Option<&str>) -> Fallible<Self> {
        let touched = Command::new(std::env::current_exe()?).arg("touch").status().await?;
        if !touched.success() {
            return Err("cannot take a gibibyte of memory".into());
        }
        let mut process = Command::new(std::env::current_exe()?)
            .args(["serve", subject.name()])
            .args(database)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let out = process.stdout.take().ok_or("the server has no standard output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).await?;
        Ok(Self { process, address: line.trim().parse()? })
    }

    pub(crate) async fn stop(mut self) -> Fallible<()> {
        Ok(self.process.kill().await?)
    }

    pub(crate) fn usage(&self) -> Fallible<Usage> {
        let pid = self.process.id().ok_or("the server has ended by itself")?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let unread = || format!("cannot read the usage of process {pid}");
        Ok(Usage {
            cpu: cpu(&stat).ok_or_else(unread)?,
            resident_bytes: resident_bytes(&status).ok_or_else(unread)?,
        })
    }
}

/// Linux counts processor time in hundredths of a second here, whatever its own tick is.
const TICK: Duration = Duration::from_millis(10);

/// The sum of user and system time, fields 14 and 15 of `stat`.
fn cpu(stat: &str) -> Option<Duration> {
    let (_pid_and_name, rest) = stat.rsplit_once(')')?;
    let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
    Some(TICK * ticks.sum::<Result<u32, _>>().ok()?)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}
