//! Cases: syntax of keys.

use super::answer::Answer;
use super::case::{Case, Stop, Verdict, cases, fresh_uuid};
use super::client::Protocol;
use super::problem;
use super::target::{KeyRule, KeySyntax};

cases! { Syntax;
    required_key_missing_is_400, "IETF draft-07 §2.7",
        "a required key that is missing: 400, nothing runs";
    optional_key_missing_runs_each_time, "seed 003",
        "without a key and none required: runs each time";
    quoted_uuid_is_accepted, "IETF draft-07 §2.1",
        "a quoted key is accepted and replays";
    bare_uuid_is_accepted, "Stripe",
        "a bare key is accepted; 400 where only quoted ones are";
    quoted_and_bare_name_the_same_key, "Onceward",
        "\"k\" and k are one key";
    empty_header_is_400, "seed 003",
        "an empty key header: 400, nothing runs";
    empty_string_is_400, "Onceward",
        "the key \"\": 400, nothing runs";
    blanks_are_400, "Onceward",
        "a key of blanks: 400, nothing runs";
    longest_key_is_accepted, "Stripe, seed 003",
        "a key of the greatest length is accepted and replays";
    too_long_key_is_400, "Stripe, seed 003",
        "one character more: 400, nothing runs";
    unterminated_quote_is_400, "RFC 9651 §4.2.5",
        "a quote that does not end: 400, nothing runs";
    escaped_quote_is_accepted, "RFC 9651 §4.2.5",
        "\"a\\\"b\" is accepted and replays";
    bad_escape_is_400, "RFC 9651 §4.2.5",
        "an escape of anything but quote and backslash: 400";
    control_byte_is_400, "RFC 9110 §5.5",
        "a control byte in the key: 400, nothing runs";
    non_ascii_is_400, "RFC 9651 §4.2.5",
        "bytes beyond ASCII in the key: 400, nothing runs";
    two_different_keys_are_400, "IETF draft-07 §2.1",
        "two key lines that differ: 400, nothing runs";
    header_name_in_other_letters_is_the_same, "RFC 9110 §5.1",
        "IDEMPOTENCY-KEY finds the same record";
    key_in_the_query_is_no_key, "IETF draft-07 §2",
        "a key in the query only counts as missing";
}

async fn required_key_missing_is_400(case: &Case) -> Verdict {
    case.only_if(case.expects().key == KeyRule::Required, "a key is optional")?;
    let answer = case.post().send().await?;
    answer.refuses(400, problem::MISSING)?;
    case.ran(0).await
}

async fn optional_key_missing_runs_each_time(case: &Case) -> Verdict {
    case.only_if(case.expects().key == KeyRule::Optional, "a key is required")?;
    for _ in 0..2 {
        case.post().send().await?.is_first()?;
    }
    case.ran(2).await
}

async fn quoted_uuid_is_accepted(case: &Case) -> Verdict {
    accepted(case, &format!("\"{}\"", fresh_uuid())).await
}

async fn bare_uuid_is_accepted(case: &Case) -> Verdict {
    match case.expects().key_syntax {
        KeySyntax::Lenient | KeySyntax::Opaque => accepted(case, &fresh_uuid()).await,
        KeySyntax::SfString => refused(case, fresh_uuid().as_bytes()).await,
    }
}

async fn quoted_and_bare_name_the_same_key(case: &Case) -> Verdict {
    let lenient = case.expects().key_syntax == KeySyntax::Lenient;
    case.only_if(lenient, "it does not read both notations")?;
    let key = fresh_uuid();
    let first = case.post().key_text(&key).send().await?;
    first.is_first()?;
    case.post().key_text(&format!("\"{key}\"")).send().await?.replays(&first)?;
    case.ran(1).await
}

async fn empty_header_is_400(case: &Case) -> Verdict {
    refused_as_empty(case, b"").await
}

async fn empty_string_is_400(case: &Case) -> Verdict {
    reads_quotes(case)?;
    refused(case, b"\"\"").await
}

async fn blanks_are_400(case: &Case) -> Verdict {
    refused_as_empty(case, b"   ").await
}

async fn longest_key_is_accepted(case: &Case) -> Verdict {
    let key = key_of(key_chars_max(case)?);
    accepted(case, &written(case, key)).await
}

