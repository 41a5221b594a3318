//! Records as bytes, in a layout of our own that no change of a derive can alter.
//!
//! ```text
//! version u8 | minimum reader u8 | flags u8 | state u8 | times and ids | texts | checksum u64
//! ```
//!
//! Numbers are little-endian, texts have their lengths, and the checksum covers the record's id
//! too, so a record that is stored under another id is noticed. A newer release may add fields
//! before the checksum and keep the minimum reader: this reader skips them.
//!
//! Format 2 adds the cause of an unknown outcome, and status and error code of an outcome. Readers
//! of format 1 skip them, and records without them are still written in format 1. Format 3 adds the
//! path of the request, in the same way.

use bytes::Bytes;
use onceward_core::{
    Content, ErrorCode, Fence, Fingerprint, Key, OperationId, Outcome, OwnerToken, Record,
    RecordId, RequestPath, Resource, Retained, Scope, Sketch, State, StateName, Tag, Timestamp,
    UnknownCause,
};
use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;

/// Format that this release writes, and the newest that it understands for certain.
pub(crate) const VERSION: u8 = 3;
/// Oldest format whose readers understand what this release writes.
const MINIMUM_READER: u8 = 1;

const CHECKSUM_BYTES: usize = 8;

const TAKEN_OVER: u8 = 1;
const HAS_KEY: u8 = 2;
const HAS_RESOURCE: u8 = 4;
const HAS_CAUSE: u8 = 8;
const HAS_STATUS: u8 = 16;
const HAS_ERROR_CODE: u8 = 32;
const HAS_PATH: u8 = 64;
/// Fields that readers of format 1 do not know.
const OF_FORMAT_2: u8 = HAS_CAUSE | HAS_STATUS | HAS_ERROR_CODE;

/// Number of an opening of the store. A running record of an earlier boot has lost its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Boot(pub(crate) u64);

/// The boot in which records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CurrentBoot {
    pub(crate) boot: Boot,
    /// Start of this boot: every lease of an earlier boot has lapsed by then.
    pub(crate) since: Timestamp,
}

