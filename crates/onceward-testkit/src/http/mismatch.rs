//! Cases: other requests under a used key.

use http::Method;

use super::ask::Ask;
use super::case::{Case, Stop, Verdict, cases};
use super::gzip;
use super::target::{Compares, Lapse};

const FINGERPRINT: &str = "IETF draft-07 §2.4, Onceward";

cases! { Mismatch;
    a_changed_field_is_refused, "IETF draft-07 §2.7, seed 003",
        "same key, other amount: refused, nothing runs";
    the_original_still_replays_after_a_mismatch, "Onceward",
        "a refused request leaves the first answer in place";
    member_order_does_not_matter, FINGERPRINT,
        "members in another order: replay";
    blanks_do_not_matter, FINGERPRINT,
        "blanks between tokens: replay";
    equal_numbers_are_equal, FINGERPRINT,
        "100, 1e2 and 100.0: replay";
    large_numbers_are_told_apart, FINGERPRINT,
        "9007199254740993 is not 9007199254740992: refused";
    a_number_is_not_a_string, FINGERPRINT,
        "1 is not \"1\": refused";
    array_order_matters, FINGERPRINT,
        "[1,2] is not [2,1]: refused";
    null_is_not_absent, FINGERPRINT,
        "a null member is not an absent one: refused";
    empty_is_not_an_empty_object, FINGERPRINT,
        "no body is not {}: refused";
    a_query_value_matters, FINGERPRINT,
        "another query value: refused";
    query_order_does_not_matter, FINGERPRINT,
        "query parameters in another order: replay";
    a_path_parameter_matters, FINGERPRINT,
        "another id in the path of the same operation: refused";
    another_method_is_never_a_replay, FINGERPRINT,
        "PATCH under a POST's key: never the POST's answer";
    json_is_not_a_form, FINGERPRINT,
        "another media type: refused";
    a_new_token_of_the_same_caller_replays, "Onceward",
        "credentials are no part of the request";
    trace_headers_and_user_agent_do_not_matter, "Onceward",
        "traceparent, User-Agent, cookies: replay";
    one_byte_of_a_multipart_file_matters, FINGERPRINT,
        "one byte of an uploaded file: refused";
    a_multipart_boundary_does_not_matter, FINGERPRINT,
        "the same parts with another boundary: replay";
    gzip_does_not_matter, FINGERPRINT,
        "the same body compressed: replay";
    a_mismatch_is_told_while_the_first_is_running, "Onceward",
        "a mismatch beats in progress";
}

async fn a_changed_field_is_refused(case: &Case) -> Verdict {
    case.compares()?;
    refused(case, case.post().amount("100"), case.post().amount("101")).await
}

async fn the_original_still_replays_after_a_mismatch(case: &Case) -> Verdict {
    case.compares()?;
    let first = case.post().key("k").amount("100").send().await?;
    case.post().key("k").amount("101").send().await?.is_mismatch()?;
    case.post().key("k").amount("100").send().await?.replays(&first)?;
    case.ran(1).await
}

async fn member_order_does_not_matter(case: &Case) -> Verdict {
    meaning_or_members(case)?;
    let (one, other) = reordered(case)?;
    replayed(case, case.post().json(&one), case.post().json(&other)).await
}

async fn blanks_do_not_matter(case: &Case) -> Verdict {
    meaning_or_members(case)?;
    let body = (case.target.body)("100");
    let spread = body.replace(':', " :\n\t ").replace(',', " , ");
    replayed(case, case.post().json(&body), case.post().json(&spread)).await
}

async fn equal_numbers_are_equal(case: &Case) -> Verdict {
    case.compares_meaning()?;
    let first = case.post().key("k").amount("100").send().await?;
    first.is_first()?;
    for equal in ["1e2", "100.0", "1E+2", "1000e-1"] {
        case.post().key("k").amount(equal).send().await?.replays(&first)?;
    }
    case.ran(1).await
}

async fn large_numbers_are_told_apart(case: &Case) -> Verdict {
    // The sample may hold amounts as floating-point numbers where only members count.
    meaning_or_bytes(case)?;
    let ask = |amount| case.post().amount(amount);
    refused(case, ask("9007199254740993"), ask("9007199254740992")).await
}

