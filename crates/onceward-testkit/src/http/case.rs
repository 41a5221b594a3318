//! A case of the suite: its entry in the list, and its state while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Method;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::answer::Answer;
use super::ask::Ask;
use super::client::Protocol;
use super::controls::{NotOffered, Trouble};
use super::target::{Compares, Expectations, Handler, Mismatch, OutcomePolicy, Target};

/// Time limit of an event that a case waits for.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Result of a case: passed, or the reason why it stopped.
pub type Verdict = Result<(), Stop>;

/// Reason why a case stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The server did something else.
    Failed {
        /// Expected behaviour.
        expected: String,
        /// Observed behaviour.
        seen: String,
    },
    /// The server does not promise this, or the suite cannot see it.
    Skipped(String),
    /// It cannot be seen from outside. The named case of the store suite shows it.
    ProvedBy(&'static str),
}

impl Stop {
    /// The server did something else.
    pub fn failed(expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Self::Failed { expected: expected.into(), seen: seen.into() }
    }

    /// The server does not promise this.
    pub fn skipped(reason: impl Into<String>) -> Self {
        Self::Skipped(reason.into())
    }
}

/// Sections of the suite, as in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Syntax of keys.
    Syntax,
    /// Replays.
    Replay,
    /// Other requests under a used key.
    Mismatch,
    /// Concurrent requests.
    Concurrency,
    /// Failures and outages.
    Failures,
    /// Tenants and callers.
    Scope,
    /// Retention.
    Expiry,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Syntax => "syntax",
            Self::Replay => "replay",
            Self::Mismatch => "mismatch",
            Self::Concurrency => "concurrency",
            Self::Failures => "failures",
            Self::Scope => "scope",
            Self::Expiry => "expiry",
        })
    }
}

/// Entry of a case in the list.
pub(super) struct CaseInfo {
    pub(super) section: Section,
    pub(super) name: &'static str,
    /// The document that requires it.
    pub(super) source: &'static str,
    /// The required behaviour.
    pub(super) expects: &'static str,
    pub(super) run: for<'a> fn(&'a Case) -> BoxFuture<'a, Verdict>,
}

impl CaseInfo {
    pub(super) fn matches(&self, filter: &str) -> bool {
        self.name.contains(filter) || self.section.to_string().contains(filter)
    }
}

impl fmt::Debug for CaseInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.section, self.name)
    }
}

/// Lists the cases of a section: name, source, expectation.
macro_rules! cases {
    ($section:ident; $($name:ident, $source:expr, $expects:expr;)*) => {
        pub(super) const CASES: &[$crate::http::case::CaseInfo] = &[
            $($crate::http::case::CaseInfo {
                section: $crate::http::case::Section::$section,
                name: stringify!($name),
                source: $source,
                expects: $expects,
                run: |case| Box::pin($name(case)),
            },)*
        ];
    };
}
pub(super) use cases;

/// One case while it runs.
pub struct Case {
    pub(super) target: Arc<Target>,
    pub(super) seen: Arc<Seen>,
    pub(super) name: &'static str,
    probe: String,
    keys: Mutex<BTreeMap<String, String>>,
}

/// Observations of a case.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Its exchanges, without secrets.
    pub(super) exchanges: Mutex<Vec<String>>,
    /// Ids of what was created.
    pub(super) ids: Mutex<BTreeSet<String>>,
}

/// Number of the fixture's runs for a case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) started: u64,
    pub(super) executions: u64,
}

impl Case {
    /// A case against a target, with keys and a probe of its own.
    pub fn new(target: &Target, name: &'static str) -> Self {
        Self {
            target: Arc::new(target.clone()),
            seen: Arc::default(),
            name,
            probe: fresh_uuid(),
            keys: Mutex::default(),
        }
    }

    /// The server's promises.
    pub(super) fn expects(&self) -> &Expectations {
        &self.target.expects
    }

