//! Records and decisions as people read them.

use onceward_core::{Clock as _, SystemAmbient, Timestamp};

use super::Fallible;
use super::output::{self, age, fitted, plain, wrapped};
use crate::admin::{DecisionView, RecordDetails, RecordPage, RecordView, Reply};
use crate::api::Rfc3339;

/// By this machine's clock, for ages.
pub(super) fn now() -> Timestamp {
    SystemAmbient::new().now()
}

/// A table of records.
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
        let whose = format!("{}, {}", record.tenant, record.operation);
        let row = format!("{:36} {:9} {age:>5} {whose}", record.operation_id, record.state);
        output::line(fitted(&row))?;
    }
    for id in &listing.undecodable {
        output::line(format!("unreadable  {id}"))?;
    }
    Ok(())
}

/// All about one record.
pub(super) fn record(shown: &RecordDetails) -> Fallible {
    let RecordDetails { record, decisions } = shown;
    for (name, value) in facts(record) {
        output::line(fitted(&format!("{name:12} {value}")))?;
    }
    if decisions.is_empty() {
        return output::line("decisions    none");
    }
    output::line("decisions")?;
    decisions.iter().try_for_each(|decision| about(decision, "  "))
}

fn facts(record: &RecordView) -> Vec<(&'static str, String)> {
    let now = now();
    let when = |moment: Rfc3339| format!("{moment}  ({} ago)", age(moment.age(now)));
    let mut facts = vec![
        ("operation id", record.operation_id.clone()),
        ("record", record.record.clone()),
        ("state", record.state.to_string()),
        ("operation", record.operation.clone()),
        ("tenant", record.tenant.clone()),
        ("caller", record.caller.clone()),
    ];
    let rare = [
        ("api version", &record.api_version),
        ("parent", &record.parent),
        ("region", &record.region),
    ];
    facts.extend(rare.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
    let taken = if record.taken_over { ", taken over" } else { "" };
    facts.push(("attempts", format!("{}{taken}", record.attempts)));
    facts.push(("fence", record.fence.to_string()));
    facts.push(("fingerprint", record.fingerprint.clone()));
    facts.push(("created", when(record.created_at)));
    facts.push(("changed", when(record.updated_at)));
    let times = [("lease until", record.lease_until), ("kept until", record.kept_until)];
    facts.extend(times.into_iter().filter_map(|(name, it)| Some((name, it?.to_string()))));
    facts.push(("outcome", outcome(record)));
    facts
}

fn outcome(record: &RecordView) -> String {
    let Some(outcome) = &record.outcome else { return "none is stored".to_owned() };
    let mut parts = Vec::new();
    parts.extend(outcome.status.map(|status| status.to_string()));
    parts.extend(outcome.content_type.clone());
    parts.extend(outcome.resource.clone());
    parts.push(format!("{} bytes", outcome.bytes));
    parts.push(format!("{}, {:?}", outcome.codec, outcome.content).to_lowercase());
    parts.join(", ")
}

/// A decision: when, what, who, and why.
pub(super) fn about(decision: &DecisionView, indent: &str) -> Fallible {
    let what = format!("{:?}", decision.decided);
    let by = plain(&decision.by);
    output::line(format!("{indent}{}  {}  by {by}", decision.at, words(&what)))?;
    output::line(wrapped(&decision.evidence, &format!("{indent}    ")))
}

/// `DidNotHappen` as people say it.
fn words(name: &str) -> String {
    let spaced: Vec<String> = name
        .chars()
        .map(
            |it| if it.is_uppercase() { format!(" {}", it.to_lowercase()) } else { it.to_string() },
        )
        .collect();
    spaced.concat().trim().to_owned()
}

/// A stored reply, as it would be sent.
pub(super) fn reply(reply: &Reply) -> Fallible {
    output::line(format!("\n{}", reply.status))?;
    for header in &reply.headers {
        output::line(plain(&format!("{}: {}", header.name, header.value)))?;
    }
    output::line("")?;
    body(&reply.body()?)
}

/// A body as it is; on a terminal only if it is text.
pub(super) fn body(body: &[u8]) -> Fallible {
    let obeyed = |it: char| it.is_control() && it != '\n' && it != '\t';
    let is_text = std::str::from_utf8(body).is_ok_and(|text| !text.contains(obeyed));
    if output::is_terminal() && !is_text {
        return output::line(format!("{} bytes that are no text: pipe them somewhere", body.len()));
    }
    output::bytes(body)?;
    if output::is_terminal() { output::line("") } else { Ok(()) }
}