/// A decoded record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) record: Record,
    /// The state that is stored.
    pub(crate) state: StateName,
    /// Encoded length.
    pub(crate) bytes: usize,
}

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Undecodable {
    #[error("the record's checksum does not fit")]
    Checksum,
    #[error("the record needs a reader of format {minimum}, this one reads {VERSION}")]
    Newer { minimum: u8 },
    #[error("the record's {0} cannot be read")]
    Field(&'static str),
}

/// Appends a record to `out`. `boot` is stored with a running record.
pub(crate) fn encode(record: &Record, boot: Boot, out: &mut Vec<u8>) {
    let start = out.len();
    let outcome = record.state.outcome();
    let resource = outcome.and_then(|outcome| outcome.resource.as_deref());
    let status = outcome.and_then(|outcome| outcome.status);
    let error_code = outcome.and_then(|outcome| outcome.error_code.as_ref());
    let cause = match &record.state {
        State::Unknown { cause: UnknownCause::Unrecorded } => None,
        State::Unknown { cause } => Some(cause),
        _ => None,
    };
    let flags = if record.taken_over { TAKEN_OVER } else { 0 }
        | if record.key.is_some() { HAS_KEY } else { 0 }
        | if resource.is_some() { HAS_RESOURCE } else { 0 }
        | if cause.is_some() { HAS_CAUSE } else { 0 }
        | if status.is_some() { HAS_STATUS } else { 0 }
        | if error_code.is_some() { HAS_ERROR_CODE } else { 0 }
        | if record.path.is_some() { HAS_PATH } else { 0 };
    let version = match flags {
        _ if flags & HAS_PATH != 0 => VERSION,
        _ if flags & OF_FORMAT_2 != 0 => 2,
        _ => 1,
    };
    out.extend([version, MINIMUM_READER, flags, record.state.name() as u8]);
    put_state(&record.state, boot, out);
    out.extend(record.operation.as_uuid().as_bytes());
    out.extend(record.owner.expose());
    out.extend(record.fence.0.to_le_bytes());
    out.extend(record.attempts.to_le_bytes());
    out.extend(record.created_at.as_millis().to_le_bytes());
    out.extend(record.updated_at.as_millis().to_le_bytes());
    out.push(record.fingerprint.rules());
    out.extend(record.fingerprint.digest());
    put_scope(&record.scope, out);
    if let Some(key) = &record.key {
        put_bytes(key.expose().as_bytes(), out);
    }
    put_bytes(record.sketch.as_bytes(), out);
    if let Some(outcome) = outcome {
        put_outcome(outcome, out);
    }
    if let Some(cause) = cause {
        put_bytes(cause.to_string().as_bytes(), out);
    }
    if let Some(status) = status {
        out.extend(status.to_le_bytes());
    }
    if let Some(code) = error_code {
        put_bytes(code.as_str().as_bytes(), out);
    }
    if let Some(path) = &record.path {
        put_bytes(path.as_str().as_bytes(), out);
    }
    let sum = checksum(&record.id, &out[start..]);
    out.extend(sum.to_le_bytes());
}

/// Decodes a record.
///
/// A record that was running in an earlier boot has lost its owner: its lease is read as lapsed
/// when this boot began. So it stands at unknown, and a policy of takeover still applies. Read as
/// [`State::Unknown`] it could never be taken over, and a restart is the only way in which owners
/// die here.
pub(crate) fn decode(
    id: &RecordId,
    bytes: &[u8],
    current: CurrentBoot,
) -> Result<Decoded, Undecodable> {
    let body = checked(id, bytes)?;
    let mut reader = Reader(body);
    let (version, minimum) = (reader.byte("version")?, reader.byte("minimum reader")?);
    if minimum > VERSION {
        return Err(Undecodable::Newer { minimum });
    }
    let (flags, name) = (reader.byte("flags")?, reader.byte("state")?);
    let name = *StateName::ALL.get(usize::from(name)).ok_or(Undecodable::Field("state"))?;
    let (state, stored) = reader.state(name, current)?;
    let mut record = Record {
        id: *id,
        operation: OperationId::from(Uuid::from_bytes(reader.array("operation")?)),
        owner: OwnerToken::from_bytes(reader.array("owner")?),
        fence: Fence(reader.u64("fence")?),
        attempts: reader.u32("attempts")?,
        created_at: reader.time("creation time")?,
        updated_at: reader.time("update time")?,
        fingerprint: reader.fingerprint()?,
        scope: reader.scope()?,
        key: if flags & HAS_KEY == 0 { None } else { Some(reader.key()?) },
        sketch: Sketch::from_stored(reader.bytes("sketch")?),
        path: None,
        state: match state {
            Pending::Whole(state) => state,
            Pending::Completed(retained) => {
                State::Completed { outcome: reader.outcome(flags)?, retained }
            }
            Pending::Failed(retained) => {
                State::Failed { outcome: reader.outcome(flags)?, retained }
            }
        },
        taken_over: flags & TAKEN_OVER != 0,
    };
    match &mut record.state {
        State::Unknown { cause } if flags & HAS_CAUSE != 0 => {
            *cause = UnknownCause::parse(reader.text("cause")?);
        }
        State::Completed { outcome, .. } | State::Failed { outcome, .. } => {
            if flags & HAS_STATUS != 0 {
                outcome.status = Some(u16::from_le_bytes(reader.array("status")?));
            }
            if flags & HAS_ERROR_CODE != 0 {
                outcome.error_code = Some(reader.error_code()?);
            }
        }
        _ => {}
    }
    if flags & HAS_PATH != 0 {
        record.path = Some(RequestPath::new(reader.text("path")?));
    }
    // A newer release may have added fields that this one does not know.
    if version <= VERSION && !reader.0.is_empty() {
        return Err(Undecodable::Field("end"));
    }
    Ok(Decoded { record, state: stored, bytes: bytes.len() })
}

/// The bytes of a record without their checksum, if that is correct.
fn checked<'a>(id: &RecordId, bytes: &'a [u8]) -> Result<&'a [u8], Undecodable> {
    let split = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(Undecodable::Checksum)?;
    let (body, sum) = bytes.split_at(split);
    if checksum(id, body).to_le_bytes() == *sum { Ok(body) } else { Err(Undecodable::Checksum) }
}

