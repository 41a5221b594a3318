//! Sentences about the terms of an operation. Operations with the same sentence share it.

use super::super::responses::ResponseTerms;
use super::super::terms::{Place, SameRequest, Syntax, Terms, WhileRunningAnswer};
use super::super::words::{code, codes, duration, either, header, list, size};

/// A fact about an operation: a label, and its sentences. An empty text says nothing.
pub(super) struct Fact {
    pub(super) label: &'static str,
    pub(super) text: fn(&Terms) -> String,
}

const fn fact(label: &'static str, text: fn(&Terms) -> String) -> Fact {
    Fact { label, text }
}

/// The key.
pub(super) const KEY: &[Fact] = &[
    fact("Where it is", key_place),
    fact("What it looks like", key_form),
    fact("Length", key_length),
    fact("A request without a key", without_key),
];

/// Which requests are the same.
pub(super) const SAME_REQUEST: &[Fact] = &[
    fact("Compared", compared),
    fact("Not compared", |_| "Other headers, and the order of query parameters.".into()),
    fact("JSON", |_| {
        "Compared by its meaning: the order of members, blanks, and spellings of a number (`100` \
         and `1e2`) do not count."
            .into()
    }),
    fact("Members of a JSON body", compared_members),
    fact("The same key with a different request", mismatch),
    fact("The member `differs` of that error", differs),
];

/// Facts about the response to a retry.
pub(super) const RETRY: &[Fact] = &[
    fact("The first request is still running", while_running),
    fact("You disconnected, or your timeout was over", |_| {
        "The first request goes on; a retry gets its response, or what else this list says.".into()
    }),
    fact("The response of the first request is stored", replayed),
    fact("Before a retry gets a stored response", confirmed),
    fact("The key is free, because nothing happened", |_| "The retry is executed.".into()),
    fact("The time is over for which the response is kept", expired),
    fact("The server failed while it executed the first request", after_crash),
    fact("Keys cannot be checked at the moment", outage),
];

/// Facts about the stored parts of a response.
pub(super) const STORED: &[Fact] = &[
    fact("Largest stored response", |terms| format!("{}.", size(terms.response_bytes_max as u64))),
    fact("Larger responses, and event streams", |_| {
        "Only status and `Location` are stored: the first request gets all of it, and a retry gets \
         409 `IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE` with these two."
            .into()
    }),
    fact("Headers", stored_headers),
    fact("If a response cannot be stored", unstored),
];

/// The business reference.
pub(super) const REFERENCE: &[Fact] =
    &[fact("Where it is", reference_place), fact("A known reference", reference_known)];

/// Limits.
pub(super) const LIMITS: &[Fact] = &[fact("Request body", |terms| {
    let bytes = size(terms.request_bytes_max as u64);
    format!("At most {bytes}, also after decompression; a larger one gets 413 `REQUEST_TOO_LARGE`.")
})];

/// The place of a key or a reference.
pub(super) fn place(place: &Place) -> String {
    match place {
        Place::Header(name) => format!("the header {}", code(&header(name))),
        Place::Body(pointer) => format!("the member {} of the JSON body", code(pointer)),
    }
}

/// The table about the responses of an operation.
pub(super) fn responses(terms: &Terms) -> String {
    let ResponseTerms { stored, without_body, free, unknown } = &terms.responses;
    let row = |statuses: String, then: &str| format!("\n| {statuses} | {then} |");
    let mut table = "| First response | Afterwards |\n| :-- | :-- |".to_owned();
    if !stored.is_empty() {
        let mut then = "**It is stored**, and every retry gets it.".to_owned();
        if stored.has_class(4) {
            then += " After a 4xx, a corrected request needs a new key.";
        }
        if stored.has_class(5) {
            then += " After a 5xx, look up whether it had an effect before you use a new key.";
        }
        table += &row(list(&stored.words()), &then);
    }
    if !without_body.is_empty() {
        let then = "**Its body is not stored**, because it is sensitive: a retry gets 409 \
                    `IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE` with its status and `Location`. It is not \
                    executed again.";
        table += &row(list(&without_body.words()), then);
    }
    if !free.is_empty() {
        let then = "**The key is free**: a retry with the same key is executed.";
        table += &row(list(&free.words()), then);
    }
    let none = "none, because the service failed or took too long".to_owned();
    let unknown: Vec<_> = unknown.words().into_iter().chain([none]).collect();
    let then = "**The outcome is unknown**: the request may have been executed. It is not \
                executed again; see [unknown outcomes](#unknown-outcomes).";
    table + &row(either(&unknown), then)
}

