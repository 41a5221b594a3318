//! Cases: replays.

use http::Method;

use super::answer::Answer;
use super::case::{Case, Stop, Verdict, cases};
use super::client::Protocol;

cases! { Replay;
    first_answer_carries_no_mark, "Stripe, seed 003",
        "a first answer is not marked as a replay";
    another_key_runs_again, "IETF draft-07 §2.2",
        "the same body under another key runs again";
    same_request_replays, "IETF draft-07 §2.6, seed 003",
        "same key, same body: the first answer, byte for byte, marked";
    ten_retries_run_once, "IETF draft-07 §2.6",
        "after ten retries it has run once";
    location_is_kept, "Onceward",
        "a replay has the first answer's Location";
    a_changed_resource_does_not_change_the_replay, "Stripe, seed 000",
        "the stored body, though the resource was changed";
    a_deleted_resource_does_not_change_the_replay, "Stripe, seed 000",
        "the stored body, though the resource is gone";
    no_content_replays_as_204, "RFC 9110 §15.3.5",
        "204: no body and no content type in the replay either";
    see_other_is_kept_and_not_followed, "RFC 9110 §15.4.4",
        "303 with its Location, replayed as such";
    nul_bytes_are_identical, "Onceward",
        "a body with NUL bytes is replayed byte for byte";
    an_empty_200_is_stored, "Onceward",
        "an empty 200 is an answer like others";
    a_chunked_answer_replays_whole, "RFC 9112 §6",
        "an answer without a length is replayed whole, with valid framing";
    a_large_answer_replays_whole, "Onceward",
        "a megabyte is replayed byte for byte";
    content_length_matches, "RFC 9110 §8.6",
        "Content-Length is that of the body, first and replayed";
    no_hop_by_hop_headers_over_http2, "RFC 9113 §8.2.2",
        "no connection headers over HTTP/2, first and replayed";
    cookies_are_not_replayed, "Onceward",
        "Set-Cookie goes to the first caller only";
    request_ids_are_not_replayed, "Onceward",
        "the first request's id is not the replay's";
}

async fn first_answer_carries_no_mark(case: &Case) -> Verdict {
    case.post().key("k").send().await?.is_first()
}

async fn another_key_runs_again(case: &Case) -> Verdict {
    let one = case.post().key("one").send().await?;
    let other = case.post().key("other").send().await?;
    one.is_first()?;
    other.is_first()?;
    other.that(one.body != other.body, "an answer of its own")?;
    case.ran(2).await
}

async fn same_request_replays(case: &Case) -> Verdict {
    first_and_replay(case, "").await.map(drop)
}

async fn ten_retries_run_once(case: &Case) -> Verdict {
    let first = case.post().key("k").send().await?;
    for _ in 0..10 {
        case.post().key("k").send().await?.replays(&first)?;
    }
    case.ran(1).await
}

async fn location_is_kept(case: &Case) -> Verdict {
    let first = case.post().key("k").send().await?;
    first.is_first()?;
    case.only_if(first.header("location").is_some(), "its answers have no Location")?;
    let again = case.post().key("k").send().await?;
    again.is_marked()?;
    again.keeps("location", &first)
}

async fn a_changed_resource_does_not_change_the_replay(case: &Case) -> Verdict {
    case.steers()?;
    let first = case.post().key("k").send().await?;
    let order = place_of(&first)?;
    case.ask(Method::PUT, &order).amount("1").send().await?.is(200)?;
    case.post().key("k").send().await?.replays(&first)?;
    let now = case.ask(Method::GET, &order).send().await?;
    now.that(now.json().is_some_and(|it| it["amount"] == 1), "the change to last")
}

async fn a_deleted_resource_does_not_change_the_replay(case: &Case) -> Verdict {
    case.steers()?;
    let first = case.post().key("k").send().await?;
    let order = place_of(&first)?;
    case.ask(Method::DELETE, &order).send().await?.is(204)?;
    case.post().key("k").send().await?.replays(&first)?;
    case.ask(Method::GET, &order).send().await?.is(404)?;
    case.ran(1).await
}

async fn no_content_replays_as_204(case: &Case) -> Verdict {
    let (first, again) = steered(case, "status=204; body=empty").await?;
    for answer in [&first, &again] {
        answer.is(204)?;
        answer.that(answer.body.is_empty(), "no body")?;
        answer.that(answer.header("content-type").is_none(), "no content type")?;
    }
    Ok(())
}

