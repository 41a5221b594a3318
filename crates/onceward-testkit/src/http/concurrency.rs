//! Cases: concurrent requests.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use futures_util::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::{sleep, timeout};

use super::answer::Answer;
use super::ask::Ask;
use super::case::{Case, Stop, Verdict, cases};
use super::client::{Connection, Protocol, Wire};
use super::controls::Trouble;
use super::raw;
use super::target::{Handler, InProgress, Lapse};

cases! { Concurrency;
    twenty_at_once_run_once, "seed 003",
        "of 20 parallel requests one runs, the rest get 409 or its answer";
    five_hundred_at_once_run_once, "Onceward",
        "the same with 500";
    in_progress_is_told_with_retry_after, "IETF draft-07 §2.7",
        "while the first runs: 409 problem+json with Retry-After";
    after_completion_it_replays, "IETF draft-07 §2.6",
        "once the first is done, the same request replays";
    waiting_ends_with_the_first_answer, "seed 000",
        "a duplicate that waits gets the first answer";
    waiting_ends_in_time, "Onceward",
        "a duplicate waits no longer than it is said";
    other_keys_are_not_held_up, "Onceward",
        "another key is answered while the first runs";
    two_nodes_run_once, "Onceward",
        "two nodes on one store run it once";
    a_client_that_hangs_up_changes_nothing, "Onceward",
        "hang up at any point and retry: runs once, then replays";
    a_body_that_breaks_off_is_never_run_twice, "Onceward",
        "hang up before the body's end and retry: runs once";
    who_arrives_as_the_first_ends_does_not_run, "Onceward",
        "the classic race: a miss, then a claim after the winner let go";
    a_lapsed_lease_is_unknown_until_its_owner_completes, "Onceward",
        "lease lapsed: unknown; the owner's late completion counts";
    stale_owner_cannot_complete_after_takeover, "Onceward",
        "after a takeover the old owner's completion is refused";
    stale_owner_cannot_release_the_new_claim, "Onceward",
        "after a takeover the old owner's release is refused";
}

/// Facts of the store suite that stand in where no takeover is configured.
pub(super) const PROVED_BY_STORES: [&str; 2] = [
    "stale_owner_cannot_complete_after_takeover",
    "stale_owner_can_neither_renew_nor_release_after_takeover",
];

/// Distance and number of late requests.
const LATE_EVERY: Duration = Duration::from_millis(1);
const LATE_COMERS: u32 = 60;
/// Allowance for a busy machine, beyond the time when an answer is due.
const SLACK: Duration = Duration::from_secs(2);

async fn twenty_at_once_run_once(case: &Case) -> Verdict {
    burst(case, 20, 5).await
}

async fn five_hundred_at_once_run_once(case: &Case) -> Verdict {
    burst(case, 500, 1).await
}

/// So many requests under one key at once, in so many rounds with a key each: one runs, the
/// rest get its answer or are told that it is running.
pub async fn burst(case: &Case, callers: usize, rounds: u64) -> Verdict {
    for round in 1..=rounds {
        let ask = briefly_busy(case).key(&format!("round {round}"));
        let answers = all_at_once(case, &ask, callers).await?;
        let (running, done): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer.says_in_progress());
        running.iter().try_for_each(|answer| answer.is_in_progress())?;
        agree(case, &done)?;
        let last = case.until_settled(ask).await?;
        last.is_marked()?;
        done.iter().try_for_each(|answer| last.repeats(answer))?;
        case.ran(round).await?;
    }
    Ok(())
}

/// Exactly one is the first answer, and the others are its replays.
fn agree(case: &Case, done: &[&Answer]) -> Verdict {
    let firsts: Vec<_> = done.iter().filter(|answer| answer.is_first().is_ok()).collect();
    let marked = !case.expects().replay_marks.is_empty();
    let first = firsts.first().ok_or_else(|| {
        let seen: Vec<_> = done.iter().map(|answer| answer.status).collect();
        Stop::failed("one first answer", format!("answers that settle it: {seen:?}"))
    })?;
    if marked && firsts.len() > 1 {
        let seen = format!("{} first answers", firsts.len());
        return Err(Stop::failed("one first answer", seen));
    }
    done.iter().try_for_each(|answer| answer.repeats(first))
}

/// The same request on so many connections, sent when all of them are open.
async fn all_at_once(case: &Case, ask: &Ask<'_>, callers: usize) -> Result<Vec<Answer>, Stop> {
    let wire = ask.wire()?;
    let open = || Connection::open(case.target.protocol, &wire.authority);
    let opened = try_join_all((0..callers).map(|_| open())).await;
    let mut connections = opened.map_err(|why| Stop::failed("a connection each", why))?;
    let answers = join_all(connections.iter_mut().map(|it| it.exchange(&wire))).await;
    let note = format!("{callers} at once, answered");
    case.seen.exchanges.lock().push(note);
    answers.into_iter().map(|it| ask.clone().answered(it)).collect()
}

