//! Reading a JSON text, strictly by RFC 8259.

use smallvec::SmallVec;
use thiserror::Error;

use super::document::{Document, Node, NodeId, Shape, Span};
use super::number::Number;

/// How many containers may stand in one another. Real documents have fewer than ten; the
/// parser and the encoder go down recursively, and so many levels fit on any stack.
pub const DEPTH_MAX: usize = 128;

/// A quarter of what 32 bits can number: neither the nodes nor the made strings of a text
/// can outgrow it fourfold.
const TEXT_BYTES_MAX: usize = (u32::MAX / 4) as usize;

/// Why a text has no canonical form: it is no JSON, or parsers disagree on what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unclean {
    /// Some parsers skip it, others refuse the text.
    #[error("it begins with a byte order mark")]
    ByteOrderMark,
    /// JSON is UTF-8.
    #[error("it is not UTF-8")]
    InvalidUtf8,
    /// Not the grammar of RFC 8259, text after the value included.
    #[error("it is not JSON from byte {at} on")]
    Syntax {
        /// Where in the text.
        at: usize,
    },
    /// Half of a surrogate pair as an escape: parsers replace, keep or refuse it.
    #[error("it has a lone surrogate")]
    LoneSurrogate,
    /// Two members of one object have the same name: parsers take the first, the last or both.
    #[error("an object has two members of the same name")]
    DuplicateMember,
    /// More than [`DEPTH_MAX`] containers in one another.
    #[error("it is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// More than a gigabyte.
    #[error("it is too long")]
    TooLong,
}

impl<'t> Document<'t> {
    pub(super) fn parse(text: &'t [u8]) -> Result<Self, Unclean> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Unclean::TooLong);
        }
        let text = str::from_utf8(text).map_err(|_| Unclean::InvalidUtf8)?;
        if text.starts_with('\u{feff}') {
            return Err(Unclean::ByteOrderMark);
        }
        Parser::new(text).document()
    }
}

struct Parser<'t> {
    bytes: &'t [u8],
    at: usize,
    document: Document<'t>,
    /// The members of the objects that are open, the innermost object's last.
    open: SmallVec<[Member; 16]>,
    depth: usize,
}

/// A member's name, with its first bytes at hand: they decide most comparisons.
#[derive(Clone, Copy)]
struct Member {
    prefix: u64,
    name: NodeId,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Self {
        let nodes = Vec::with_capacity(text.len() / 8 + 4);
        let made = String::with_capacity(text.len() / 8);
        let document =
            Document { text, made, nodes, members: SmallVec::new(), shape: Shape::default() };
        Self { bytes: text.as_bytes(), at: 0, document, open: SmallVec::new(), depth: 0 }
    }

