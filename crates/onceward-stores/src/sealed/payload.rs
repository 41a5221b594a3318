//! A whole outcome as bytes, before it is sealed.
//!
//! ```text
//! content u8 | tag | has resource u8 | [kind | id] | bytes to the end
//! ```
//!
//! Texts carry their lengths as u64, little-endian.

use bytes::Bytes;
use onceward_core::{Content, Outcome, Resource, Tag};

use super::error::SealProblem;

const DAMAGED: SealProblem = SealProblem::Malformed("content");

pub(super) fn encode(outcome: &Outcome) -> Vec<u8> {
    let mut out = Vec::with_capacity(outcome.bytes.len() + 64);
    out.push(match outcome.content {
        Content::Whole => 0,
        Content::Reference => 1,
        Content::Omitted => 2,
    });
    put_text(outcome.tag.as_str(), &mut out);
    out.push(u8::from(outcome.resource.is_some()));
    if let Some(resource) = &outcome.resource {
        put_text(&resource.kind, &mut out);
        put_text(&resource.id, &mut out);
    }
    out.extend_from_slice(&outcome.bytes);
    out
}

pub(super) fn decode(payload: Vec<u8>) -> Result<Outcome, SealProblem> {
    let payload = Bytes::from(payload);
    let mut reader = Reader(&payload);
    let content = match reader.byte()? {
        0 => Content::Whole,
        1 => Content::Reference,
        2 => Content::Omitted,
        _ => return Err(DAMAGED),
    };
    let tag = Tag::from_stored(reader.text()?);
    let resource = match reader.byte()? {
        0 => None,
        1 => Some(Box::new(Resource { kind: reader.text()?, id: reader.text()? })),
        _ => return Err(DAMAGED),
    };
    let bytes = payload.slice_ref(reader.0);
    Ok(Outcome { content, resource, ..Outcome::whole(tag, bytes) })
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, SealProblem> {
        let (byte, rest) = self.0.split_first().ok_or(DAMAGED)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn text(&mut self) -> Result<String, SealProblem> {
        let (length, rest) = self.0.split_first_chunk().ok_or(DAMAGED)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| DAMAGED)?;
        let (text, rest) = rest.split_at_checked(length).ok_or(DAMAGED)?;
        self.0 = rest;
        String::from_utf8(text.into()).map_err(|_| DAMAGED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_back_as_they_were_and_torn_ones_do_not() {
        let tag = Tag::from_static("text/v1");
        let plain = [
            Outcome::whole(tag.clone(), "body").with_resource("payment", "pay_1"),
            Outcome::reference(tag.clone(), "pay_1"),
            Outcome::omitted(tag, ""),
        ];
        for outcome in plain {
            let payload = encode(&outcome);
            assert_eq!(decode(payload.clone()).unwrap(), outcome);
            let head = payload.len() - outcome.bytes.len();
            for end in 0..head {
                assert_eq!(decode(payload[..end].to_vec()), Err(DAMAGED), "{end}");
            }
        }
    }
}
