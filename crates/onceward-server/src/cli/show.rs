//! Records and decisions as text.

use onceward_core::{Clock as _, SystemAmbient, Timestamp};

use super::Fallible;
use super::output::{self, age, fitted, plain, wrapped};
use super::records::CallerCount;
use crate::admin::{DecisionView, RecordDetails, RecordPage, RecordView, Reply};
use crate::api::Rfc3339;

/// This machine's time, to compute ages.
pub(super) fn now() -> Timestamp {
    SystemAmbient::new().now()
}

/// Prints a table of records.
pub(super) fn listing(listing: &RecordPage) -> Fallible {
    if !listing.records.is_empty() {
        output::line(format!(
            "{:36} {:9} {:>5} {}",
            "OPERATION ID", "STATE", "AGE", "TENANT, OPERATION"
        ))?;
    }
    let now = now();
    for record in &listing.records {
        let age = age(record.updated_at.age(now));
        let scope = format!("{}, {}", record.tenant, record.operation);
        let row = format!("{:36} {:9} {age:>5} {scope}", record.operation_id, record.state);
        output::line(fitted(&row))?;
    }
    for id in &listing.undecodable {
        output::line(format!("unreadable  {id}"))?;
    }
    Ok(())
}

/// Prints a table of callers.
pub(super) fn callers(callers: &[CallerCount]) -> Fallible {
    if callers.is_empty() {
        return output::line("no records");
    }
    output::line(format!("{:>12} {:>9} {}", "RECORDS", "UNKNOWN", "TENANT, CALLER"))?;
    callers.iter().try_for_each(|it| {
        let (records, unknown) = (output::count(it.records), output::count(it.unknown));
        let row = format!("{records:>12} {unknown:>9} {}, {}", it.tenant, it.caller);
        output::line(fitted(&row))
    })
}

/// Prints one record and its decisions.
pub(super) fn record(details: &RecordDetails) -> Fallible {
    let RecordDetails { record, decisions } = details;
    for (name, value) in fields(record) {
        output::line(fitted(&format!("{name:12} {value}")))?;
    }
    if decisions.is_empty() {
        return output::line("decisions    none");
    }
    output::line("decisions")?;
    decisions.iter().try_for_each(|it| decision(it, "  "))
}

fn fields(record: &RecordView) -> Vec<(&'static str, String)> {
    let now = now();
    let with_age = |time: Rfc3339| format!("{time}  ({} ago)", age(time.age(now)));
    let mut fields = vec![
        ("operation id", record.operation_id.clone()),
        ("record", record.record.clone()),
        ("state", record.state.to_string()),
    ];
    fields.extend(record.unknown_cause.clone().map(|cause| ("cause", cause)));
    fields.push(("operation", record.operation.clone()));
    fields.extend(record.path.clone().map(|path| ("path", path)));
    fields.extend([("tenant", record.tenant.clone()), ("caller", record.caller.clone())]);
    let rare = [
        ("api version", &record.api_version),
        ("parent", &record.parent),
        ("region", &record.region),
    ];
    fields.extend(rare.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
    let taken_over = if record.taken_over { ", taken over" } else { "" };
    fields.push(("attempts", format!("{}{taken_over}", record.attempts)));
    fields.push(("fence", record.fence.to_string()));
    fields.extend(record.downstream_key.clone().map(|key| ("downstream", key)));
    fields.push(("fingerprint", record.fingerprint.clone()));
    fields.push(("created", with_age(record.created_at)));
    fields.push(("changed", with_age(record.updated_at)));
    let times = [("lease until", record.lease_until), ("kept until", record.kept_until)];
    fields.extend(times.into_iter().filter_map(|(name, it)| Some((name, it?.to_string()))));
    if let Some(outcome) = &record.outcome {
        let labels = [
            ("status", outcome.status.map(|status| status.to_string())),
            ("error code", outcome.error_code.clone()),
            ("resource", outcome.resource.clone()),
        ];
        fields.extend(labels.into_iter().filter_map(|(name, label)| Some((name, label?))));
    }
    fields.push(("outcome", outcome(record)));
    fields
}

fn outcome(record: &RecordView) -> String {
    let Some(outcome) = &record.outcome else { return "none".to_owned() };
    let mut parts = Vec::new();
    parts.extend(outcome.content_type.clone());
    parts.push(format!("{} bytes", outcome.bytes));
    parts.push(format!("{}, {:?}", outcome.codec, outcome.content).to_lowercase());
    parts.join(", ")
}

/// Prints a decision: when, what, who and why.
pub(super) fn decision(decision: &DecisionView, indent: &str) -> Fallible {
    let decided = format!("{:?}", decision.decided);
    let by = plain(&decision.by);
    output::line(format!("{indent}{}  {}  by {by}", decision.at, words(&decided)))?;
    output::line(wrapped(&decision.evidence, &format!("{indent}    ")))
}

/// `DidNotHappen` as words.
fn words(name: &str) -> String {
    let spaced: Vec<String> = name
        .chars()
        .map(
            |it| if it.is_uppercase() { format!(" {}", it.to_lowercase()) } else { it.to_string() },
        )
        .collect();
    spaced.concat().trim().to_owned()
}

/// Prints a stored reply as it would be sent.
pub(super) fn reply(reply: &Reply) -> Fallible {
    output::line(format!("\n{}", reply.status))?;
    for header in &reply.headers {
        output::line(plain(&format!("{}: {}", header.name, header.value)))?;
    }
    output::line("")?;
    body(&reply.body()?)
}

/// Prints a body unchanged; on a terminal only if it is text.
pub(super) fn body(body: &[u8]) -> Fallible {
    let is_control = |it: char| it.is_control() && it != '\n' && it != '\t';
    let is_text = std::str::from_utf8(body).is_ok_and(|text| !text.contains(is_control));
    if output::is_terminal() && !is_text {
        return output::line(format!(
            "{} bytes of binary data: redirect the output to a file",
            body.len()
        ));
    }
    output::bytes(body)?;
    if output::is_terminal() { output::line("") } else { Ok(()) }
}