fn checksum(id: &RecordId, body: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(id.as_bytes());
    hash.update(body);
    hash.digest()
}

fn put_state(state: &State, boot: Boot, out: &mut Vec<u8>) {
    let (first, second) = match state {
        State::Running { lease_until } => (boot.0, lease_until.as_millis()),
        State::Unknown { .. } => return,
        State::Completed { retained, .. }
        | State::Failed { retained, .. }
        | State::Released { retained }
        | State::Expired { retained } => {
            (retained.until.as_millis(), retained.tombstone_until.as_millis())
        }
    };
    out.extend(first.to_le_bytes());
    out.extend(second.to_le_bytes());
}

fn put_scope(scope: &Scope, out: &mut Vec<u8>) {
    let optional = [scope.api_version(), scope.parent(), scope.region()];
    let parts = [scope.tenant(), scope.caller(), scope.operation()];
    for part in parts.into_iter().chain(optional.map(Option::unwrap_or_default)) {
        put_bytes(part.as_bytes(), out);
    }
}

fn put_outcome(outcome: &Outcome, out: &mut Vec<u8>) {
    out.push(match outcome.content {
        Content::Whole => 0,
        Content::Reference => 1,
        Content::Omitted => 2,
    });
    put_bytes(outcome.tag.as_str().as_bytes(), out);
    if let Some(Resource { kind, id }) = outcome.resource.as_deref() {
        put_bytes(kind.as_bytes(), out);
        put_bytes(id.as_bytes(), out);
    }
    put_bytes(&outcome.bytes, out);
}

/// Appends a length in seven-bit groups, lowest first, and the bytes.
fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let mut left = bytes.len();
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
    out.extend_from_slice(bytes);
}

