//! Cases: failures of the handler, and outages.

use std::time::Duration;

use super::answer::Answer;
use super::case::{Case, Stop, Verdict, cases};
use super::controls::Trouble;
use super::problem;
use super::target::{Lapse, Role, ServerErrors};

const CAREFUL: &str = "Onceward, outcome policy";

cases! { Failures;
    a_500_is_treated_by_policy, "Stripe, Onceward",
        "a 500 is kept, released or unknown, as the policy says";
    the_handler_may_keep_a_500, CAREFUL,
        "Onceward-Outcome: keep; the client does not see the header";
    the_handler_may_keep_only_the_head, CAREFUL,
        "Onceward-Outcome: keep-head; retries get the status and the location, runs once";
    an_unclear_outcome_is_not_released, CAREFUL,
        "Onceward-Outcome: a word of another release; no key is freed, no body replayed";
    the_handler_may_release_a_500, CAREFUL,
        "Onceward-Outcome: release; the next runs";
    the_handler_may_say_unknown, CAREFUL,
        "Onceward-Outcome: unknown; nothing runs again";
    a_domain_404_is_replayed, CAREFUL,
        "a 404 of the handler is an outcome: replay";
    a_domain_409_is_replayed, CAREFUL,
        "a 409 of the handler is an outcome: replay";
    a_domain_422_is_replayed, "Stripe, Onceward",
        "a 422 of the handler is an outcome: replay";
    a_401_is_not_kept, CAREFUL,
        "a 401 frees the key";
    a_403_is_not_kept, CAREFUL,
        "a 403 frees the key";
    a_408_is_not_kept, CAREFUL,
        "a 408 frees the key";
    a_429_is_not_kept, "Stripe, Onceward",
        "a 429 frees the key";
    a_panic_is_not_in_progress_for_ever, CAREFUL,
        "a panic: unknown, and nothing runs again";
    a_request_that_is_too_large_is_not_kept, "RFC 9110 §15.5.14",
        "413, nothing runs, and the key is free";
    an_answer_that_is_too_large_is_marked, "seed 003",
        "the first caller gets all of it, retries the marker; runs once";
    a_refused_upstream_frees_the_key, CAREFUL,
        "the upstream refuses the connection: nothing happened, the key is free";
    a_reset_upstream_is_unknown, CAREFUL,
        "a reset after bytes were sent: unknown, nothing runs again";
    a_silent_upstream_is_unknown, CAREFUL,
        "a timeout after bytes were sent: unknown, nothing runs again";
    store_down_at_the_claim_is_503, "Onceward",
        "503 with Retry-After, nothing runs, and the same key is safe";
    a_lost_reply_to_the_claim_runs_once, "Onceward",
        "claimed again with the same token: runs once";
    a_lost_reply_to_the_completion_runs_once, "Onceward",
        "completed again: runs once, and replays";
    store_down_at_the_completion_never_runs_again, "seed 003",
        "no retry runs; once the store is back, replay or unknown";
    a_crash_after_the_claim_is_unknown, "seed 000, Onceward",
        "no retry runs; after the lease: unknown";
    a_crash_after_the_effect_is_unknown, "seed 000, Onceward",
        "no retry runs; after the lease: unknown";
    a_crash_after_the_completion_replays, "seed 000",
        "completed and not answered: the retry replays";
}

async fn a_500_is_treated_by_policy(case: &Case) -> Verdict {
    case.steers()?;
    match case.expects().server_errors {
        ServerErrors::Kept => kept(case, "status=500").await,
        ServerErrors::Released => freed(case, 500, "status=500").await,
        ServerErrors::Unknown => says_unknown(case, "status=500").await,
        ServerErrors::Unstated => Err(Stop::skipped("it does not say what a 500 means")),
    }
}

async fn the_handler_may_keep_a_500(case: &Case) -> Verdict {
    says_outcome(case)?;
    kept(case, "status=500; outcome=keep").await
}

async fn the_handler_may_keep_only_the_head(case: &Case) -> Verdict {
    says_outcome(case)?;
    keeps_the_head(case, "outcome=keep-head").await
}

async fn an_unclear_outcome_is_not_released(case: &Case) -> Verdict {
    says_outcome(case)?;
    case.keeps_carefully()?;
    keeps_the_head(case, "outcome=keep-later").await?;
    let first = case.post().key("l").behave("status=429; outcome=keep-later").send().await?;
    hides_outcome(&first)?;
    let again = case.until_settled(case.post().key("l")).await?;
    match case.expects().lapse {
        Lapse::RolledBack => again.is_first(),
        Lapse::Unknown | Lapse::Takeover => {
            again.is_unknown()?;
            case.ran(2).await
        }
    }
}

async fn keeps_the_head(case: &Case, how: &str) -> Verdict {
    let first = case.post().key("k").behave(how).send().await?;
    first.is_first()?;
    hides_outcome(&first)?;
    let again = case.post().key("k").send().await?;
    again.refuses(409, problem::NOT_REPLAYABLE)?;
    again.keeps("location", &first)?;
    tells_status(&again, first.status)?;
    case.ran(1).await
}