async fn a_number_is_not_a_string(case: &Case) -> Verdict {
    bodies_differ(case, r#"{"amount":1}"#, r#"{"amount":"1"}"#).await
}

async fn array_order_matters(case: &Case) -> Verdict {
    bodies_differ(case, r#"{"amount":[1,2]}"#, r#"{"amount":[2,1]}"#).await
}

async fn null_is_not_absent(case: &Case) -> Verdict {
    bodies_differ(case, r#"{"amount":1,"note":null}"#, r#"{"amount":1}"#).await
}

async fn empty_is_not_an_empty_object(case: &Case) -> Verdict {
    bodies_differ(case, "", "{}").await
}

async fn a_query_value_matters(case: &Case) -> Verdict {
    paths(case, "/orders?note=a", "/orders?note=b", Then::Refused).await
}

async fn query_order_does_not_matter(case: &Case) -> Verdict {
    paths(case, "/orders?a=1&b=2&a=3", "/orders?b=2&a=1&a=3", Then::Replayed).await
}

async fn a_path_parameter_matters(case: &Case) -> Verdict {
    paths(case, "/orders/17/pay", "/orders/18/pay", Then::Refused).await
}

async fn another_method_is_never_a_replay(case: &Case) -> Verdict {
    case.compares_meaning()?;
    case.steers()?;
    let first = case.post().key("k").send().await?;
    first.is_first()?;
    let other = case.ask(Method::PATCH, "/orders").key("k").send().await?;
    other.is_unmarked()?;
    other.that(other.body != first.body, "anything but the first answer")
}

async fn json_is_not_a_form(case: &Case) -> Verdict {
    case.compares_meaning()?;
    case.steers()?;
    let form = case.post().body("application/x-www-form-urlencoded", "amount=100");
    refused(case, case.post().amount("100"), form).await
}

async fn a_new_token_of_the_same_caller_replays(case: &Case) -> Verdict {
    let renewed = case.target.caller_renewed.clone();
    let renewed = renewed.ok_or_else(|| Stop::skipped("the caller has one token only"))?;
    replayed(case, case.post(), case.post().caller(&renewed)).await
}

async fn trace_headers_and_user_agent_do_not_matter(case: &Case) -> Verdict {
    let other = case
        .post()
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .header("X-Request-ID", "another")
        .header("Cookie", "session=another")
        .header("User-Agent", "another/2.0");
    replayed(case, case.post().header("User-Agent", "one/1.0"), other).await
}

async fn one_byte_of_a_multipart_file_matters(case: &Case) -> Verdict {
    case.compares_meaning()?;
    case.steers()?;
    let one = multipart(case, "one-boundary", b"\0\x01\x02");
    refused(case, one, multipart(case, "one-boundary", b"\0\x01\x03")).await
}

async fn a_multipart_boundary_does_not_matter(case: &Case) -> Verdict {
    case.compares_meaning()?;
    case.steers()?;
    let one = multipart(case, "one-boundary", b"\0\x01\x02");
    replayed(case, one, multipart(case, "another", b"\0\x01\x02")).await
}

async fn gzip_does_not_matter(case: &Case) -> Verdict {
    case.compares_meaning()?;
    case.steers()?;
    let body = (case.target.body)("100");
    let encoded = gzip::stored(body.as_bytes());
    let encoded = case.post().body("application/json", encoded).header("Content-Encoding", "gzip");
    replayed(case, case.post().json(&body), encoded).await
}

async fn a_mismatch_is_told_while_the_first_is_running(case: &Case) -> Verdict {
    case.compares()?;
    case.steers()?;
    let first = case.post().key("k").amount("100").behave("delay=1000").start();
    case.until_started(1).await?;
    let other = || case.post().key("k").amount("101");
    if case.expects().lapse == Lapse::RolledBack {
        // A running transaction is not visible, so the refusal comes when it has ended.
        case.until_settled(other()).await?.is_mismatch()?;
    } else {
        other().send().await?.is_mismatch()?;
    }
    first.answer().await?.is_first()?;
    case.ran(1).await
}

async fn refused(case: &Case, one: Ask<'_>, other: Ask<'_>) -> Verdict {
    one.key("k").send().await?.is_first()?;
    other.key("k").send().await?.is_mismatch()?;
    case.ran(1).await
}

async fn replayed(case: &Case, one: Ask<'_>, other: Ask<'_>) -> Verdict {
    let first = one.key("k").send().await?;
    first.is_first()?;
    other.key("k").send().await?.replays(&first)?;
    case.ran(1).await
}

/// Two bodies that only our fixture is sure to take.
async fn bodies_differ(case: &Case, one: &str, other: &str) -> Verdict {
    meaning_or_bytes(case)?;
    case.steers()?;
    refused(case, case.post().json(one), case.post().json(other)).await
}

enum Then {
    Refused,
    Replayed,
}

async fn paths(case: &Case, one: &str, other: &str, then: Then) -> Verdict {
    case.compares_meaning()?;
    case.steers()?;
    let (one, other) = (case.post().path(one), case.post().path(other));
    match then {
        Then::Refused => refused(case, one, other).await,
        Then::Replayed => replayed(case, one, other).await,
    }
}

fn meaning_or_members(case: &Case) -> Verdict {
    case.compares()?;
    let bytes = case.expects().compares == Compares::Bytes;
    case.only_if(!bytes, "it compares bytes of the body")
}

fn meaning_or_bytes(case: &Case) -> Verdict {
    case.compares()?;
    let members = case.expects().compares == Compares::Members;
    case.only_if(!members, "it compares some members only")
}

/// The sample body with a second member, and the same in the other order.
fn reordered(case: &Case) -> Result<(String, String), Stop> {
    let sample: serde_json::Value =
        serde_json::from_str(&(case.target.body)("100")).unwrap_or_default();
    let members = sample.as_object().ok_or_else(|| Stop::skipped("its body is no object"))?;
    let mut texts: Vec<_> =
        members.iter().map(|(name, value)| format!("{name:?}:{value}")).collect();
    if texts.len() < 2 {
        texts.push(r#""note":"x""#.to_owned());
    }
    let one = format!("{{{}}}", texts.join(","));
    texts.reverse();
    Ok((one, format!("{{{}}}", texts.join(","))))
}

fn multipart<'a>(case: &'a Case, boundary: &str, file: &[u8]) -> Ask<'a> {
    let field = "Content-Disposition: form-data; name=\"amount\"\r\n\r\n100";
    let head = "Content-Disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\n\
                Content-Type: application/octet-stream\r\n\r\n";
    let mut body = format!("--{boundary}\r\n{field}\r\n--{boundary}\r\n{head}").into_bytes();
    body.extend(file);
    body.extend(format!("\r\n--{boundary}--\r\n").into_bytes());
    case.post().body(&format!("multipart/form-data; boundary={boundary}"), body)
}
