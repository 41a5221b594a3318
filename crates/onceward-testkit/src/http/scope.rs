//! Cases: tenants and callers, and the contents of errors.

use std::collections::BTreeMap;

use http::Method;

use super::answer::Answer;
use super::case::{Case, Stop, Verdict, cases};
use super::controls::Trouble;
use super::problem;
use super::target::{Flood, Headers, InProgress, KeyRule, KeySyntax, Lapse};

cases! { Scope;
    two_tenants_are_independent, "seeds 000, 003",
        "the same key of two tenants: two executions";
    two_callers_are_independent, "seed 000, Onceward",
        "the same key of two callers: two executions";
    a_malformed_tenant_is_400, "seed 003",
        "a tenant that is no tenant: 400, nothing runs";
    no_credentials_no_replay, "Onceward",
        "a known key without credentials: 401, and nothing of the answer";
    get_with_a_key_runs_each_time, "IETF draft-07 §2, seed 003",
        "GET is idempotent by itself: passed through";
    head_with_a_key_runs_each_time, "IETF draft-07 §2",
        "HEAD is idempotent by itself: passed through";
    a_key_flood_is_429, "Onceward",
        "a caller's new keys beyond its quota: 429, nothing runs, no record";
    errors_tell_no_secrets, "Onceward",
        "no error contains the key or the payload";
    errors_are_problems, "RFC 9457 §3",
        "every error is problem+json with all its members and a link";
    problem_types_are_distinct, "RFC 9457 §3.1.1",
        "one `type` for each code";
}

async fn two_tenants_are_independent(case: &Case) -> Verdict {
    independent(case, case.target.other_tenant.as_ref(), "there is one tenant only").await
}

async fn two_callers_are_independent(case: &Case) -> Verdict {
    independent(case, case.target.other_caller.as_ref(), "there is one caller only").await
}

async fn a_malformed_tenant_is_400(case: &Case) -> Verdict {
    let bad = case.target.bad_tenant.as_ref();
    let bad = bad.ok_or_else(|| Stop::skipped("any text is a tenant"))?;
    case.post().key("k").caller(bad).send().await?.refuses(400, "INVALID_TENANT")?;
    case.ran(0).await
}

async fn no_credentials_no_replay(case: &Case) -> Verdict {
    let anonymous = case.target.anonymous.as_ref();
    let anonymous = anonymous.ok_or_else(|| Stop::skipped("it asks for no credentials"))?;
    let first = case.post().key("k").send().await?;
    first.is_first()?;
    let answer = case.post().key("k").caller(anonymous).send().await?;
    answer.is(401)?;
    answer.is_unmarked()?;
    answer.that(answer.body != first.body, "nothing of the answer")?;
    case.ran(1).await
}

async fn get_with_a_key_runs_each_time(case: &Case) -> Verdict {
    passes_through(case, Method::GET).await
}

async fn head_with_a_key_runs_each_time(case: &Case) -> Verdict {
    passes_through(case, Method::HEAD).await
}

async fn a_key_flood_is_429(case: &Case) -> Verdict {
    let flood = case.target.flood.as_ref();
    let Flood { caller, keys_max } = flood.ok_or_else(|| Stop::skipped("it names no quota"))?;
    for nth in 0..*keys_max {
        case.post().key(&nth.to_string()).caller(caller).quiet().await?.is_first()?;
    }
    for _ in 0..2 {
        let answer = case.post().key("too many").caller(caller).send().await?;
        answer.refuses(429, problem::QUOTA)?;
    }
    case.post().key("0").caller(caller).send().await?.is_marked()?;
    case.ran(*keys_max as u64).await
}

async fn errors_tell_no_secrets(case: &Case) -> Verdict {
    problems(case)?;
    every_error(case).await?.values().try_for_each(Answer::tells_no_secrets)
}

async fn errors_are_problems(case: &Case) -> Verdict {
    problems(case)?;
    every_error(case).await?.iter().try_for_each(|(code, answer)| problem::check(answer, code))
}

async fn problem_types_are_distinct(case: &Case) -> Verdict {
    problems(case)?;
    let errors = every_error(case).await?;
    let mut codes = BTreeMap::new();
    for (code, answer) in &errors {
        let kind = problem::type_of(answer);
        let kind = kind.ok_or_else(|| Stop::failed("a `type`", answer.summary()))?;
        if let Some(other) = codes.insert(kind.clone(), code) {
            return Err(Stop::failed("a `type` each", format!("{kind} for {code} and {other}")));
        }
    }
    Ok(())
}

async fn independent(case: &Case, other: Option<&Headers>, otherwise: &str) -> Verdict {
    let other = other.ok_or_else(|| Stop::skipped(otherwise))?;
    let one = case.post().key("k").send().await?;
    one.is_first()?;
    let another = case.post().key("k").caller(other).send().await?;
    another.is_first()?;
    case.post().key("k").send().await?.replays(&one)?;
    case.post().key("k").caller(other).send().await?.replays(&another)?;
    case.ran(2).await
}

async fn passes_through(case: &Case, method: Method) -> Verdict {
    case.steers()?;
    for _ in 0..2 {
        let answer = case.ask(method.clone(), "/orders").key("k").send().await?;
        answer.that(answer.status < 400, "an answer of the handler")?;
        answer.is_unmarked()?;
    }
    case.ran(2).await
}

fn problems(case: &Case) -> Verdict {
    case.only_if(case.expects().problems, "its errors have no codes")
}

/// Every error that the suite can bring about at this server, by the code it must have.
async fn every_error(case: &Case) -> Result<BTreeMap<&'static str, Answer>, Stop> {
    let mut errors = BTreeMap::new();
    if case.expects().key == KeyRule::Required {
        errors.insert(problem::MISSING, case.post().send().await?);
    }
    if case.expects().key_syntax != KeySyntax::Opaque {
        let key = format!("\"{}", case.key("unterminated"));
        errors.insert(problem::INVALID, case.post().key_text(&key).send().await?);
    }
    if case.compares().is_ok() {
        case.post().key("k").send().await?.is_first()?;
        let other = case.post().key("k").amount("8123456789012").send().await?;
        errors.insert(problem::MISMATCH, other);
    }
    if case.steers().is_ok() {
        steered_errors(case, &mut errors).await?;
    }
    store_errors(case, &mut errors).await?;
    Ok(errors)
}

async fn steered_errors(case: &Case, errors: &mut BTreeMap<&'static str, Answer>) -> Verdict {
    if case.expects().in_progress == InProgress::Reject {
        let before = case.counts().await?.started;
        let first = case.post().key("slow").behave("delay=3000").start();
        case.until_started(before + 1).await?;
        errors.insert(problem::IN_PROGRESS, case.post().key("slow").send().await?);
        drop(first);
    }
    if case.expects().outcome_header && case.expects().lapse != Lapse::RolledBack {
        let how = "status=500; outcome=unknown";
        case.post().key("unknown").behave(how).send().await?;
        errors.insert(problem::UNKNOWN, case.post().key("unknown").send().await?);
    }
    if let Some(max) = case.expects().response_bytes_max {
        let how = format!("size={}", max + 1);
        case.post().key("large").behave(&how).send().await?;
        errors.insert(problem::NOT_REPLAYABLE, case.post().key("large").send().await?);
    }
    Ok(())
}

async fn store_errors(case: &Case, errors: &mut BTreeMap<&'static str, Answer>) -> Verdict {
    if case.cause(Trouble::ClaimsFail).await.is_ok() {
        errors.insert(problem::STORE_DOWN, case.post().key("down").send().await?);
        case.heal().await;
    }
    Ok(())
}
