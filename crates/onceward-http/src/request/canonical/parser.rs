//! A strict JSON parser (RFC 8259) that calls a [`Visitor`].

use thiserror::Error;

use super::document::Span;
use super::number::Number;

/// Deepest nesting of containers. Real documents have fewer than ten levels; parser and encoder are
/// recursive, and this many levels fit on any stack.
pub const DEPTH_MAX: usize = 128;

/// Longest text: a quarter of 2³², because the nodes and the unescaped strings of a text are at most
/// four times as large.
const TEXT_BYTES_MAX: usize = (u32::MAX / 4) as usize;

/// Why a text has no canonical form: it is not JSON, or parsers disagree on its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unclean {
    /// Some parsers skip a byte order mark, others refuse the text.
    #[error("it begins with a byte order mark")]
    ByteOrderMark,
    /// JSON is UTF-8.
    #[error("it is not UTF-8")]
    InvalidUtf8,
    /// Not the grammar of RFC 8259, text after the value included.
    #[error("it is not JSON from byte {at} on")]
    Syntax {
        /// Position in the text.
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

/// Receives the elements of a text in their order.
///
/// A container is opened, each child is announced and visited, and the container is closed. A visitor
/// can stop the parser.
pub(super) trait Visitor {
    /// State of an open container.
    type Open;

    fn word(&mut self, word: Word) -> Result<(), Stop>;
    fn number(&mut self, number: &Number<'_>) -> Result<(), Stop>;
    fn string(&mut self, text: Text<'_>) -> Result<(), Stop>;

    /// A container begins; `depth` counts it too.
    fn open(&mut self, container: Container, depth: usize) -> Result<Self::Open, Stop>;
    /// The next child is the member of this name.
    fn member(&mut self, open: &Self::Open, name: Text<'_>) -> Result<(), Stop>;
    /// The next child is the item of this index.
    fn item(&mut self, open: &Self::Open, index: usize) -> Result<(), Stop>;
    fn close(&mut self, open: Self::Open, children: usize) -> Result<(), Stop>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Null,
    False,
    True,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    Array,
    Object,
}

impl Word {
    /// Its canonical form.
    pub(super) fn form(self) -> u8 {
        match self {
            Self::Null => b'z',
            Self::False => b'f',
            Self::True => b't',
        }
    }
}

impl Container {
    /// The brackets, in JSON and in the canonical form.
    pub(super) fn brackets(self) -> (u8, u8) {
        match self {
            Self::Array => (b'[', b']'),
            Self::Object => (b'{', b'}'),
        }
    }
}

/// A string without its quotes.
#[derive(Clone, Copy)]
pub(super) enum Text<'a> {
    /// A part of the text.
    Plain(Span),
    /// A string with escapes.
    Unescaped(&'a str),
}

/// Why the parser stops: [`Unclean`] without its position, which the parser has, or a document that is
/// too large for the visitor. One byte, because every step returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Syntax,
    LoneSurrogate,
    DuplicateMember,
    TooDeep,
    TooMuch,
}

/// Checks length, encoding and byte order mark of a text.
pub(super) fn checked(text: &[u8]) -> Result<&str, Unclean> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Unclean::TooLong);
    }
    let text = str::from_utf8(text).map_err(|_| Unclean::InvalidUtf8)?;
    if text.starts_with('\u{feff}') {
        return Err(Unclean::ByteOrderMark);
    }
    Ok(text)
}

/// Visits a [`checked`] text; `None` if it is too large for the visitor.
pub(super) fn read(text: &str, visitor: &mut impl Visitor) -> Option<Result<(), Unclean>> {
    let unescaped = String::new();
    let mut parser = Parser { text, depth: 0, wrong_at: 0, unescaped, visitor };
    match parser.document() {
        Ok(()) => Some(Ok(())),
        Err(Stop::Syntax) => Some(Err(Unclean::Syntax { at: parser.wrong_at })),
        Err(Stop::LoneSurrogate) => Some(Err(Unclean::LoneSurrogate)),
        Err(Stop::DuplicateMember) => Some(Err(Unclean::DuplicateMember)),
        Err(Stop::TooDeep) => Some(Err(Unclean::TooDeep)),
        Err(Stop::TooMuch) => None,
    }
}