/// A state whose outcome is decoded later.
enum Pending {
    Whole(State),
    Completed(Retained),
    Failed(Retained),
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], Undecodable> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Undecodable::Field(field))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Undecodable> {
        self.take(N, field)?.try_into().map_err(|_| Undecodable::Field(field))
    }

    fn byte(&mut self, field: &'static str) -> Result<u8, Undecodable> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    fn u32(&mut self, field: &'static str) -> Result<u32, Undecodable> {
        self.array(field).map(u32::from_le_bytes)
    }

    fn u64(&mut self, field: &'static str) -> Result<u64, Undecodable> {
        self.array(field).map(u64::from_le_bytes)
    }

    fn time(&mut self, field: &'static str) -> Result<Timestamp, Undecodable> {
        self.u64(field).map(Timestamp::from_millis)
    }

    fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], Undecodable> {
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            let group = self.byte(field)?;
            // Lengths have at most 32 bits.
            if shift > 28 {
                return Err(Undecodable::Field(field));
            }
            length |= usize::from(group & 0x7f) << shift;
            if group < 0x80 {
                return self.take(length, field);
            }
            shift += 7;
        }
    }

    fn text(&mut self, field: &'static str) -> Result<&'a str, Undecodable> {
        std::str::from_utf8(self.bytes(field)?).map_err(|_| Undecodable::Field(field))
    }

    /// Reads the state, and the state by which the record is counted.
    fn state(
        &mut self,
        name: StateName,
        current: CurrentBoot,
    ) -> Result<(Pending, StateName), Undecodable> {
        let state = match name {
            StateName::Unknown => State::Unknown { cause: UnknownCause::Unrecorded },
            StateName::Running => {
                let (boot, lease_until) = (Boot(self.u64("boot id")?), self.time("lease")?);
                if boot != current.boot {
                    let lapsed = State::Running { lease_until: lease_until.min(current.since) };
                    return Ok((Pending::Whole(lapsed), StateName::Unknown));
                }
                State::Running { lease_until }
            }
            StateName::Completed => return Ok((Pending::Completed(self.retained()?), name)),
            StateName::Failed => return Ok((Pending::Failed(self.retained()?), name)),
            StateName::Released => State::Released { retained: self.retained()? },
            StateName::Expired => State::Expired { retained: self.retained()? },
        };
        Ok((Pending::Whole(state), name))
    }

    fn retained(&mut self) -> Result<Retained, Undecodable> {
        let (until, tombstone_until) = (self.time("retention")?, self.time("tombstone")?);
        Ok(Retained { until, tombstone_until })
    }

    fn fingerprint(&mut self) -> Result<Fingerprint, Undecodable> {
        let rules = self.byte("fingerprint")?;
        Ok(Fingerprint::from_digest(rules, self.array("fingerprint")?))
    }

    fn scope(&mut self) -> Result<Scope, Undecodable> {
        const FIELD: &str = "scope";
        let [tenant, caller, operation] = [self.text(FIELD)?, self.text(FIELD)?, self.text(FIELD)?];
        let [version, parent, region] = [self.text(FIELD)?, self.text(FIELD)?, self.text(FIELD)?];
        let build = || {
            let mut scope = Scope::restored(tenant, caller, operation)?;
            if !version.is_empty() {
                scope = scope.with_api_version(version)?;
            }
            if !parent.is_empty() {
                scope = scope.with_parent(parent)?;
            }
            if !region.is_empty() {
                scope = scope.with_restored_region(region)?;
            }
            Ok::<_, onceward_core::InvalidScope>(scope)
        };
        build().map_err(|_| Undecodable::Field(FIELD))
    }

    fn key(&mut self) -> Result<Key, Undecodable> {
        Key::new(self.text("key")?).map_err(|_| Undecodable::Field("key"))
    }

    fn outcome(&mut self, flags: u8) -> Result<Outcome, Undecodable> {
        let content = match self.byte("content")? {
            0 => Content::Whole,
            1 => Content::Reference,
            2 => Content::Omitted,
            _ => return Err(Undecodable::Field("content")),
        };
        let tag = self.tag()?;
        let resource = if flags & HAS_RESOURCE == 0 {
            None
        } else {
            let [kind, id] = [self.text("resource")?, self.text("resource")?];
            Some(Box::new(Resource { kind: kind.into(), id: id.into() }))
        };
        // Copied: a slice would keep the tree's whole block in memory.
        let bytes = Bytes::copy_from_slice(self.bytes("outcome")?);
        Ok(Outcome { content, resource, ..Outcome::whole(tag, bytes) })
    }

    fn error_code(&mut self) -> Result<ErrorCode, Undecodable> {
        const FIELD: &str = "error code";
        ErrorCode::new(self.text(FIELD)?).ok_or(Undecodable::Field(FIELD))
    }

    fn tag(&mut self) -> Result<Tag, Undecodable> {
        let text = self.text("tag")?;
        Ok(if text == Tag::JSON.as_str() { Tag::JSON } else { Tag::from_stored(text.to_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: RecordId = RecordId::from_bytes([7; 32]);

    fn record(state: State) -> Record {
        Record {
            id: ID,
            operation: OperationId::from(Uuid::from_u128(5)),
            scope: Scope::new("acme", "alice", "pay").unwrap().with_region("eu").unwrap(),
            key: Some(Key::new("key-1").unwrap()),
            fingerprint: Fingerprint::of_parts(&[b"x"]),
            sketch: Sketch::from_stored(b"sketch"),
            path: None,
            state,
            owner: OwnerToken::from_bytes([9; 16]),
            fence: Fence(77),
            attempts: 3,
            taken_over: true,
            created_at: Timestamp::from_millis(10),
            updated_at: Timestamp::from_millis(20),
        }
    }

    fn current(boot: u64) -> CurrentBoot {
        CurrentBoot { boot: Boot(boot), since: Timestamp::from_millis(25) }
    }

    fn read(bytes: &[u8], boot: u64) -> Result<Record, Undecodable> {
        decode(&ID, bytes, current(boot)).map(|decoded| decoded.record)
    }

    fn encoded(state: State) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&record(state), Boot(4), &mut bytes);
        bytes
    }

    #[test]
    fn what_ran_in_an_earlier_life_has_lapsed_when_this_one_began() {
        let running = |until| State::Running { lease_until: Timestamp::from_millis(until) };
        let bytes = encoded(running(30));
        assert_eq!(read(&bytes, 4), Ok(record(running(30))));
        assert_eq!(read(&bytes, 5), Ok(record(running(25))));
        let decoded = decode(&ID, &bytes, current(5)).unwrap();
        assert_eq!(decoded.record.standing(current(5).since), Some(StateName::Unknown));
        assert_eq!((decoded.state, decoded.bytes), (StateName::Unknown, bytes.len()));
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed_and_so_is_another_id() {
        let bytes = encoded(unknown());
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[position] ^= 1 << bit;
                assert_eq!(read(&damaged, 4), Err(Undecodable::Checksum));
            }
            assert_eq!(read(&bytes[..position], 4), Err(Undecodable::Checksum));
        }
        let other = RecordId::from_bytes([8; 32]);
        assert_eq!(decode(&other, &bytes, current(4)), Err(Undecodable::Checksum));
    }

    fn unknown() -> State {
        State::Unknown { cause: UnknownCause::Unrecorded }
    }

    fn retained() -> Retained {
        let [until, tombstone_until] = [40, 50].map(Timestamp::from_millis);
        Retained { until, tombstone_until }
    }

    /// Records of every state, with every field present in some and absent in others.
    fn golden() -> Vec<(&'static str, Record)> {
        let retained = retained();
        let resource = Outcome::json(&7).unwrap().with_resource("payment", "pay_789 \u{1f4b6}");
        let large = Outcome::whole(Tag::from_static("raw/v1"), vec![0xab; 300]);
        let failed = Outcome::omitted(Tag::from_static("raw/v1"), "");
        let reference = Outcome::reference(Tag::from_static("ref/v1"), "pay_789");
        let bare = Record {
            key: None,
            sketch: Sketch::default(),
            scope: Scope::new("acme", "alice", "pay").unwrap(),
            taken_over: false,
            ..record(unknown())
        };
        let running = State::Running { lease_until: Timestamp::from_millis(30) };
        vec![
            ("running", record(running)),
            ("completed", record(State::Completed { outcome: resource, retained })),
            ("completed-large", record(State::Completed { outcome: large, retained })),
            ("completed-reference", record(State::Completed { outcome: reference, retained })),
            ("failed", record(State::Failed { outcome: failed, retained })),
            ("released", record(State::Released { retained })),
            ("unknown", record(unknown())),
            ("unknown-bare", bare),
            ("expired", record(State::Expired { retained })),
        ]
    }

    /// Records with the fields of format 2.
    fn golden_2() -> Vec<(&'static str, Record)> {
        let retained = retained();
        let outcome = |status| Outcome::json(&7).unwrap().with_status(status);
        let declined = outcome(402).with_error_code(ErrorCode::new("card_declined"));
        let made = outcome(201).with_resource("payment", "pay_789");
        let cause = |text| State::Unknown { cause: UnknownCause::parse(text) };
        vec![
            ("completed-status", record(State::Completed { outcome: made, retained })),
            ("failed-status-code", record(State::Failed { outcome: declined, retained })),
            ("unknown-status", record(cause("status 502"))),
            ("unknown-reported", record(cause("reported: no answer \u{1f4b6}"))),
            ("unknown-newer", record(cause("a cause of a newer release"))),
        ]
    }

    /// Records with the field of format 3, with and without those of format 2.
    fn golden_3() -> Vec<(&'static str, Record)> {
        let path = Some(RequestPath::new("/orders/42 \u{1f4b6}"));
        let with_path = |(name, record)| (name, Record { path: path.clone(), ..record });
        [golden().remove(0), golden_2().remove(0), golden_2().remove(2)].map(with_path).into()
    }

    #[test]
    fn records_are_written_and_read_as_the_golden_files_say() {
        are_as_the_golden_file(golden(), "records-v1");
        are_as_the_golden_file(golden_2(), "records-v2");
        are_as_the_golden_file(golden_3(), "records-v3");
    }

    #[test]
    fn readers_of_format_1_can_skip_what_format_2_adds() {
        for (name, record) in golden_2() {
            let mut bytes = Vec::new();
            encode(&record, Boot(4), &mut bytes);
            assert_eq!((bytes[0], bytes[1]), (2, 1), "{name}");
            let plain = Record {
                state: match record.state.clone() {
                    State::Completed { outcome, retained } => State::Completed {
                        outcome: Outcome { status: None, error_code: None, ..outcome },
                        retained,
                    },
                    State::Failed { outcome, retained } => State::Failed {
                        outcome: Outcome { status: None, error_code: None, ..outcome },
                        retained,
                    },
                    _ => unknown(),
                },
                ..record
            };
            let mut first = Vec::new();
            encode(&plain, Boot(4), &mut first);
            // All of it but version, flags and checksum.
            let common = first.len() - CHECKSUM_BYTES;
            assert_eq!(bytes[3..common], first[3..common], "{name}");
        }
    }

    #[test]
    fn readers_of_format_2_can_skip_the_path() {
        for (name, record) in golden_3() {
            let [with, without] = [record.clone(), Record { path: None, ..record }].map(|record| {
                let mut bytes = Vec::new();
                encode(&record, Boot(4), &mut bytes);
                bytes
            });
            assert_eq!((with[0], with[1]), (3, 1), "{name}");
            let common = without.len() - CHECKSUM_BYTES;
            assert_eq!(with[3..common], without[3..common], "{name}");
        }
    }

    /// This release writes exactly the golden file, and reads it back. A change here breaks every
    /// existing store: raise the version instead.
    fn are_as_the_golden_file(golden: Vec<(&'static str, Record)>, file: &str) {
        let hex = |bytes: &[u8]| bytes.iter().map(|it| format!("{it:02x}")).collect::<String>();
        let lines = golden.into_iter().map(|(name, record)| {
            let mut bytes = Vec::new();
            encode(&record, Boot(4), &mut bytes);
            assert_eq!(read(&bytes, 4), Ok(record), "{name}");
            format!("{name} {}\n", hex(&bytes))
        });
        let text: String = lines.collect();
        let path = format!("{}/tests/golden/{file}.txt", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("ONCEWARD_WRITE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    /// Bytes with a correct checksum, as a newer or a broken writer would leave them.
    fn resealed(mut bytes: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        bytes.truncate(bytes.len() - CHECKSUM_BYTES);
        change(&mut bytes);
        let sum = checksum(&ID, &bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    #[test]
    fn fields_of_a_newer_release_are_skipped_if_it_allows_that_and_refused_if_not() {
        let newer = resealed(encoded(unknown()), |bytes| {
            bytes[0] = VERSION + 1;
            bytes.extend(b"something new");
        });
        assert_eq!(read(&newer, 4), Ok(record(unknown())));
        let minimum = VERSION + 1;
        let refused = resealed(encoded(unknown()), |bytes| bytes[1] = minimum);
        assert_eq!(read(&refused, 4), Err(Undecodable::Newer { minimum }));
        let longer = resealed(encoded(unknown()), |bytes| bytes.push(0));
        assert_eq!(read(&longer, 4), Err(Undecodable::Field("end")));
    }

    #[test]
    fn no_bytes_at_all_make_the_reader_panic() {
        let outcome = Outcome::whole(Tag::JSON, vec![1; 300]).with_resource("payment", "7");
        let outcome = outcome.with_status(402).with_error_code(ErrorCode::new("declined"));
        let whole = encoded(State::Completed { outcome, retained: retained() });
        for position in 0..whole.len() - CHECKSUM_BYTES {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let odd = resealed(whole.clone(), |bytes| bytes[position] = value);
                let _ = read(&odd, 4);
                let cut = resealed(whole.clone(), |bytes| bytes.truncate(position));
                assert!(read(&cut, 4).is_err());
            }
        }
    }
}