async fn the_handler_may_release_a_500(case: &Case) -> Verdict {
    says_outcome(case)?;
    freed(case, 500, "status=500; outcome=release").await
}

async fn the_handler_may_say_unknown(case: &Case) -> Verdict {
    says_outcome(case)?;
    says_unknown(case, "status=500; outcome=unknown").await
}

async fn a_domain_404_is_replayed(case: &Case) -> Verdict {
    case.keeps_carefully()?;
    kept(case, "status=404").await
}

async fn a_domain_409_is_replayed(case: &Case) -> Verdict {
    case.keeps_carefully()?;
    kept(case, "status=409").await
}

async fn a_domain_422_is_replayed(case: &Case) -> Verdict {
    case.keeps_carefully()?;
    kept(case, "status=422").await
}

async fn a_401_is_not_kept(case: &Case) -> Verdict {
    not_kept(case, 401).await
}

async fn a_403_is_not_kept(case: &Case) -> Verdict {
    not_kept(case, 403).await
}

async fn a_408_is_not_kept(case: &Case) -> Verdict {
    not_kept(case, 408).await
}

async fn a_429_is_not_kept(case: &Case) -> Verdict {
    not_kept(case, 429).await
}

async fn a_panic_is_not_in_progress_for_ever(case: &Case) -> Verdict {
    case.keeps_carefully()?;
    // What the first caller gets is the server's affair, as long as it is no success.
    if let Ok(answer) = case.post().key("k").behave("panic").send().await {
        answer.that(answer.status >= 400, "an error, or no answer")?;
    }
    if case.expects().lapse != Lapse::Unknown {
        return lapses(case, 1).await;
    }
    case.until_settled(case.post().key("k")).await?.is_unknown()?;
    case.ran(1).await
}

async fn a_request_that_is_too_large_is_not_kept(case: &Case) -> Verdict {
    let max = case.expects().request_bytes_max;
    let max = max.ok_or_else(|| Stop::skipped("it names no largest request"))?;
    let large = case.post().key("k").body("application/json", vec![b' '; max + 1]);
    large.send().await?.refuses(413, problem::TOO_LARGE)?;
    case.ran(0).await?;
    case.post().key("k").send().await?.is_first()?;
    case.ran(1).await
}

async fn an_answer_that_is_too_large_is_marked(case: &Case) -> Verdict {
    case.steers()?;
    let max = case.expects().response_bytes_max;
    let max = max.ok_or_else(|| Stop::skipped("it names no largest answer"))?;
    let size = max + 1;
    let first = case.post().key("k").behave(&format!("size={size}")).send().await?;
    first.is_first()?;
    first.that(first.body.len() == size, &format!("all of the {size} bytes"))?;
    let again = case.post().key("k").send().await?;
    again.refuses(409, problem::NOT_REPLAYABLE)?;
    again.keeps("location", &first)?;
    tells_status(&again, first.status)?;
    case.ran(1).await
}

async fn a_refused_upstream_frees_the_key(case: &Case) -> Verdict {
    gateway(case)?;
    case.cause(Trouble::UpstreamRefuses).await?;
    let refused = case.post().key("k").send().await?;
    refused.that(refused.status >= 500, "a 5xx")?;
    case.heal().await;
    case.post().key("k").send().await?.is_first()?;
    case.ran(1).await
}

async fn a_reset_upstream_is_unknown(case: &Case) -> Verdict {
    gateway(case)?;
    leaves_unknown(case, "panic").await
}

async fn a_silent_upstream_is_unknown(case: &Case) -> Verdict {
    let timeout = gateway(case)?;
    let longer = (timeout + Duration::from_millis(500)).as_millis();
    leaves_unknown(case, &format!("delay={longer}")).await
}

async fn store_down_at_the_claim_is_503(case: &Case) -> Verdict {
    case.cause(Trouble::ClaimsFail).await?;
    case.post().key("k").send().await?.refuses(503, problem::STORE_DOWN)?;
    case.ran(0).await?;
    case.heal().await;
    case.post().key("k").send().await?.is_first()?;
    case.ran(1).await
}

async fn a_lost_reply_to_the_claim_runs_once(case: &Case) -> Verdict {
    case.cause(Trouble::ClaimReplyLost).await?;
    case.post().key("k").send().await?.is_first()?;
    case.post().key("k").send().await?.is_marked()?;
    case.ran(1).await
}

async fn a_lost_reply_to_the_completion_runs_once(case: &Case) -> Verdict {
    case.cause(Trouble::SettleReplyLost).await?;
    let first = case.post().key("k").send().await?;
    first.is_first()?;
    case.post().key("k").send().await?.replays(&first)?;
    case.ran(1).await
}

async fn store_down_at_the_completion_never_runs_again(case: &Case) -> Verdict {
    case.cause(Trouble::SettlesFail).await?;
    let first = case.post().key("k").send().await?;
    // The true answer, or an error where the setting says so.
    first.that(first.is_first().is_ok() || first.status >= 500, "the answer, or a 5xx")?;
    is_held(&case.post().key("k").send().await?)?;
    case.heal().await;
    let settled = case.until_settled(case.post().key("k")).await?;
    if first.is_first().is_ok() && settled.is_unknown().is_err() {
        settled.replays(&first)?;
    }
    case.ran(1).await
}

