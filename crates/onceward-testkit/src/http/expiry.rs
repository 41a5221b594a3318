//! Cases: retention of outcomes.

use super::case::{Case, Verdict, cases};
use super::controls::Trouble;
use super::problem;
use super::target::Expiry;

cases! { Expiry;
    inside_the_ttl_it_replays, "Stripe, IETF draft-07 §2.3",
        "shortly before the end of its time: replay";
    after_the_ttl_it_is_new_or_expired, "Stripe, IETF draft-07 §2.3",
        "past its time: new, or EXPIRED, by policy";
    a_restart_keeps_the_record, "seed 000",
        "the server was started again: replay";
}

async fn inside_the_ttl_it_replays(case: &Case) -> Verdict {
    case.controls()?;
    let first = case.post().key("k").send().await?;
    first.is_first()?;
    case.cause(Trouble::TimePasses(case.expects().ttl * 9 / 10)).await?;
    case.post().key("k").send().await?.replays(&first)?;
    case.ran(1).await
}

async fn after_the_ttl_it_is_new_or_expired(case: &Case) -> Verdict {
    case.controls()?;
    let first = case.post().key("k").send().await?;
    first.is_first()?;
    case.cause(Trouble::TimePasses(case.expects().ttl * 11 / 10)).await?;
    let after = case.post().key("k").send().await?;
    match case.expects().expiry {
        Expiry::Forget => {
            after.is_first()?;
            case.ran(2).await
        }
        Expiry::Tombstone => {
            after.refuses(409, problem::EXPIRED)?;
            case.ran(1).await
        }
    }
}

async fn a_restart_keeps_the_record(case: &Case) -> Verdict {
    case.only_if(case.expects().survives_restarts, "a restart forgets")?;
    case.controls()?;
    let first = case.post().key("k").send().await?;
    first.is_first()?;
    case.cause(Trouble::Crash).await?;
    case.post().key("k").send().await?.replays(&first)?;
    case.ran(1).await
}