    fn document(mut self) -> Result<Document<'t>, Unclean> {
        self.blanks();
        self.value()?;
        self.blanks();
        match self.peek() {
            None => Ok(self.document),
            Some(_) => Err(self.syntax()),
        }
    }

    fn value(&mut self) -> Result<(), Unclean> {
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            _ => self.scalar(),
        }
    }

    fn scalar(&mut self) -> Result<(), Unclean> {
        self.document.shape.leaves += 1;
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true", Node::True),
            Some(b'f') => self.word(b"false", Node::False),
            Some(b'n') => self.word(b"null", Node::Null),
            _ => Err(self.syntax()),
        }
    }

    fn nested(
        &mut self,
        container: impl FnOnce(&mut Self) -> Result<(), Unclean>,
    ) -> Result<(), Unclean> {
        if self.depth == DEPTH_MAX {
            return Err(Unclean::TooDeep);
        }
        self.depth += 1;
        self.at += 1;
        self.document.shape.depth = self.document.shape.depth.max(self.depth);
        container(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self) -> Result<(), Unclean> {
        let id = self.push(Node::Null);
        let mut items = 0;
        self.blanks();
        if self.take(b']') {
            self.document.shape.leaves += 1;
        } else {
            loop {
                self.blanks();
                self.value()?;
                self.blanks();
                items += 1;
                if !self.take(b',') {
                    break;
                }
            }
            self.expect(b']')?;
        }
        self.document.shape.items = self.document.shape.items.max(items);
        self.document.nodes[id] = Node::Array { end: self.next_id() };
        Ok(())
    }

    fn object(&mut self) -> Result<(), Unclean> {
        let id = self.push(Node::Null);
        let first = self.open.len();
        self.blanks();
        if self.take(b'}') {
            self.document.shape.leaves += 1;
        } else {
            loop {
                self.member()?;
                if !self.take(b',') {
                    break;
                }
            }
            self.expect(b'}')?;
        }
        let members = self.close(first)?;
        self.document.nodes[id] = Node::Object { end: self.next_id(), members };
        Ok(())
    }

    fn member(&mut self) -> Result<(), Unclean> {
        self.blanks();
        if self.peek() != Some(b'"') {
            return Err(self.syntax());
        }
        let name = self.next_id();
        self.string()?;
        let prefix = prefix(self.document.string(name));
        self.open.push(Member { prefix, name });
        self.blanks();
        self.expect(b':')?;
        self.blanks();
        self.value()?;
        self.blanks();
        Ok(())
    }

    /// Sorts the members of the object that closes, and moves them to the document.
    fn close(&mut self, first: usize) -> Result<Span, Unclean> {
        let Self { document, open, .. } = self;
        let members = &mut open[first..];
        let less = |a: &Member, b: &Member| document.order(a, b).is_lt();
        if !members.is_sorted_by(less) {
            members.sort_unstable_by(|a, b| document.order(a, b));
            // Strictly, which only members of the same name can still prevent.
            if !members.is_sorted_by(less) {
                return Err(Unclean::DuplicateMember);
            }
        }
        let start = document.members.len();
        document.members.extend(open.drain(first..).map(|member| member.name));
        Ok(Span::new(start..document.members.len()))
    }

    fn string(&mut self) -> Result<(), Unclean> {
        let start = self.at + 1;
        self.at = special(self.bytes, start);
        if self.peek() == Some(b'\\') {
            return self.unescape(start);
        }
        let end = self.at;
        self.expect(b'"')?;
        self.push(Node::Borrowed(Span::new(start..end)));
        Ok(())
    }

    /// A string that has an escape, from the first one on.
    fn unescape(&mut self, start: usize) -> Result<(), Unclean> {
        let made = self.document.made.len();
        let mut plain = start;
        loop {
            self.document.made.push_str(&self.document.text[plain..self.at]);
            match self.peek() {
                Some(b'\\') => {
                    let decoded = self.escape()?;
                    self.document.made.push(decoded);
                }
                Some(b'"') => break,
                _ => return Err(self.syntax()),
            }
            plain = self.at;
            self.at = special(self.bytes, plain);
        }
        self.at += 1;
        self.push(Node::Unescaped(Span::new(made..self.document.made.len())));
        Ok(())
    }

    fn escape(&mut self) -> Result<char, Unclean> {
        let decoded = match self.bytes.get(self.at + 1) {
            Some(b'u') => return self.escaped_char(),
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.syntax()),
        };
        self.at += 2;
        Ok(decoded)
    }

    /// `\uXXXX`, or two of them that are a surrogate pair.
    fn escaped_char(&mut self) -> Result<char, Unclean> {
        let unit = self.escaped_unit()?;
        if let Some(decoded) = char::from_u32(unit) {
            return Ok(decoded);
        }
        let is_high = unit < 0xdc00;
        if !is_high || !self.bytes[self.at..].starts_with(b"\\u") {
            return Err(Unclean::LoneSurrogate);
        }
        match self.escaped_unit()? {
            low @ 0xdc00..0xe000 => {
                let decoded = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                char::from_u32(decoded).ok_or(Unclean::LoneSurrogate)
            }
            _ => Err(Unclean::LoneSurrogate),
        }
    }

    fn escaped_unit(&mut self) -> Result<u32, Unclean> {
        let digits = self.bytes.get(self.at + 2..self.at + 6).ok_or_else(|| self.syntax())?;
        let mut unit = 0;
        for digit in digits {
            let digit = char::from(*digit).to_digit(16).ok_or_else(|| self.syntax())?;
            unit = unit << 4 | digit;
        }
        self.at += 6;
        Ok(unit)
    }

    fn number(&mut self) -> Result<(), Unclean> {
        let Some((number, end)) = Number::read(self.document.text, self.at) else {
            return Err(self.syntax());
        };
        self.at = end;
        let start = self.document.made.len();
        number.write(&mut self.document.made);
        self.push(Node::Number(Span::new(start..self.document.made.len())));
        Ok(())
    }

    fn word(&mut self, word: &[u8], node: Node) -> Result<(), Unclean> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(self.syntax());
        }
        self.at += word.len();
        self.push(node);
        Ok(())
    }

    fn push(&mut self, node: Node) -> usize {
        self.document.nodes.push(node);
        self.document.nodes.len() - 1
    }

    fn next_id(&self) -> NodeId {
        self.document.nodes.len() as NodeId
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), Unclean> {
        if self.take(byte) { Ok(()) } else { Err(self.syntax()) }
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn syntax(&self) -> Unclean {
        Unclean::Syntax { at: self.at }
    }
}

impl Document<'_> {
    /// By the bytes of the names.
    fn order(&self, a: &Member, b: &Member) -> std::cmp::Ordering {
        let rest = || self.string(a.name).cmp(self.string(b.name));
        a.prefix.cmp(&b.prefix).then_with(rest)
    }
}

/// The first eight bytes, so that numbers compare as the names do. Shorter names are filled
/// up with zeros, so equal prefixes decide nothing.
fn prefix(name: &[u8]) -> u64 {
    if let Some(whole) = name.first_chunk() {
        return u64::from_be_bytes(*whole);
    }
    let mut first = [0; 8];
    first[..name.len()].copy_from_slice(name);
    u64::from_be_bytes(first)
}

/// Where the next byte is that ends a run of plain characters in a string: a quote, a
/// backslash or a control character; or the end. Eight bytes at a time.
fn special(bytes: &[u8], from: usize) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGHS: u64 = ONES << 7;
    // The lowest high bit that is set marks the first such byte; ones above it may be wrong.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let mut at = from;
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let word = u64::from_le_bytes(*chunk);
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        let quote = zeros(word ^ (ONES * u64::from(b'"')));
        let backslash = zeros(word ^ (ONES * u64::from(b'\\')));
        let found = control | quote | backslash;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(is_special).unwrap_or(rest.len())
}
