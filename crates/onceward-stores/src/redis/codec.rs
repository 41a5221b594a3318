//! Records as hashes that `redis-cli` can show: one field for each property, times in milliseconds.

use bytes::Bytes;
use onceward_core::{
    ClaimRequest, Content, ErrorCode, Fence, Fingerprint, InvalidScope, Key, OperationId, Outcome,
    OwnerToken, Record, RecordId, RequestPath, Resource, Retained, Scope, Sketch, State, Tag,
    Timestamp, UnknownCause,
};
use redis::{Cmd, Value};

/// The newest format that this release reads, and the format that `claim.lua` writes.
const FORMAT: u8 = 1;

/// The field because of which a hash is not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Undecodable(pub(super) &'static str);

/// Adds the fields that a new record takes from its request.
pub(super) fn put_fields(request: &ClaimRequest, command: &mut Cmd) {
    let ClaimRequest { scope, key, sketch, path, .. } = request;
    put_request(scope, key.as_ref(), sketch, path.as_ref(), command);
}

fn put_request(
    scope: &Scope,
    key: Option<&Key>,
    sketch: &Sketch,
    path: Option<&RequestPath>,
    command: &mut Cmd,
) {
    let fields = [
        ("tenant", Some(scope.tenant())),
        ("caller", Some(scope.caller())),
        ("operation_name", Some(scope.operation())),
        ("api_version", scope.api_version()),
        ("parent", scope.parent()),
        ("region", scope.region()),
        ("key", key.map(Key::expose)),
        ("path", path.map(RequestPath::as_str)),
    ];
    for (field, value) in fields {
        if let Some(value) = value {
            command.arg(field).arg(value);
        }
    }
    if !sketch.as_bytes().is_empty() {
        command.arg("sketch").arg(sketch.as_bytes());
    }
}

/// Adds a record as arguments of `import.lua`: the values to compare, then all of its fields.
pub(super) fn put_record(record: &Record, command: &mut Cmd) {
    let retained = record.state.retained();
    let lease_until = match record.state {
        State::Running { lease_until } => Some(lease_until),
        _ => None,
    };
    let due = retained.map(|it| match record.state {
        State::Expired { .. } => it.tombstone_until,
        _ => it.until,
    });
    let state = state_name(&record.state);
    let [tombstone_until, keep_until] =
        [retained.map(|it| it.tombstone_until), retained.map(|it| it.until)];
    command.arg(record.fence.0).arg(state).arg(millis(record.updated_at));
    for time in [lease_until, due, tombstone_until] {
        command.arg(time.map_or(String::new(), |time| millis(time).to_string()));
    }
    command.arg("format").arg("1/1").arg("state").arg(state).arg("fence").arg(record.fence.0);
    command.arg("owner").arg(hex(record.owner.expose()));
    command.arg("fingerprint").arg(hex(record.fingerprint.digest()));
    command.arg("rules").arg(record.fingerprint.rules());
    command.arg("operation").arg(record.operation.to_string());
    command.arg("attempts").arg(record.attempts);
    command.arg("created_at").arg(millis(record.created_at));
    command.arg("updated_at").arg(millis(record.updated_at));
    let times = [
        ("lease_until", lease_until),
        ("keep_until", keep_until),
        ("tombstone_until", tombstone_until),
    ];
    for (field, time) in times {
        if let Some(time) = time {
            command.arg(field).arg(millis(time));
        }
    }
    if record.taken_over {
        command.arg("taken_over").arg("1");
    }
    let Record { scope, key, sketch, path, .. } = record;
    put_request(scope, key.as_ref(), sketch, path.as_ref(), command);
    match &record.state {
        State::Completed { outcome, .. } | State::Failed { outcome, .. } => {
            put_outcome_fields(outcome, command);
        }
        State::Unknown { cause } => {
            command.arg("unknown_cause").arg(cause.to_string());
        }
        State::Running { .. } | State::Released { .. } | State::Expired { .. } => {}
    }
}

/// The time in milliseconds, limited to what scripts can represent; see `SPAN` in `common.lua`.
fn millis(time: Timestamp) -> u64 {
    time.as_millis().min((1 << 44) - 1)
}

fn put_outcome_fields(outcome: &Outcome, command: &mut Cmd) {
    command.arg("content").arg(content_name(outcome.content));
    command.arg("tag").arg(outcome.tag.as_str()).arg("outcome").arg(&outcome.bytes[..]);
    if let Some(resource) = &outcome.resource {
        command.arg("resource_kind").arg(&resource.kind).arg("resource_id").arg(&resource.id);
    }
    if let Some(status) = outcome.status {
        command.arg("status").arg(status);
    }
    if let Some(code) = &outcome.error_code {
        command.arg("error_code").arg(code.as_str());
    }
}