async fn see_other_is_kept_and_not_followed(case: &Case) -> Verdict {
    let (_, again) = steered(case, "status=303; location=/orders/elsewhere").await?;
    again.is(303)?;
    again.that(again.header("location") == Some("/orders/elsewhere"), "its Location")
}

async fn nul_bytes_are_identical(case: &Case) -> Verdict {
    let (first, _) = steered(case, "body=nul").await?;
    first.that(first.body.contains(&0), "NUL bytes in the first answer")
}

async fn an_empty_200_is_stored(case: &Case) -> Verdict {
    let (first, _) = steered(case, "status=200; body=empty").await?;
    first.that(first.body.is_empty(), "an empty first answer")
}

async fn a_chunked_answer_replays_whole(case: &Case) -> Verdict {
    // The first answer may come in chunks or whole, as the server likes.
    let (first, again) = steered(case, "chunked").await?;
    well_framed(case, &first)?;
    well_framed(case, &again)
}

async fn a_large_answer_replays_whole(case: &Case) -> Verdict {
    let (first, again) = steered(case, "size=1000000").await?;
    first.that(first.body.len() == 1_000_000, "a megabyte")?;
    well_framed(case, &again)
}

async fn content_length_matches(case: &Case) -> Verdict {
    let (first, again) = first_and_replay(case, "").await?;
    well_framed(case, &first)?;
    well_framed(case, &again)
}

async fn no_hop_by_hop_headers_over_http2(case: &Case) -> Verdict {
    case.only_over(Protocol::Http2)?;
    let (first, again) = first_and_replay(case, "").await?;
    for name in ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"] {
        for answer in [&first, &again] {
            answer.that(!answer.headers.contains_key(name), &format!("no {name}"))?;
        }
    }
    Ok(())
}

async fn cookies_are_not_replayed(case: &Case) -> Verdict {
    goes_to_the_first_only(case, "set-cookie").await
}

async fn request_ids_are_not_replayed(case: &Case) -> Verdict {
    case.steers()?;
    let first = case.post().key("k").behave("request-id").send().await?;
    let again = case.post().key("k").behave("request-id").send().await?;
    again.replays(&first)?;
    let (one, other) = (first.header("x-request-id"), again.header("x-request-id"));
    again.that(one.is_some() && one != other, "another X-Request-Id, or none")
}

async fn goes_to_the_first_only(case: &Case, header: &str) -> Verdict {
    let (first, again) = steered(case, header).await?;
    first.that(first.headers.contains_key(header), &format!("{header} in the first"))?;
    again.that(!again.headers.contains_key(header), &format!("no {header} in a replay"))
}

/// Sends a steered request and its retry, and checks both answers.
async fn steered(case: &Case, how: &str) -> Result<(Answer, Answer), Stop> {
    case.steers()?;
    first_and_replay(case, how).await
}

async fn first_and_replay(case: &Case, how: &str) -> Result<(Answer, Answer), Stop> {
    let ask = || if how.is_empty() { case.post() } else { case.post().behave(how) };
    let first = ask().key("k").send().await?;
    first.is_unmarked()?;
    let again = ask().key("k").send().await?;
    again.replays(&first)?;
    case.ran(1).await?;
    Ok((first, again))
}

fn place_of(first: &Answer) -> Result<String, Stop> {
    first.is_first()?;
    let id = first.id().ok_or_else(|| Stop::failed("an id", first.summary()))?;
    Ok(format!("/orders/{id}"))
}

/// The client has read the body by its framing; this looks at what the framing was.
fn well_framed(case: &Case, answer: &Answer) -> Verdict {
    let lengths = answer.headers.get_all("content-length").iter().count();
    let length = answer.header("content-length");
    let chunked = answer.headers.contains_key("transfer-encoding");
    match case.target.protocol {
        Protocol::Http1 => {
            answer.that(lengths + usize::from(chunked) == 1, "one length, or chunks")?;
        }
        Protocol::Http2 => answer.that(lengths <= 1 && !chunked, "at most one length")?,
    }
    let right = length.is_none_or(|text| text == answer.body.len().to_string());
    answer.that(right, &format!("a Content-Length of {}", answer.body.len()))
}