/// Its functions take the start of an element and return its end, so that the position stays in a
/// register: nearly every step depends on the previous one.
struct Parser<'t, 'l, L> {
    text: &'t str,
    depth: usize,
    /// Position of the syntax error.
    wrong_at: usize,
    /// The last string that had escapes.
    unescaped: String,
    visitor: &'l mut L,
}

impl<L: Visitor> Parser<'_, '_, L> {
    fn document(&mut self) -> Result<(), Stop> {
        let end = self.value(self.blanks(0))?;
        let end = self.blanks(end);
        if end == self.text.len() { Ok(()) } else { Err(self.syntax(end)) }
    }

    fn value(&mut self, at: usize) -> Result<usize, Stop> {
        match self.peek(at) {
            Some(b'"') => self.string(at, L::string),
            Some(b'{') => self.container(at, Container::Object),
            Some(b'[') => self.container(at, Container::Array),
            Some(b'-' | b'0'..=b'9') => self.number(at),
            Some(b't') => self.word(at, b"true", Word::True),
            Some(b'f') => self.word(at, b"false", Word::False),
            Some(b'n') => self.word(at, b"null", Word::Null),
            _ => Err(self.syntax(at)),
        }
    }

    fn container(&mut self, at: usize, container: Container) -> Result<usize, Stop> {
        if self.depth == DEPTH_MAX {
            return Err(Stop::TooDeep);
        }
        self.depth += 1;
        let open = self.visitor.open(container, self.depth)?;
        let (_, bracket) = container.brackets();
        let mut children = 0;
        let mut at = self.blanks(at + 1);
        if self.peek(at) != Some(bracket) {
            loop {
                at = self.child(at, &open, container, children)?;
                children += 1;
                if self.peek(at) != Some(b',') {
                    break;
                }
                at = self.blanks(at + 1);
            }
        }
        let end = self.expect(at, bracket)?;
        self.depth -= 1;
        self.visitor.close(open, children)?;
        Ok(end)
    }

    fn child(
        &mut self,
        at: usize,
        open: &L::Open,
        of: Container,
        index: usize,
    ) -> Result<usize, Stop> {
        let at = match of {
            Container::Array => {
                self.visitor.item(open, index)?;
                at
            }
            Container::Object => {
                if self.peek(at) != Some(b'"') {
                    return Err(self.syntax(at));
                }
                let end = self.string(at, |visitor, name| visitor.member(open, name))?;
                let behind = self.expect(self.blanks(end), b':')?;
                self.blanks(behind)
            }
        };
        let end = self.value(at)?;
        Ok(self.blanks(end))
    }

    /// Reads a string including its quotes, and visits it.
    #[inline]
    fn string(
        &mut self,
        at: usize,
        visit: impl FnOnce(&mut L, Text<'_>) -> Result<(), Stop>,
    ) -> Result<usize, Stop> {
        let end = special(self.text.as_bytes(), at + 1);
        match self.peek(end) {
            Some(b'"') => {
                visit(self.visitor, Text::Plain(Span::new(at + 1..end)))?;
                Ok(end + 1)
            }
            Some(b'\\') => {
                let end = self.unescape(at + 1, end)?;
                visit(self.visitor, Text::Unescaped(&self.unescaped))?;
                Ok(end)
            }
            _ => Err(self.syntax(end)),
        }
    }

    /// A string that has an escape, the first one at `escape`.
    #[cold]
    fn unescape(&mut self, start: usize, escape: usize) -> Result<usize, Stop> {
        self.unescaped.clear();
        let (mut plain, mut at) = (start, escape);
        loop {
            self.unescaped.push_str(&self.text[plain..at]);
            match self.peek(at) {
                Some(b'\\') => {
                    let (decoded, end) = self.escape(at)?;
                    self.unescaped.push(decoded);
                    plain = end;
                }
                Some(b'"') => return Ok(at + 1),
                _ => return Err(self.syntax(at)),
            }
            at = special(self.text.as_bytes(), plain);
        }
    }

    fn escape(&mut self, at: usize) -> Result<(char, usize), Stop> {
        let decoded = match self.peek(at + 1) {
            Some(b'u') => return self.escaped_char(at),
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.syntax(at)),
        };
        Ok((decoded, at + 2))
    }