async fn a_crash_after_the_claim_is_unknown(case: &Case) -> Verdict {
    crash_while(case, "think=5000", Case::until_started_once, 0).await
}

async fn a_crash_after_the_effect_is_unknown(case: &Case) -> Verdict {
    crash_while(case, "delay=5000", Case::until_executed_once, 1).await
}

async fn a_crash_after_the_completion_replays(case: &Case) -> Verdict {
    case.steers()?;
    case.cause(Trouble::SettleHangs).await?;
    let unanswered = case.post().key("k").start();
    case.until_executed(1).await?;
    // Applied, though its reply never comes: others see it already.
    let seen = case.until_settled(case.post().key("k")).await?;
    seen.is_marked()?;
    case.cause(Trouble::Crash).await?;
    drop(unanswered);
    let again = case.until_settled(case.post().key("k")).await?;
    again.is_marked()?;
    again.repeats(&seen)?;
    case.ran(1).await
}

impl Case {
    async fn until_started_once(&self) -> Verdict {
        self.until_started(1).await
    }

    async fn until_executed_once(&self) -> Verdict {
        self.until_executed(1).await
    }
}

/// The server dies while the handler is at work, which has run `ran` times by then.
async fn crash_while(
    case: &Case,
    how: &str,
    at_work: impl AsyncFn(&Case) -> Verdict,
    ran: u64,
) -> Verdict {
    case.steers()?;
    case.controls()?;
    let unanswered = case.post().key("k").behave(how).start();
    at_work(case).await?;
    case.cause(Trouble::Crash).await?;
    drop(unanswered);
    if case.expects().lapse != Lapse::RolledBack {
        is_held(&case.post().key("k").send().await?)?;
        case.ran(ran).await?;
    }
    lapses(case, ran).await
}

/// The lease of the key ends without a word from its owner.
async fn lapses(case: &Case, ran: u64) -> Verdict {
    let lapse = case.expects().lapse;
    if lapse != Lapse::RolledBack {
        case.cause(Trouble::TimePasses(case.expects().lease * 2)).await?;
    }
    let after = case.until_settled(case.post().key("k")).await?;
    match lapse {
        Lapse::Unknown => {
            after.is_unknown()?;
            case.ran(ran).await
        }
        Lapse::Takeover | Lapse::RolledBack => {
            after.is_first()?;
            case.ran(ran + 1).await
        }
    }
}

/// Checks that the key is held and its outcome is unknown.
fn is_held(answer: &Answer) -> Verdict {
    if answer.says_in_progress() { answer.is_in_progress() } else { answer.is_unknown() }
}

async fn kept(case: &Case, how: &str) -> Verdict {
    let first = case.post().key("k").behave(how).send().await?;
    first.is_unmarked()?;
    hides_outcome(&first)?;
    let again = case.post().key("k").send().await?;
    again.replays(&first)?;
    hides_outcome(&again)?;
    case.ran(1).await
}

async fn not_kept(case: &Case, status: u16) -> Verdict {
    case.keeps_carefully()?;
    freed(case, status, &format!("status={status}")).await
}

async fn freed(case: &Case, status: u16, how: &str) -> Verdict {
    let first = case.post().key("k").behave(how).send().await?;
    first.is(status)?;
    first.is_unmarked()?;
    hides_outcome(&first)?;
    let second = case.post().key("k").send().await?;
    second.is_first()?;
    case.post().key("k").send().await?.replays(&second)?;
    case.ran(2).await
}

/// The handler says that the outcome is unknown. In a transaction a rollback follows.
async fn says_unknown(case: &Case, how: &str) -> Verdict {
    match case.expects().lapse {
        Lapse::RolledBack => freed(case, 500, how).await,
        Lapse::Unknown | Lapse::Takeover => leaves_unknown(case, how).await,
    }
}

async fn leaves_unknown(case: &Case, how: &str) -> Verdict {
    let first = case.post().key("k").behave(how).send().await?;
    first.that(first.status >= 400, "an error")?;
    hides_outcome(&first)?;
    case.until_settled(case.post().key("k")).await?.is_unknown()?;
    case.ran(1).await
}

fn says_outcome(case: &Case) -> Verdict {
    case.only_if(case.expects().outcome_header, "it does not listen to Onceward-Outcome")?;
    case.steers()
}

fn hides_outcome(answer: &Answer) -> Verdict {
    answer.that(!answer.headers.contains_key("onceward-outcome"), "no Onceward-Outcome")
}

fn gateway(case: &Case) -> Result<Duration, Stop> {
    case.steers()?;
    match case.expects().role {
        Role::Gateway { timeout } => Ok(timeout),
        Role::Library => Err(Stop::skipped("there is no upstream")),
    }
}

/// A marker tells the status of the answer that it stands for.
fn tells_status(marker: &Answer, status: u16) -> Verdict {
    let json = marker.json().unwrap_or_default();
    let told = json.as_object().is_some_and(|members| members.values().any(|it| *it == status));
    marker.that(told, &format!("the original status, {status}"))
}
