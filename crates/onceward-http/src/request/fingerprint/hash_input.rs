//! The bytes that a fingerprint is the SHA-256 of.

use onceward_core::Part;
use xxhash_rust::xxh3::xxh3_64;

use super::{form, multipart};
use crate::request::canonical::{Selection, canonicalize};

/// The bytes that are hashed, each field with its length, and the hashes of the request's parts.
pub(super) struct HashInput {
    pub(super) bytes: Vec<u8>,
    explain: bool,
    pub(super) parts: Vec<Part>,
}

/// Number of parts outside the body, without the credentials.
pub(super) const HEAD_PARTS: usize = 5;

/// Parts outside the body are named by their positions; a body that is one part, by the next number,
/// and credentials by the one after. Names inside a body are hashes.
const WHOLE_BODY: u64 = HEAD_PARTS as u64;
const CREDENTIALS_PART: u64 = WHOLE_BODY + 1;

/// Capacity that suffices for most requests.
const PARTS: usize = 20;

/// Prefix of a hashed body. Bodies of two kinds never give the same bytes.
#[derive(Clone, Copy)]
enum Domain {
    Raw = 0,
    Json = 1,
    Multipart = 2,
    Form = 3,
}

impl HashInput {
    pub(super) fn new(explain: bool) -> Self {
        let parts = Vec::with_capacity(if explain { PARTS } else { 0 });
        Self { bytes: Vec::new(), explain, parts }
    }

    pub(super) fn field(&mut self, field: &[u8]) {
        self.bytes.extend_from_slice(&(field.len() as u64).to_be_bytes());
        self.bytes.extend_from_slice(field);
    }

    /// Appends a field that is a part of its own.
    pub(super) fn named(&mut self, name: u64, field: &[u8]) {
        let begin = self.bytes.len();
        self.field(field);
        self.part(name, begin);
    }

    /// Makes the bytes since `begin` a part.
    fn part(&mut self, name: u64, begin: usize) {
        if self.explain {
            self.parts.push(Part { name, value: xxh3_64(&self.bytes[begin..]) });
        }
    }

    /// Appends the credentials. They are always a part, so that a refusal can name the reason.
    pub(super) fn credentials(&mut self, credentials: &[u8]) {
        self.field(credentials);
        self.parts.push(Part { name: CREDENTIALS_PART, value: xxh3_64(credentials) });
    }

    pub(super) fn raw(&mut self, body: &[u8]) {
        self.bytes.push(Domain::Raw as u8);
        self.named(WHOLE_BODY, body);
    }

    /// Appends a JSON body. Returns false and appends nothing if it is not clean JSON.
    pub(super) fn json(&mut self, body: &[u8], selection: &Selection) -> bool {
        self.bytes.push(Domain::Json as u8);
        let parts = self.explain.then_some(&mut self.parts);
        let clean = canonicalize(body, selection, &mut self.bytes, parts).is_ok();
        if !clean {
            self.bytes.pop();
        }
        clean
    }

    /// Appends a multipart form. Returns false and appends nothing if it is malformed.
    pub(super) fn multipart(&mut self, body: &[u8], boundary: &str) -> bool {
        let Ok(parts) = multipart::parts(body, boundary) else { return false };
        self.bytes.push(Domain::Multipart as u8);
        self.bytes.extend_from_slice(&(parts.len() as u64).to_be_bytes());
        for part in parts {
            let begin = self.bytes.len();
            self.field(part.name);
            for optional in [part.filename, part.filename_extended, part.content_type] {
                self.bytes.push(u8::from(optional.is_some()));
                self.field(optional.unwrap_or_default());
            }
            self.field(part.bytes);
            self.part(xxh3_64(part.name), begin);
        }
        true
    }

    /// Appends a URL-encoded form. Returns false and appends nothing if it is malformed.
    pub(super) fn form(&mut self, body: &[u8]) -> bool {
        let Some(fields) = form::fields(body) else { return false };
        self.bytes.push(Domain::Form as u8);
        self.bytes.extend_from_slice(&(fields.len() as u64).to_be_bytes());
        for form::Field { name, value } in fields {
            let begin = self.bytes.len();
            self.field(&name);
            self.field(&value);
            self.part(xxh3_64(&name), begin);
        }
        true
    }
}