fn key_place(terms: &Terms) -> String {
    let once = match terms.key.place {
        Place::Header(_) => ", once",
        Place::Body(_) => ", a string",
    };
    let place = place(&terms.key.place);
    format!("In {place}{once}.")
}

fn key_form(terms: &Terms) -> String {
    const BARE: &str = "visible ASCII characters except commas and double quotes";
    let form = match terms.key.syntax {
        Syntax::QuotedOrBare => format!(
            "Bare ({BARE}), or in double quotes as a [structured-field \
             string](https://www.rfc-editor.org/rfc/rfc9651#name-strings). `\"k\"` and `k` are the \
             same key."
        ),
        Syntax::Quoted => "In double quotes, as a [structured-field \
                           string](https://www.rfc-editor.org/rfc/rfc9651#name-strings)."
            .into(),
        Syntax::Bare => format!("Without quotes: {BARE}."),
        Syntax::Json => "Printable ASCII characters.".into(),
    };
    match terms.key.uuid {
        true => format!("A UUID. {form}"),
        false => form,
    }
}

fn key_length(terms: &Terms) -> String {
    if terms.key.uuid {
        return String::new();
    }
    format!("{} to {} characters.", terms.key.chars_min, terms.key.chars_max)
}

fn without_key(terms: &Terms) -> String {
    match terms.key.required {
        true => "Gets 400 `MISSING_IDEMPOTENCY_KEY` and is not executed.".into(),
        false => "Is executed, and so is every retry of it.".into(),
    }
}

fn compared(terms: &Terms) -> String {
    let SameRequest { host, version_header, .. } = &terms.same_request;
    let mut parts: Vec<String> = ["method", "path", "query"].map(str::to_owned).into();
    parts.extend(host.then(|| "host name".to_owned()));
    let version = version_header.as_ref();
    parts.extend(version.map(|name| format!("the header {}", code(&header(name)))));
    parts.extend(["content type", "body"].map(str::to_owned));
    format!("The {}.", list(&parts))
}

fn compared_members(terms: &Terms) -> String {
    let SameRequest { only, except, .. } = &terms.same_request;
    let count = |members: &[String]| if members.len() == 1 { "counts" } else { "count" };
    let do_not = |members: &[String]| if members.len() == 1 { "does" } else { "do" };
    match (only.as_slice(), except.as_slice()) {
        ([], []) => String::new(),
        (only, []) => format!("Only {} {}.", list(&codes(only)), count(only)),
        ([], except) => format!("{} {} not count.", list(&codes(except)), do_not(except)),
        (only, except) => format!(
            "Only {} {}, without {}.",
            list(&codes(only)),
            count(only),
            list(&codes(except))
        ),
    }
}

fn mismatch(terms: &Terms) -> String {
    format!(
        "Gets {} `IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST` and is not executed, also while \
         the first request is running.",
        terms.mismatch_status
    )
}

fn differs(terms: &Terms) -> String {
    match terms.same_request.names_differences {
        true => "Names the parts that differ, such as `body:/amount`, and never a value.".into(),
        false => String::new(),
    }
}

fn while_running(terms: &Terms) -> String {
    let delay = terms.while_running.retry_after.as_secs_f64().ceil().max(1.0);
    let conflict = format!("409 `IDEMPOTENCY_REQUEST_IN_PROGRESS` with `Retry-After: {delay}`");
    match &terms.while_running.answer {
        WhileRunningAnswer::Refused => format!("The retry gets {conflict}."),
        WhileRunningAnswer::Waits(longest) => format!(
            "The retry waits for that response, at most {}; then it gets {conflict}.",
            duration(*longest)
        ),
        WhileRunningAnswer::Accepted => format!(
            "The retry gets 202 with `Retry-After: {delay}`, and with the `Location` of the \
             [status page](#status-page)."
        ),
    }
}