fn state_name(state: &State) -> &'static str {
    match state {
        State::Running { .. } => "running",
        State::Completed { .. } => "completed",
        State::Failed { .. } => "failed",
        State::Released { .. } => "released",
        State::Unknown { .. } => "unknown",
        State::Expired { .. } => "expired",
    }
}

fn content_name(content: Content) -> &'static str {
    match content {
        Content::Whole => "whole",
        Content::Reference => "reference",
        Content::Omitted => "omitted",
    }
}

/// Adds an outcome as arguments of `decide.lua`.
pub(super) fn put_outcome(outcome: &Outcome, command: &mut Cmd) {
    let content = content_name(outcome.content);
    command.arg(content).arg(outcome.tag.as_str()).arg(&outcome.bytes[..]);
    // Empty if there is none.
    command.arg(outcome.status.map_or(String::new(), |status| status.to_string()));
    command.arg(outcome.error_code.as_ref().map_or("", ErrorCode::as_str));
    if let Some(resource) = &outcome.resource {
        command.arg(&resource.kind).arg(&resource.id);
    }
}

/// The fields of an outcome, in the order of `claim.lua` and `decide.lua`.
pub(super) const OUTCOME_FIELDS: [&str; 7] =
    ["content", "tag", "outcome", "status", "error_code", "resource_kind", "resource_id"];

/// Decodes an outcome from its fields.
pub(super) fn take_outcome(
    parts: [Option<Bytes>; OUTCOME_FIELDS.len()],
) -> Result<Outcome, Undecodable> {
    let [content, tag, bytes, status, error_code, kind, id] = parts;
    let content = match content.as_deref() {
        Some(b"whole") => Content::Whole,
        Some(b"reference") => Content::Reference,
        Some(b"omitted") => Content::Omitted,
        _ => return Err(Undecodable("content")),
    };
    let resource = match (kind, id) {
        (Some(kind), Some(id)) => {
            let (kind, id) = (text(&kind, "resource_kind")?, text(&id, "resource_id")?);
            Some(Box::new(Resource { kind: kind.to_owned(), id: id.to_owned() }))
        }
        (None, None) => None,
        _ => return Err(Undecodable("resource_id")),
    };
    let tag = text(&tag.ok_or(Undecodable("tag"))?, "tag")?.to_owned();
    let bytes = bytes.ok_or(Undecodable("outcome"))?;
    let status =
        status.map(|status| text(&status, "status")?.parse().map_err(|_| Undecodable("status")));
    let error_code = error_code
        .map(|code| ErrorCode::new(text(&code, "error_code")?).ok_or(Undecodable("error_code")));
    Ok(Outcome {
        content,
        tag: Tag::from_stored(tag),
        bytes,
        resource,
        status: status.transpose()?,
        error_code: error_code.transpose()?,
    })
}

/// Decodes a record from all fields of its hash; `None` if there are none.
pub(super) fn decode(id: &RecordId, value: Value) -> Result<Option<Record>, Undecodable> {
    let pairs: Vec<(Bytes, Bytes)> =
        redis::from_redis_value(value).map_err(|_| Undecodable("hash"))?;
    if pairs.is_empty() {
        return Ok(None);
    }
    let fields = Fields(pairs);
    fields.check_format()?;
    Ok(Some(Record {
        id: *id,
        operation: fields.text("operation")?.parse().map_err(|_| Undecodable("operation"))?,
        scope: fields.scope().map_err(|_| Undecodable("tenant"))?,
        key: fields.key()?,
        fingerprint: Fingerprint::from_digest(fields.number("rules")?, fields.hex("fingerprint")?),
        sketch: Sketch::from_stored(&fields.get("sketch").unwrap_or_default()),
        path: fields.optional("path")?.map(|path| RequestPath::new(&path)),
        state: fields.state()?,
        owner: OwnerToken::from_bytes(fields.hex("owner")?),
        fence: Fence(fields.number("fence")?),
        attempts: fields.number("attempts")?,
        taken_over: fields.get("taken_over").is_some_and(|it| it == "1"),
        created_at: fields.time("created_at")?,
        updated_at: fields.time("updated_at")?,
    }))
}

struct Fields(Vec<(Bytes, Bytes)>);

impl Fields {
    fn get(&self, field: &'static str) -> Option<Bytes> {
        self.0.iter().find(|(name, _)| name == field).map(|(_, value)| value.clone())
    }

