//! The service as a child process, which the test kills.

use std::env;
use std::process::Stdio;
use std::time::Duration;

use example_cases::{CaseService, Checkpoint, Settings};
use example_walk::App;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::test_store::{LEASE, TestStore};

/// Time limit for a line of the child. Only a child that hangs exceeds it.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);

const STOPPED: &str = "ready to be killed";

/// Point at which a process stops, to be killed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CrashPoint {
    pub(crate) checkpoint: Checkpoint,
    /// The item, or an empty text.
    pub(crate) item: &'static str,
}

/// A running service.
pub(crate) struct CaseProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) app: App,
}

impl CaseProcess {
    pub(crate) async fn start(store: &TestStore, stop_at: Option<CrashPoint>) -> Self {
        Self::start_with(store, stop_at, Settings::default().bulk_items_max).await
    }

    pub(crate) async fn start_with(
        store: &TestStore,
        stop_at: Option<CrashPoint>,
        items_max: usize,
    ) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        let test = concat!(module_path!(), "::a_service_to_be_killed");
        let test = test.split_once("::").expect("a module of the tests").1;
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
        let stop_at = stop_at.map_or(String::new(), |CrashPoint { checkpoint, item }| {
            format!("{checkpoint:?} {item}")
        });
        command.env("CASES_STORE", store.url()).env("CASES_STOP_AT", stop_at);
        command.env("CASES_ITEMS_MAX", items_max.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = line_with(&mut lines, "listening on ").await;
        let address = line.split_once("listening on ").unwrap().1;
        Self { child, lines, app: App::at(address) }
    }

    /// Waits until the service has stopped at its crash point.
    pub(crate) async fn stopped(&mut self) {
        line_with(&mut self.lines, STOPPED).await;
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

async fn line_with(lines: &mut Lines<BufReader<ChildStdout>>, text: &str) -> String {
    loop {
        let line = timeout(LINE_TIMEOUT, lines.next_line()).await.expect("the child goes on");
        let line = line.unwrap().expect("the child does not end by itself");
        if line.contains(text) {
            return line;
        }
    }
}

/// Entry point of the child process. Does nothing in the test process itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_to_be_killed() {
    let Ok(store) = env::var("CASES_STORE") else { return };
    let stop_at = env::var("CASES_STOP_AT").unwrap();
    let bulk_items_max = env::var("CASES_ITEMS_MAX").unwrap().parse().unwrap();
    let settings = Settings { store, lease: LEASE, bulk_items_max, bulk_concurrency: 1, port: 0 };
    let service = CaseService::new(settings).on_checkpoint(move |checkpoint, item| {
        let stops = format!("{checkpoint:?} {item}") == stop_at;
        async move {
            if stops {
                println!("\n{STOPPED}");
                std::future::pending::<()>().await;
            }
        }
    });
    let routes = service.into_router().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("\nlistening on {}", listener.local_addr().unwrap());
    axum::serve(listener, routes).await.unwrap();
}