async fn in_progress_is_told_with_retry_after(case: &Case) -> Verdict {
    case.steers()?;
    let waits = matches!(case.expects().in_progress, InProgress::Wait(_));
    case.only_if(!waits, "duplicates wait")?;
    let first = case.post().key("k").behave("delay=1000").start();
    case.until_started(1).await?;
    case.post().key("k").send().await?.is_in_progress()?;
    first.answer().await?.is_first()?;
    case.ran(1).await
}

async fn after_completion_it_replays(case: &Case) -> Verdict {
    let first = briefly_busy(case).key("k").start();
    let ask = case.post().key("k");
    let first = first.answer().await?;
    case.until_settled(ask).await?.replays(&first)?;
    case.ran(1).await
}

async fn waiting_ends_with_the_first_answer(case: &Case) -> Verdict {
    let wait_max = wait_max(case)?;
    let half = format!("delay={}", wait_max.as_millis() / 2);
    let first = case.post().key("k").behave(&half).start();
    case.until_started(1).await?;
    let second = case.post().key("k").send().await?;
    second.replays(&first.answer().await?)?;
    case.ran(1).await
}

async fn waiting_ends_in_time(case: &Case) -> Verdict {
    let wait_max = wait_max(case)?;
    let longer = format!("delay={}", (wait_max * 2 + SLACK).as_millis());
    let first = case.post().key("k").behave(&longer).start();
    case.until_started(1).await?;
    let start = Instant::now();
    let second = case.post().key("k").send().await?;
    let took = start.elapsed();
    second.is_in_progress()?;
    second.that(took < wait_max + SLACK, &format!("an answer in {wait_max:?}, not {took:?}"))?;
    first.answer().await?.is_first()
}

async fn other_keys_are_not_held_up(case: &Case) -> Verdict {
    case.steers()?;
    let first = case.post().key("slow").behave("delay=3000").start();
    case.until_started(1).await?;
    let start = Instant::now();
    let other = case.post().key("other").send().await?;
    other.is_first()?;
    let took = start.elapsed();
    drop(first);
    other.that(took < SLACK, &format!("an answer before the slow one, not after {took:?}"))
}

async fn two_nodes_run_once(case: &Case) -> Verdict {
    let peer = case.target.peer.clone();
    let peer = peer.ok_or_else(|| Stop::skipped("there is one node only"))?;
    for round in 1..=5 {
        let key = format!("round {round}");
        let asks = (0..10).flat_map(|_| {
            let ask = || briefly_busy(case).key(&key);
            [ask().quiet(), ask().at(&peer).quiet()]
        });
        let answers = try_join_all(asks).await?;
        let done: Vec<_> = answers.iter().filter(|answer| !answer.says_in_progress()).collect();
        agree(case, &done)?;
        for node in [&case.target.base, &peer] {
            case.until_settled(case.post().key(&key).at(node)).await?.repeats(done[0])?;
        }
        case.ran(round).await?;
    }
    Ok(())
}

async fn a_client_that_hangs_up_changes_nothing(case: &Case) -> Verdict {
    let points = (0..=10).map(|step| Duration::from_millis(20 * step));
    try_join_all(points.map(|point| hang_up_at(case, point))).await.map(drop)
}

/// A client that sends a request to a handler of 200 ms, hangs up after so long and retries.
/// It runs once; if it had begun, the retry is a replay. Over HTTP/1.1 the connection is
/// closed, over HTTP/2 the stream is reset.
pub async fn hang_up_at(case: &Case, after: Duration) -> Verdict {
    // A probe of its own, so that executions of other points do not count here.
    let point = Case::new(&case.target, case.name);
    hang_up(&point, after).await.map_err(|stop| match stop {
        Stop::Failed { expected, seen } => {
            Stop::failed(expected, format!("{seen}, having hung up after {after:?}"))
        }
        other => other,
    })
}

async fn hang_up(case: &Case, after: Duration) -> Verdict {
    let slow = || match case.target.handler {
        Handler::Fixture => case.post().key("k").behave("delay=200"),
        Handler::Ids => case.post().key("k"),
    };
    let open = send_and_leave(case, &slow().wire()?, after).await?;
    let had_begun = case.probe_token().is_some() && case.counts().await?.started == 1;
    let retry = case.until_settled(slow()).await?;
    drop(open);
    if had_begun {
        retry.is_marked()?;
    }
    case.until_settled(slow()).await?.repeats(&retry)?;
    case.ran(1).await
}

