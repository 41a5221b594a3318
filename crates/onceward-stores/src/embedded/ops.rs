//! Changes of the tree that a batch makes, as the payload of its frame.
//!
//! ```text
//! tally | (kind u8 | key length u8 | value length u32 | key | value)…
//! ```

use std::ops::Range;

use super::tally::Tally;

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpKind {
    Put = 1,
    Remove = 2,
}

/// One change of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Op<'a> {
    pub(super) kind: OpKind,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// Appends a value under a key. Returns the positions of both.
pub(super) fn put(
    payload: &mut Vec<u8>,
    key: &[u8],
    value: impl FnOnce(&mut Vec<u8>),
) -> (Range<usize>, Range<usize>) {
    let key = head(payload, OpKind::Put, key);
    value(payload);
    let value = key.end..payload.len();
    payload[key.start - 4..key.start].copy_from_slice(&(value.len() as u32).to_le_bytes());
    (key, value)
}

/// Appends a removal. Returns the position of the key.
pub(super) fn remove(payload: &mut Vec<u8>, key: &[u8]) -> Range<usize> {
    head(payload, OpKind::Remove, key)
}

fn head(payload: &mut Vec<u8>, kind: OpKind, key: &[u8]) -> Range<usize> {
    payload.extend([kind as u8, key.len() as u8, 0, 0, 0, 0]);
    let start = payload.len();
    payload.extend_from_slice(key);
    start..payload.len()
}

/// Decodes a payload whose checksum is correct. What it cannot read is a newer format.
pub(super) fn parse(payload: &[u8]) -> Option<(Tally, Vec<Op<'_>>)> {
    let (tally, mut rest) = payload.split_at_checked(Tally::BYTES)?;
    let mut ops = Vec::new();
    while let Some((head, after)) = rest.split_at_checked(6) {
        let kind = match head[0] {
            1 => OpKind::Put,
            2 => OpKind::Remove,
            _ => return None,
        };
        let length = u32::from_le_bytes(head[2..6].try_into().ok()?) as usize;
        let (key, after) = after.split_at_checked(usize::from(head[1]))?;
        let (value, after) = after.split_at_checked(length)?;
        ops.push(Op { kind, key, value });
        rest = after;
    }
    rest.is_empty().then_some(())?;
    Some((Tally::decode(tally)?, ops))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_comes_back_and_a_cut_one_does_not() {
        let mut payload = Tally::default().encode().to_vec();
        put(&mut payload, b"key", |out| out.extend(b"value"));
        remove(&mut payload, b"gone");
        let (tally, ops) = parse(&payload).unwrap();
        assert_eq!(tally, Tally::default());
        assert_eq!(
            ops,
            [
                Op { kind: OpKind::Put, key: b"key", value: b"value" },
                Op { kind: OpKind::Remove, key: b"gone", value: b"" },
            ]
        );
        assert_eq!(parse(&payload[..payload.len() - 1]), None);
        assert_eq!(parse(&payload[..Tally::BYTES - 1]), None);
    }
}
