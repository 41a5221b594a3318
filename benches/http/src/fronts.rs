//! Fronts of a service: processes with their own files, removed when dropped.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::Fallible;

/// A kind of front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    /// nginx with `proxy_pass` and kept connections, which protects nothing.
    Nginx,
    /// `onceward gateway`, records in memory.
    Memory,
    /// `onceward gateway`, records in a directory.
    Embedded,
    /// Restate's ingress, in front of the same service as one of its handlers.
    Restate,
}

impl Front {
    pub(crate) const GUARDED: [Self; 3] = [Self::Memory, Self::Embedded, Self::Restate];

    /// Where orders are made.
    pub(crate) fn path(self) -> &'static str {
        if self == Self::Restate { "/bench/orders" } else { "/orders" }
    }
}

impl fmt::Display for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nginx => "nginx proxy_pass",
            Self::Memory => "onceward gateway, memory",
            Self::Embedded => "onceward gateway, embedded",
            Self::Restate => "Restate ingress",
        })
    }
}

/// Where the programs are.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Programs {
    /// The program `onceward`, built with --release
    #[arg(long)]
    pub(crate) onceward: PathBuf,
    /// A directory with node_modules of @restatedev/restate-server and -sdk; left out without
    #[arg(long)]
    pub(crate) restate: Option<PathBuf>,
}

/// A running front.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    _processes: Vec<Child>,
    _files: Files,
}

impl Running {
    pub(crate) async fn start(
        front: Front,
        service: SocketAddr,
        programs: &Programs,
    ) -> Fallible<Self> {
        let (files, address) = (Files::new()?, free_address()?);
        let processes = match front {
            Front::Nginx => vec![nginx(&files, &proxy(service, address, &files))?],
            Front::Memory => vec![gateway(programs, service, address, "memory:", &files)?],
            Front::Embedded => {
                let store = format!("file:{}", files.0.join("records").display());
                vec![gateway(programs, service, address, &store, &files)?]
            }
            Front::Restate => restate(programs, address, &files).await?,
        };
        listening(address).await?;
        Ok(Self { address, _processes: processes, _files: files })
    }

    /// The service behind all of them: nginx again, which answers by itself.
    pub(crate) async fn service() -> Fallible<Self> {
        let (files, address) = (Files::new()?, free_address()?);
        let answer = r#"{"id":"ord_1","status":"created","total_cents":3480,"currency":"EUR"}"#;
        let text = format!(
            "server {{ listen {address} reuseport; location / {{ default_type application/json; \
             return 201 '{answer}'; }} }}"
        );
        let processes = vec![nginx(&files, &text)?];
        listening(address).await?;
        Ok(Self { address, _processes: processes, _files: files })
    }
}

fn proxy(service: SocketAddr, address: SocketAddr, files: &Files) -> String {
    format!(
        "upstream service {{ server {service}; keepalive 128; keepalive_requests 10000000; }}\n\
         server {{ listen {address} reuseport; client_body_temp_path {files}/body; \
         location / {{ proxy_pass http://service; proxy_http_version 1.1; \
         proxy_set_header Connection ''; proxy_set_header Host $host; \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }} }}",
        files = files.0.display()
    )
}

fn nginx(files: &Files, server: &str) -> Fallible<Child> {
    let directory = files.0.display();
    let text = format!(
        "daemon off; worker_processes 2; pid {directory}/pid; error_log {directory}/error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 10000000; proxy_temp_path {directory}/proxy;\n\
         fastcgi_temp_path {directory}/f; uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;\n\
         client_body_temp_path {directory}/b;\n{server} }}\n"
    );
    std::fs::write(files.0.join("nginx.conf"), text)?;
    let mut nginx = Command::new("nginx");
    nginx.arg("-c").arg(files.0.join("nginx.conf"));
    spawn(&mut nginx, files)
}

fn gateway(
    programs: &Programs,
    service: SocketAddr,
    address: SocketAddr,
    store: &str,
    files: &Files,
) -> Fallible<Child> {
    let (upstream, listen) = (format!("http://{service}"), address.to_string());
    let mut gateway = Command::new(&programs.onceward);
    gateway.args(["gateway", "--single-tenant", "--store", store]);
    gateway.args(["--upstream", &upstream, "--listen", &listen]);
    spawn(&mut gateway, files)
}

/// Restate's server, and its SDK with a handler that answers as the service does.
async fn restate(programs: &Programs, address: SocketAddr, files: &Files) -> Fallible<Vec<Child>> {
    let home = programs.restate.as_ref().ok_or("no --restate was given")?;
    let (handler, admin, node) = (free_address()?, free_address()?, free_address()?);
    let mut sdk = Command::new("node");
    sdk.arg(home.join("handler.mjs")).arg(handler.port().to_string()).current_dir(home);
    let mut server = Command::new("node");
    server.arg(home.join("node_modules/@restatedev/restate-server/lib/index.js"));
    server.args(["--node-name", "bench", "--base-dir"]).arg(files.0.join("restate"));
    server.env("RESTATE_INGRESS__BIND_ADDRESS", address.to_string());
    server.env("RESTATE_ADMIN__BIND_ADDRESS", admin.to_string());
    server.env("RESTATE_BIND_ADDRESS", node.to_string());
    server.env("RESTATE_ADVERTISED_ADDRESS", format!("http://{node}"));
    server.env("RESTATE_LOG_FILTER", "warn");
    let processes = vec![spawn(&mut sdk, files)?, spawn(&mut server, files)?];
    listening(handler).await?;
    listening(admin).await?;
    let registered = format!("{{\"uri\":\"http://{handler}\"}}");
    let to = format!("http://{admin}/deployments");
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", "--retry", "20", "--retry-all-errors", "--retry-delay", "1"]);
    curl.args(["-H", "content-type: application/json", "-d", &registered, &to]);
    if !curl.stdout(Stdio::null()).status().await?.success() {
        return Err("Restate does not take its handler".into());
    }
    Ok(processes)
}

fn spawn(command: &mut Command, files: &Files) -> Fallible<Child> {
    let log = std::fs::File::create(files.0.join("log"))?;
    let child = command.stdout(Stdio::null()).stderr(log).kill_on_drop(true).spawn();
    child.map_err(|error| format!("{command:?} cannot be started: {error}").into())
}

/// Waits until a server listens.
async fn listening(address: SocketAddr) -> Fallible<()> {
    let end = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(address).await.is_err() {
        if Instant::now() > end {
            return Err(format!("no server listens on {address}").into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn free_address() -> Fallible<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// A directory that is gone with its owner.
struct Files(PathBuf);

impl Files {
    fn new() -> Fallible<Self> {
        let name = format!("onceward-bench-{}-{}", std::process::id(), free_address()?.port());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path.canonicalize()?))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _what_is_left_is_small = std::fs::remove_dir_all(&self.0);
    }
}