/// Gives the connection back if it stays open.
async fn send_and_leave(
    case: &Case,
    wire: &Wire,
    after: Duration,
) -> Result<Option<Connection>, Stop> {
    let protocol = case.target.protocol;
    let failed = |why| Stop::failed("a connection", why);
    let mut connection = Connection::open(protocol, &wire.authority).await.map_err(failed)?;
    // An answer in time is fine as well: then the retry must replay it.
    let _: Result<_, _> = timeout(after, connection.exchange(wire)).await;
    Ok((protocol == Protocol::Http2).then_some(connection))
}

async fn a_body_that_breaks_off_is_never_run_twice(case: &Case) -> Verdict {
    let wire = case.post().key("k").wire()?;
    let sent = match case.target.protocol {
        Protocol::Http1 => raw::break_off(&wire).await,
        Protocol::Http2 => break_off(&wire).await,
    };
    sent.map_err(|why| Stop::failed("a request to be sent", why))?;
    let retry = case.until_settled(case.post().key("k")).await?;
    case.until_settled(case.post().key("k")).await?.repeats(&retry)?;
    case.ran(1).await
}

/// Sends half of a body over HTTP/2 and resets the stream.
async fn break_off(wire: &Wire) -> Result<(), String> {
    let half = wire.body.slice(..wire.body.len() / 2);
    let first = Ok(Frame::<Bytes>::data(half));
    let body = StreamBody::new(stream::iter([first]).chain(stream::pending()));
    let mut connection = Connection::open(Protocol::Http2, &wire.authority).await?;
    let exchange = connection.exchange_with(wire, BodyExt::boxed(body));
    // Dropped here: there is nothing to wait for but the server's having read the half.
    let _: Result<_, _> = timeout(Duration::from_millis(50), exchange).await;
    Ok(())
}

async fn who_arrives_as_the_first_ends_does_not_run(case: &Case) -> Verdict {
    for round in 1..=3 {
        let ask = || briefly_busy(case).key(&format!("round {round}"));
        let latecomers = (0..LATE_COMERS).map(|nth| async move {
            sleep(LATE_EVERY * nth).await;
            ask().quiet().await
        });
        let answers = try_join_all(latecomers).await?;
        let done: Vec<_> = answers.iter().filter(|answer| !answer.says_in_progress()).collect();
        agree(case, &done)?;
        case.ran(round).await?;
    }
    Ok(())
}

async fn a_lapsed_lease_is_unknown_until_its_owner_completes(case: &Case) -> Verdict {
    case.steers()?;
    let unknown = case.expects().lapse == Lapse::Unknown;
    case.only_if(unknown, "what lapses runs again")?;
    let first = begin_and_lapse(case, "delay=1500").await?;
    case.post().key("k").send().await?.is_unknown()?;
    let first = first.answer().await?;
    first.is_first()?;
    case.post().key("k").send().await?.replays(&first)?;
    case.ran(1).await
}

async fn stale_owner_cannot_complete_after_takeover(case: &Case) -> Verdict {
    takes_over(case, "delay=1500", PROVED_BY_STORES[0]).await
}

async fn stale_owner_cannot_release_the_new_claim(case: &Case) -> Verdict {
    takes_over(case, "status=429; delay=1500", PROVED_BY_STORES[1]).await
}

/// A second owner completes while the first, whose lease has lapsed, is still at work: what
/// the first says then does not count.
async fn takes_over(case: &Case, first: &str, proved_by: &'static str) -> Verdict {
    if case.expects().lapse != Lapse::Takeover || case.target.controls.is_none() {
        return Err(Stop::ProvedBy(proved_by));
    }
    let stale = begin_and_lapse(case, first).await?;
    let current = case.post().key("k").send().await?;
    current.is_first()?;
    stale.answer().await?;
    case.post().key("k").send().await?.replays(&current)?;
    case.ran(2).await
}

async fn begin_and_lapse(case: &Case, how: &str) -> Result<super::ask::Started, Stop> {
    case.controls()?;
    let first = case.post().key("k").behave(how).start();
    case.until_executed(1).await?;
    case.cause(Trouble::TimePasses(case.expects().lease * 2)).await?;
    Ok(first)
}

/// A request that keeps the handler busy for a moment, where it can be told to.
fn briefly_busy(case: &Case) -> Ask<'_> {
    match case.target.handler {
        Handler::Fixture => case.post().behave("delay=30"),
        Handler::Ids => case.post(),
    }
}

fn wait_max(case: &Case) -> Result<Duration, Stop> {
    case.steers()?;
    match case.expects().in_progress {
        InProgress::Wait(max) => Ok(max),
        InProgress::Reject | InProgress::Accepted => Err(Stop::skipped("duplicates do not wait")),
    }
}
