//! `cargo xtask schemathesis`: checks an API against the OpenAPI document that it serves.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use clap::Args;

use crate::tools;

/// The version whose checks the APIs pass.
const PACKAGE: &str = "schemathesis==4.32.5";

/// The API to check, and the settings of the check.
#[derive(Debug, Args)]
pub(crate) struct Schemathesis {
    /// The document of a running API; without it, `onceward claims` is started on an empty store
    #[arg(long, value_name = "URL", requires = "token_env")]
    url: Option<String>,
    /// The environment variable that holds a token for that API
    #[arg(long, value_name = "VARIABLE")]
    token_env: Option<String>,
    /// Examples for each operation
    #[arg(long, default_value_t = 200)]
    examples: u32,
    /// More arguments for schemathesis
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Sends the API requests that its document allows, and requests that it does not.
pub(crate) fn run(asked: &Schemathesis) -> ExitCode {
    match asked.run() {
        Ok(code) => code,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

impl Schemathesis {
    fn run(&self) -> Result<ExitCode, String> {
        let tool = installed()?;
        let (server, url, token) = match (&self.url, &self.token_env) {
            (Some(url), Some(variable)) => {
                let token = env::var(variable).map_err(|_| format!("{variable} is not set"))?;
                (None, url.clone(), token)
            }
            _ => {
                let server = Server::start()?;
                let url = format!("http://{}/openapi.json", server.address);
                (Some(server), url, TOKEN.to_owned())
            }
        };
        let mut command = Command::new(tool);
        command.args(["--config-file", concat!(env!("CARGO_MANIFEST_DIR"), "/schemathesis.toml")]);
        command.args(["run", &url, "--checks", "all", "--max-examples"]);
        command.arg(self.examples.to_string());
        command.args(["--header", &format!("Authorization: Bearer {token}")]);
        let code = crate::status(command.args(&self.arguments));
        drop(server);
        Ok(code)
    }
}

/// The program, installed by pip into the build cache.
fn installed() -> Result<PathBuf, String> {
    let home = tools::target_directory().join("tools/schemathesis");
    let program = home.join("bin/schemathesis");
    if !program.exists() {
        println!("installing {PACKAGE} (once, into the build cache)");
        let made = Command::new("python3").args(["-m", "venv"]).arg(&home).status();
        let mut pip = Command::new(home.join("bin/pip"));
        let _looked_for_again_below =
            made.and_then(|_| pip.args(["install", "-q", PACKAGE]).status());
    }
    let missing = || format!("{PACKAGE} cannot be installed: python3 with venv and pip is needed");
    program.exists().then_some(program).ok_or_else(missing)
}

/// Token of the server that is started here.
const TOKEN: &str = "a token for schemathesis alone";

/// `onceward claims` on an empty store. Dropping it ends it and removes its directory.
struct Server {
    child: Child,
    address: String,
    directory: PathBuf,
}

impl Server {
    fn start() -> Result<Self, String> {
        let built = crate::cargo("build --quiet -p onceward-server").status();
        if !built.is_ok_and(|status| status.success()) {
            return Err("the program does not build".into());
        }
        let directory =
            env::temp_dir().join(format!("onceward-schemathesis-{}", std::process::id()));
        let config = directory.join("onceward.toml");
        let text = "[claims]\naddress = \"127.0.0.1:0\"\n[[tokens]]\nname = \"s\"\nrole = \"worker\"\n\
                    secret_env = \"SCHEMATHESIS_TOKEN\"\n";
        fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        fs::write(&config, text).map_err(|error| error.to_string())?;
        Self::spawn(&config, directory)
    }

    fn spawn(config: &Path, directory: PathBuf) -> Result<Self, String> {
        let mut child = Command::new(tools::target_directory().join("debug/onceward"))
            .args(["claims", "--store", "memory:", "--config"])
            .arg(config)
            .env("SCHEMATHESIS_TOKEN", TOKEN)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut line = String::new();
        let stdout = child.stdout.take().map(BufReader::new);
        let _told_below = stdout.map(|mut stdout| stdout.read_line(&mut line));
        let address = line.split("http://").nth(1).and_then(|it| it.split('/').next());
        let address = address.unwrap_or_default().to_owned();
        let server = Self { child, address, directory };
        if server.address.is_empty() { Err("it did not start".into()) } else { Ok(server) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _perhaps_ended = self.child.kill();
        let _its_end = self.child.wait();
        let _perhaps_gone = fs::remove_dir_all(&self.directory);
    }
}