fn replayed(terms: &Terms) -> String {
    let status = match terms.replay.ok_instead_of_created {
        true => "The retry gets it, with the same body and status, except that 201 becomes 200.",
        false => "The retry gets it, with the same body and status.",
    };
    let marks: Vec<_> =
        terms.replay.marks.iter().map(|name| code(&format!("{}: true", header(name)))).collect();
    match marks.as_slice() {
        [] => format!("{status} Nothing marks it as a replay."),
        marks => {
            format!("{status} It has {}, which the first response does not have.", list(marks))
        }
    }
}

fn confirmed(terms: &Terms) -> String {
    match terms.confirms_replays {
        true => "The API checks that the operation still stands. If it cannot, the retry gets 503 \
                 `IDEMPOTENCY_OUTCOME_UNCONFIRMED`; if the operation is gone, 409 \
                 `IDEMPOTENCY_OUTCOME_CONTRADICTED`. It is not executed again."
            .into(),
        false => String::new(),
    }
}

fn expired(terms: &Terms) -> String {
    let kept = duration(terms.retention);
    match terms.expired.is_zero() {
        true => format!(
            "{kept} after the first response, the key is forgotten: **the retry is executed**, as \
             a new request."
        ),
        false => format!(
            "{kept} after the first response, the retry gets 409 `IDEMPOTENCY_KEY_EXPIRED`. \
             Another {} later the key is forgotten: **a retry is executed**, as a new request.",
            duration(terms.expired)
        ),
    }
}

fn after_crash(terms: &Terms) -> String {
    let noticed = duration(terms.crash_noticed);
    match terms.runs_again_after_crash {
        true => format!(
            "**A retry is executed**, {noticed} later at the latest, although the first request \
             may have had an effect. The service takes care that this does no harm."
        ),
        false => format!(
            "{noticed} later at the latest, the outcome is [unknown](#unknown-outcomes). Until \
             then the first request counts as running."
        ),
    }
}

fn outage(terms: &Terms) -> String {
    match terms.unprotected_during_outage {
        true => "**Every request is executed, also a retry.** No key is remembered.".into(),
        false => "The request gets 503 `IDEMPOTENCY_STORE_UNAVAILABLE` and is not executed.".into(),
    }
}

fn stored_headers(terms: &Terms) -> String {
    let names =
        |names: &[String]| list(&names.iter().map(|it| code(&header(it))).collect::<Vec<_>>());
    let (kept, dropped) = (&terms.replay.headers_kept, &terms.replay.headers_dropped);
    let mut text =
        "All, except cookies, authentication, dates, and ids of requests and traces.".to_owned();
    if !kept.is_empty() {
        text += &format!(" A retry also gets {} of the first response.", names(kept));
    }
    if !dropped.is_empty() {
        text += &format!(" A retry does not get {}.", names(dropped));
    }
    text
}

fn unstored(terms: &Terms) -> String {
    match terms.withholds_unstored_responses {
        true => "The first request gets 500 `IDEMPOTENCY_OUTCOME_UNKNOWN` instead of it, although \
                 it was executed."
            .into(),
        false => String::new(),
    }
}

fn reference_place(terms: &Terms) -> String {
    let Some(reference) = &terms.reference else { return String::new() };
    let place = place(&reference.place);
    let number = if matches!(reference.place, Place::Body(_)) { ", or a number" } else { "" };
    format!("In {place}: 1 to 255 printable ASCII characters{number}. It is optional.")
}

fn reference_known(terms: &Terms) -> String {
    let Some(reference) = &terms.reference else { return String::new() };
    let (known, taken) = (duration(reference.known), "409 `BUSINESS_REFERENCE_TAKEN`");
    match reference.replays {
        true => format!(
            "For {known}, a request with a known reference is not executed, also under a new key: \
             the same request gets the first response, and a different one gets {taken}."
        ),
        false => format!(
            "For {known}, a request with a known reference is not executed: under another key it \
             gets {taken}."
        ),
    }
}
