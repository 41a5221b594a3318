//! An answer, with the checks of the cases.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::response::Parts;
use serde_json::Value;

use super::ask::is_recognisable;
use super::case::{Seen, Stop, Verdict};
use super::client::Exchanged;
use super::problem;
use super::target::{InProgress, Mismatch, ReplayStatus, Target};

/// An answer, with the checks of the cases.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    target: Arc<Target>,
    canaries: Vec<String>,
}

impl Answer {
    pub(super) fn new(
        exchanged: Exchanged,
        target: Arc<Target>,
        canaries: Vec<String>,
        seen: &Seen,
    ) -> Result<Self, Stop> {
        let (Parts { status, headers, .. }, body) =
            exchanged.map_err(|why| Stop::failed("an answer", why))?;
        let answer = Self { status: status.as_u16(), headers, body, target, canaries };
        if let Some(id) = answer.id().filter(|_| status.is_success()) {
            seen.ids.lock().insert(id);
        }
        Ok(answer)
    }

    /// The answer as the report shows it: nothing secret.
    pub(super) fn summary(&self) -> String {
        let mut text = format!("{}, {} bytes", self.status, self.body.len());
        for name in ["content-type", "retry-after"] {
            if let Some(value) = self.header(name) {
                text += &format!(", {name}: {value}");
            }
        }
        if let Some(code) = self.code() {
            text += &format!(", code {code}");
        }
        for mark in self.marks_seen() {
            text += &format!(", {mark}");
        }
        text
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The `id` of what was created.
    pub(super) fn id(&self) -> Option<String> {
        match &self.json()?["id"] {
            Value::String(id) => Some(id.clone()),
            Value::Number(id) => Some(id.to_string()),
            _ => None,
        }
    }

    /// The `code` of a problem.
    pub(super) fn code(&self) -> Option<String> {
        self.json()?["code"].as_str().map(str::to_owned)
    }

    /// Checks the status.
    pub(super) fn is(&self, status: u16) -> Verdict {
        self.that(self.status == status, &format!("status {status}"))
    }

    /// Checks that it is a first answer: created, and no replay mark.
    pub(super) fn is_first(&self) -> Verdict {
        self.is(self.target.expects.created)?;
        self.is_unmarked()
    }

    pub(super) fn is_unmarked(&self) -> Verdict {
        self.that(self.marks_seen().is_empty(), "no replay mark")
    }

    /// Checks that it is a replay: it has every replay mark of the server.
    pub(super) fn is_marked(&self) -> Verdict {
        for mark in &self.target.expects.replay_marks {
            let values: Vec<_> = self.headers.get_all(mark).iter().collect();
            self.that(values == ["true"], &format!("{mark}: true"))?;
        }
        Ok(())
    }

    /// Checks that it repeats a first answer: status, body, type, and the replay marks.
    pub(super) fn replays(&self, first: &Self) -> Verdict {
        self.is(first.replay_status())?;
        self.repeats(first)?;
        self.is_marked()
    }

    /// Checks that it has the body and the type of the other one, byte for byte.
    pub(super) fn repeats(&self, first: &Self) -> Verdict {
        let bytes = first.body.len();
        self.that(self.body == first.body, &format!("the same {bytes} bytes of body"))?;
        self.keeps("content-type", first)
    }

    /// Checks that it has the same values of a header as the other one.
    pub(super) fn keeps(&self, name: &str, first: &Self) -> Verdict {
        let values = |answer: &Self| answer.headers.get_all(name).iter().cloned().collect();
        let (now, before): (Vec<_>, Vec<_>) = (values(self), values(first));
        self.that(now == before, &format!("{name} as first, {before:?} and not {now:?}"))
    }

    fn replay_status(&self) -> u16 {
        match self.target.expects.replay_status {
            ReplayStatus::Ok if self.status == self.target.expects.created => 200,
            ReplayStatus::Ok | ReplayStatus::Original => self.status,
        }
    }

    /// Checks that it is a refusal with this status, and with this code if the server has codes.
    pub(super) fn refuses(&self, status: u16, code: &str) -> Verdict {
        self.is(status)?;
        self.is_unmarked()?;
        if self.target.expects.problems { problem::check(self, code) } else { Ok(()) }
    }

    /// Checks that it says: the key was used for another request.
    pub(super) fn is_mismatch(&self) -> Verdict {
        match self.target.expects.mismatch {
            Mismatch::Refused(status) => self.refuses(status, problem::MISMATCH),
            Mismatch::Ignored => Err(Stop::skipped("it does not compare requests")),
        }
    }

    /// Checks that it says: the first request is still running.
    pub(super) fn is_in_progress(&self) -> Verdict {
        match self.target.expects.in_progress {
            InProgress::Accepted => {
                self.is(202)?;
                self.that(self.header("location").is_some(), "the place of the operation")
            }
            InProgress::Reject | InProgress::Wait(_) => self.refuses(409, problem::IN_PROGRESS),
        }
    }

    /// Checks that it says: the outcome is unknown.
    pub(super) fn is_unknown(&self) -> Verdict {
        self.refuses(409, problem::UNKNOWN)
    }

    /// True if it says that the first request is still running. Without codes any 409 may mean
    /// that.
    pub(super) fn says_in_progress(&self) -> bool {
        let coded = self.target.expects.problems;
        match self.target.expects.in_progress {
            InProgress::Accepted => self.status == 202,
            _ if coded => self.code().as_deref() == Some(problem::IN_PROGRESS),
            _ => self.status == 409,
        }
    }

    /// Checks that it contains neither the key nor the payload.
    pub(super) fn tells_no_secrets(&self) -> Verdict {
        let body = String::from_utf8_lossy(&self.body).into_owned();
        let headers = format!("{:?}", self.headers);
        let leak = self.canaries.iter().filter(|it| is_recognisable(it));
        let leaks = leak.filter(|it| body.contains(*it) || headers.contains(*it)).count();
        self.that(leaks == 0, "neither the key nor the payload in an error")
    }

    /// Checks any other condition.
    pub(super) fn that(&self, holds: bool, expected: &str) -> Verdict {
        if holds { Ok(()) } else { Err(Stop::failed(expected, self.summary())) }
    }

    fn marks_seen(&self) -> Vec<String> {
        let known = ["Idempotent-Replayed", "Idempotency-Replayed"].map(str::to_owned);
        let mut marks = self.target.expects.replay_marks.clone();
        marks.extend(known);
        marks.dedup();
        let value = |mark: &String| Some(format!("{mark}: {}", self.header(mark)?));
        let mut seen: Vec<_> = marks.iter().filter_map(value).collect();
        seen.sort();
        seen.dedup();
        seen
    }
}