async fn too_long_key_is_400(case: &Case) -> Verdict {
    let key = key_of(key_chars_max(case)? + 1);
    refused(case, written(case, key).as_bytes()).await
}

async fn unterminated_quote_is_400(case: &Case) -> Verdict {
    reads_quotes(case)?;
    refused(case, format!("\"{}", fresh_uuid()).as_bytes()).await
}

async fn escaped_quote_is_accepted(case: &Case) -> Verdict {
    reads_quotes(case)?;
    accepted(case, &format!("\"a\\\"b {}\"", fresh_uuid())).await
}

async fn bad_escape_is_400(case: &Case) -> Verdict {
    reads_quotes(case)?;
    refused(case, format!("\"a\\b {}\"", fresh_uuid()).as_bytes()).await
}

async fn control_byte_is_400(case: &Case) -> Verdict {
    case.only_over(Protocol::Http1)?;
    let key = format!("a\u{1}b{}", fresh_uuid());
    // The server's own parser may refuse it, so nothing is asked of the body.
    case.post().key_bytes(key.as_bytes()).send_raw().await?.is(400)?;
    case.ran(0).await
}

async fn non_ascii_is_400(case: &Case) -> Verdict {
    reads_quotes(case)?;
    refused(case, format!("ключ-{}", fresh_uuid()).as_bytes()).await
}

async fn two_different_keys_are_400(case: &Case) -> Verdict {
    reads_quotes(case)?;
    let answer = case.post().key("one").key("other").send().await?;
    answer.refuses(400, problem::INVALID)?;
    case.ran(0).await
}

async fn header_name_in_other_letters_is_the_same(case: &Case) -> Verdict {
    case.only_over(Protocol::Http1)?;
    let first = case.post().key("k").send().await?;
    first.is_first()?;
    let ask = case.post().key("k").key_header("IDEMPOTENCY-KEY");
    ask.send_raw().await?.replays(&first)?;
    case.ran(1).await
}

async fn key_in_the_query_is_no_key(case: &Case) -> Verdict {
    let path = format!("{}?Idempotency-Key={}", case.target.create, fresh_uuid());
    let answers = [case.post().path(&path).send().await?, case.post().path(&path).send().await?];
    match case.expects().key {
        KeyRule::Required => {
            answers.iter().try_for_each(|answer| answer.refuses(400, problem::MISSING))?;
            case.ran(0).await
        }
        KeyRule::Optional => {
            answers.iter().try_for_each(Answer::is_first)?;
            case.ran(2).await
        }
    }
}

async fn accepted(case: &Case, key: &str) -> Verdict {
    let first = case.post().key_text(key).send().await?;
    first.is_first()?;
    case.post().key_text(key).send().await?.replays(&first)?;
    case.ran(1).await
}

async fn refused(case: &Case, key: &[u8]) -> Verdict {
    let answer = case.post().key_bytes(key).send().await?;
    answer.refuses(400, problem::INVALID)?;
    case.ran(0).await
}

/// A header without a value may count as invalid or as missing.
async fn refused_as_empty(case: &Case, key: &[u8]) -> Verdict {
    case.only_if(case.expects().refuses_empty_keys, "it does not refuse empty keys")?;
    let answer = case.post().key_bytes(key).send().await?;
    let missing = answer.code().as_deref() == Some(problem::MISSING);
    answer.refuses(400, if missing { problem::MISSING } else { problem::INVALID })?;
    case.ran(0).await
}

fn reads_quotes(case: &Case) -> Verdict {
    let opaque = case.expects().key_syntax == KeySyntax::Opaque;
    case.only_if(!opaque, "it takes any text for a key")
}

fn key_chars_max(case: &Case) -> Result<usize, Stop> {
    case.expects().key_chars_max.ok_or_else(|| Stop::skipped("it names no greatest length"))
}

fn key_of(length: usize) -> String {
    let start = fresh_uuid();
    format!("{start:x<length$}")
}

/// A key as this server wants it written.
fn written(case: &Case, key: String) -> String {
    match case.expects().key_syntax {
        KeySyntax::SfString => format!("\"{key}\""),
        KeySyntax::Lenient | KeySyntax::Opaque => key,
    }
}