    /// `\uXXXX`, or two of them that are a surrogate pair.
    fn escaped_char(&mut self, at: usize) -> Result<(char, usize), Stop> {
        let (unit, end) = self.escaped_unit(at)?;
        if let Some(decoded) = char::from_u32(unit) {
            return Ok((decoded, end));
        }
        let is_high = unit < 0xdc00;
        if !is_high || !self.text[end..].starts_with("\\u") {
            return Err(Stop::LoneSurrogate);
        }
        let (low, end) = self.escaped_unit(end)?;
        match low {
            0xdc00..0xe000 => {
                let decoded = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                Ok((char::from_u32(decoded).ok_or(Stop::LoneSurrogate)?, end))
            }
            _ => Err(Stop::LoneSurrogate),
        }
    }

    fn escaped_unit(&mut self, at: usize) -> Result<(u32, usize), Stop> {
        let digits = self.text.as_bytes().get(at + 2..at + 6);
        let unit = digits.and_then(|digits| {
            digits
                .iter()
                .try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
        });
        match unit {
            Some(unit) => Ok((unit, at + 6)),
            None => Err(self.syntax(at)),
        }
    }

    fn number(&mut self, at: usize) -> Result<usize, Stop> {
        let Some((number, end)) = Number::read(self.text, at) else {
            return Err(self.syntax(at));
        };
        self.visitor.number(&number)?;
        Ok(end)
    }

    fn word(&mut self, at: usize, text: &[u8], word: Word) -> Result<usize, Stop> {
        if !self.text.as_bytes()[at..].starts_with(text) {
            return Err(self.syntax(at));
        }
        self.visitor.word(word)?;
        Ok(at + text.len())
    }

    #[inline]
    fn peek(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    #[inline]
    fn expect(&mut self, at: usize, byte: u8) -> Result<usize, Stop> {
        if self.peek(at) == Some(byte) { Ok(at + 1) } else { Err(self.syntax(at)) }
    }

    #[inline]
    fn blanks(&self, mut at: usize) -> usize {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek(at) {
            at += 1;
        }
        at
    }

    #[cold]
    fn syntax(&mut self, at: usize) -> Stop {
        self.wrong_at = at;
        Stop::Syntax
    }
}

impl<'a> Text<'a> {
    /// Returns its bytes; `text` is the parsed text.
    #[inline]
    pub(super) fn bytes(self, text: &'a str) -> &'a [u8] {
        match self {
            Self::Plain(span) => &text.as_bytes()[span.range()],
            Self::Unescaped(text) => text.as_bytes(),
        }
    }

    /// Returns its first eight bytes as a number that compares like the text. Shorter texts are padded
    /// with zeros, so equal prefixes decide nothing.
    #[inline]
    pub(super) fn prefix(self, text: &'a str) -> u64 {
        // Bytes behind a short text are read with it, and removed again.
        if let Self::Plain(span) = self
            && let Some(first) = text.as_bytes()[span.range().start..].first_chunk()
        {
            let beyond = u64::MAX.checked_shr(8 * (span.end - span.start)).unwrap_or(0);
            return u64::from_be_bytes(*first) & !beyond;
        }
        let (mut first, bytes) = ([0; 8], self.bytes(text));
        let length = bytes.len().min(8);
        first[..length].copy_from_slice(&bytes[..length]);
        u64::from_be_bytes(first)
    }
}

/// Returns the position of the next byte that ends a run of plain characters in a string: a quote, a
/// backslash, a control character, or the end. Reads eight bytes at a time.
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