    fn text(&self, field: &'static str) -> Result<String, Undecodable> {
        let value = self.get(field).ok_or(Undecodable(field))?;
        text(&value, field).map(str::to_owned)
    }

    fn optional(&self, field: &'static str) -> Result<Option<String>, Undecodable> {
        self.get(field).map(|value| text(&value, field).map(str::to_owned)).transpose()
    }

    fn number<N: std::str::FromStr>(&self, field: &'static str) -> Result<N, Undecodable> {
        self.text(field)?.parse().map_err(|_| Undecodable(field))
    }

    fn time(&self, field: &'static str) -> Result<Timestamp, Undecodable> {
        self.number(field).map(Timestamp::from_millis)
    }

    fn hex<const N: usize>(&self, field: &'static str) -> Result<[u8; N], Undecodable> {
        unhex(self.text(field)?.as_bytes()).ok_or(Undecodable(field))
    }

    /// `version/oldest reader`: a newer release may add fields that this one can ignore.
    fn check_format(&self) -> Result<(), Undecodable> {
        let format = self.text("format")?;
        let (_, reader) = format.split_once('/').ok_or(Undecodable("format"))?;
        match reader.parse::<u8>() {
            Ok(reader) if reader <= FORMAT => Ok(()),
            Ok(_) => Err(Undecodable("format (it needs a newer release)")),
            Err(_) => Err(Undecodable("format")),
        }
    }

    fn scope(&self) -> Result<Scope, Undecodable> {
        let optional =
            [self.optional("api_version")?, self.optional("parent")?, self.optional("region")?];
        let (tenant, caller) = (self.text("tenant")?, self.text("caller")?);
        let build = || {
            let mut scope = Scope::restored(&tenant, &caller, &self.operation_name())?;
            let [version, parent, region] = &optional;
            if let Some(version) = version {
                scope = scope.with_api_version(version)?;
            }
            if let Some(parent) = parent {
                scope = scope.with_parent(parent)?;
            }
            if let Some(region) = region {
                scope = scope.with_restored_region(region)?;
            }
            Ok::<_, InvalidScope>(scope)
        };
        build().map_err(|_| Undecodable("tenant"))
    }

    /// Empty if it is missing, which no scope accepts.
    fn operation_name(&self) -> String {
        self.text("operation_name").unwrap_or_default()
    }

    fn key(&self) -> Result<Option<Key>, Undecodable> {
        let key = self.optional("key")?;
        key.map(|key| Key::new(key).map_err(|_| Undecodable("key"))).transpose()
    }

    fn state(&self) -> Result<State, Undecodable> {
        Ok(match self.text("state")?.as_str() {
            "running" => State::Running { lease_until: self.time("lease_until")? },
            "unknown" => State::Unknown { cause: self.unknown_cause()? },
            "completed" => {
                State::Completed { outcome: self.outcome()?, retained: self.retained()? }
            }
            "failed" => State::Failed { outcome: self.outcome()?, retained: self.retained()? },
            "released" => State::Released { retained: self.retained()? },
            "expired" => State::Expired { retained: self.retained()? },
            _ => return Err(Undecodable("state")),
        })
    }

    /// An earlier release writes none.
    fn unknown_cause(&self) -> Result<UnknownCause, Undecodable> {
        let cause = self.optional("unknown_cause")?;
        Ok(cause.map_or(UnknownCause::Unrecorded, |cause| UnknownCause::parse(&cause)))
    }

    fn retained(&self) -> Result<Retained, Undecodable> {
        let (until, tombstone_until) = (self.time("keep_until")?, self.time("tombstone_until")?);
        Ok(Retained { until, tombstone_until })
    }

    fn outcome(&self) -> Result<Outcome, Undecodable> {
        take_outcome(OUTCOME_FIELDS.map(|field| self.get(field)))
    }
}

fn text<'a>(value: &'a [u8], field: &'static str) -> Result<&'a str, Undecodable> {
    std::str::from_utf8(value).map_err(|_| Undecodable(field))
}

pub(super) fn operation(text: &[u8]) -> Result<OperationId, Undecodable> {
    let text = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    text.ok_or(Undecodable("operation"))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

pub(super) fn unhex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |it: u8| char::from(it).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_come_back_as_bytes() {
        let bytes: [u8; 4] = [0, 0x1f, 0xa0, 0xff];
        assert_eq!(hex(&bytes), "001fa0ff");
        assert_eq!(unhex(b"001fa0ff"), Some(bytes));
        assert_eq!(unhex::<4>(b"001fa0f"), None);
        assert_eq!(unhex::<1>(b"0g"), None);
    }
}
