//! Errors: RFC 9457, with the members and codes of the protocol.

use serde_json::Value;

use super::answer::Answer;
use super::case::Verdict;

pub(super) const MISSING: &str = "MISSING_IDEMPOTENCY_KEY";
pub(super) const INVALID: &str = "INVALID_IDEMPOTENCY_KEY";
pub(super) const MISMATCH: &str = "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST";
pub(super) const IN_PROGRESS: &str = "IDEMPOTENCY_REQUEST_IN_PROGRESS";
pub(super) const UNKNOWN: &str = "IDEMPOTENCY_OUTCOME_UNKNOWN";
pub(super) const EXPIRED: &str = "IDEMPOTENCY_KEY_EXPIRED";
pub(super) const NOT_REPLAYABLE: &str = "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE";
pub(super) const QUOTA: &str = "IDEMPOTENCY_QUOTA_EXCEEDED";
pub(super) const STORE_DOWN: &str = "IDEMPOTENCY_STORE_UNAVAILABLE";
pub(super) const TOO_LARGE: &str = "REQUEST_TOO_LARGE";

/// Codes after which the client may send the same key again, after `Retry-After`.
const SAME_KEY_LATER: [&str; 3] = [IN_PROGRESS, QUOTA, STORE_DOWN];

/// Checks that it is a complete problem with this code, without secrets.
pub(super) fn check(answer: &Answer, code: &str) -> Verdict {
    let is_problem = answer.header("content-type").is_some_and(is_problem_json);
    answer.that(is_problem, "application/problem+json")?;
    let problem = answer.json().unwrap_or_default();
    answer.that(problem["code"] == code, &format!("code {code}"))?;
    members(answer, &problem)?;
    advice(answer, &problem, code)?;
    answer.that(has_documentation(answer), r#"Link: <…>; rel="describedby""#)?;
    answer.tells_no_secrets()
}

/// The `type` of a problem.
pub(super) fn type_of(answer: &Answer) -> Option<String> {
    answer.json()?["type"].as_str().map(str::to_owned)
}

fn is_problem_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/problem+json")
}

fn members(answer: &Answer, problem: &Value) -> Verdict {
    let typed = problem["type"].as_str().is_some_and(|it| !it.is_empty() && it != "about:blank");
    answer.that(typed, "a `type` of its own")?;
    for name in ["title", "detail"] {
        let told = problem[name].as_str().is_some_and(|text| !text.is_empty());
        answer.that(told, &format!("a `{name}`"))?;
    }
    let same = problem["status"] == answer.status;
    answer.that(same, &format!("a `status` equal to {}", answer.status))?;
    for name in ["retryable", "same_key"] {
        answer.that(problem[name].is_boolean(), &format!("a boolean `{name}`"))?;
    }
    Ok(())
}

/// Checks the advice to the client.
fn advice(answer: &Answer, problem: &Value, code: &str) -> Verdict {
    if SAME_KEY_LATER.contains(&code) {
        answer.that(problem["retryable"] == true, "`retryable` true")?;
        answer.that(problem["same_key"] == true, "`same_key` true")?;
        return has_retry_after(answer);
    }
    // Not blindly: what to advise about an unknown outcome is not a yes or a no.
    let said_no = code == UNKNOWN || problem["same_key"] == false;
    answer.that(said_no, "`same_key` false")
}

/// Checks that it has `Retry-After` in seconds.
pub(super) fn has_retry_after(answer: &Answer) -> Verdict {
    let seconds = answer.header("retry-after").and_then(|text| text.parse::<u32>().ok());
    answer.that(seconds.is_some(), "Retry-After in seconds")
}

fn has_documentation(answer: &Answer) -> bool {
    answer
        .headers
        .get_all("link")
        .iter()
        .filter_map(|link| link.to_str().ok())
        .any(|link| link.starts_with('<') && link.replace('"', "").contains("rel=describedby"))
}