    /// A POST that creates something, with an amount that no other case uses.
    pub(super) fn post(&self) -> Ask<'_> {
        self.ask(Method::POST, &self.target.create)
    }

    /// Any request.
    pub(super) fn ask(&self, method: Method, path: &str) -> Ask<'_> {
        Ask::new(self, method, path)
    }

    /// The key with this name in the case; a fresh one in each run.
    pub(super) fn key(&self, name: &str) -> String {
        self.keys.lock().entry(name.to_owned()).or_insert_with(fresh_uuid).clone()
    }

    pub(super) fn probe_token(&self) -> Option<&str> {
        (self.target.handler == Handler::Fixture).then_some(&self.probe)
    }

    /// Skips the case unless the handler is our fixture.
    pub(super) fn steers(&self) -> Verdict {
        self.only_if(self.target.handler == Handler::Fixture, "its handler cannot be steered")
    }

    /// Skips the case unless a condition on the server's promises holds.
    pub(super) fn only_if(&self, promised: bool, otherwise: &str) -> Verdict {
        if promised { Ok(()) } else { Err(Stop::skipped(otherwise)) }
    }

    /// Skips the case unless the server compares requests.
    pub(super) fn compares(&self) -> Verdict {
        let ignored = self.expects().mismatch == Mismatch::Ignored;
        self.only_if(!ignored, "it does not compare requests")
    }

    /// Skips the case unless the server compares requests by their meaning, at our routes.
    pub(super) fn compares_meaning(&self) -> Verdict {
        self.compares()?;
        match self.expects().compares {
            Compares::Requests => Ok(()),
            Compares::Bytes => Err(Stop::skipped("it compares bytes of the body")),
            Compares::Members => Err(Stop::skipped("it compares some members only")),
        }
    }

    /// Skips the case unless outcomes are kept as by `careful`, and the handler can be steered.
    pub(super) fn keeps_carefully(&self) -> Verdict {
        let careful = self.expects().outcomes == OutcomePolicy::Careful;
        self.only_if(careful, "it does not say which answers it keeps")?;
        self.steers()
    }

    pub(super) fn only_over(&self, protocol: Protocol) -> Verdict {
        self.only_if(self.target.protocol == protocol, &format!("needs {protocol}"))
    }

    /// Skips the case unless the suite can cause trouble.
    pub(super) fn controls(&self) -> Verdict {
        self.only_if(self.target.controls.is_some(), "needs a fault hook")
    }

    /// Causes trouble at the server, or skips the case where that is not offered.
    pub(super) async fn cause(&self, trouble: Trouble) -> Verdict {
        let controls = self.target.controls.as_ref();
        let controls = controls.ok_or_else(|| Stop::skipped("needs a fault hook"))?;
        let answer = controls.cause(trouble).await;
        answer.map_err(|NotOffered| Stop::skipped(format!("no fault hook for {trouble:?}")))
    }

    /// Ends trouble that goes on.
    pub(super) async fn heal(&self) {
        if let Some(controls) = &self.target.controls {
            controls.heal().await;
        }
    }

    pub(super) async fn tidy_up(&self) {
        self.heal().await;
    }

    /// Checks how often the handler has run for this case. Without our fixture this counts the
    /// distinct ids in answers, so an execution whose answer was lost is not seen.
    pub(super) async fn ran(&self, times: u64) -> Verdict {
        let ran = match self.target.handler {
            Handler::Fixture => self.counts().await?.executions,
            Handler::Ids => self.seen.ids.lock().len() as u64,
        };
        if ran == times {
            return Ok(());
        }
        Err(Stop::failed(format!("{times} executions"), format!("{ran} executions")))
    }

    /// The fixture's counts for this case.
    pub(super) async fn counts(&self) -> Result<Counts, Stop> {
        let answer = self.ask(Method::GET, &format!("/_probe/{}", self.probe)).quiet().await?;
        let count = |name: &str| answer.json().and_then(|json| json[name].as_u64());
        match (count("started"), count("executions")) {
            (Some(started), Some(executions)) => Ok(Counts { started, executions }),
            _ => Err(Stop::failed("a probe that counts", answer.summary())),
        }
    }

    /// Returns when the handler has started so often.
    pub(super) async fn until_started(&self, times: u64) -> Verdict {
        self.until(&format!("{times} starts of the handler"), |counts| counts.started >= times)
            .await
    }

    /// Returns when the handler has had its effect so often.
    pub(super) async fn until_executed(&self, times: u64) -> Verdict {
        self.until(&format!("{times} executions"), |counts| counts.executions >= times).await
    }

    async fn until(&self, what: &str, is_so: impl Fn(Counts) -> bool) -> Verdict {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let counts = self.counts().await?;
            if is_so(counts) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Stop::failed(what, format!("{counts:?} after {PATIENCE:?}")));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Sends a request again while it is answered that the first is still running.
    pub(super) async fn until_settled(&self, ask: Ask<'_>) -> Result<Answer, Stop> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = ask.clone().quiet().await?;
            if !answer.says_in_progress() {
                self.seen.exchanges.lock().push(format!("… until {}", answer.summary()));
                return Ok(answer);
            }
            if Instant::now() > deadline {
                return Err(Stop::failed("an end of the first request", answer.summary()));
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A UUID, which any server takes for a key.
pub(super) fn fresh_uuid() -> String {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid().to_string()
}
