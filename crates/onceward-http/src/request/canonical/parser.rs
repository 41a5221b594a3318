//! Reading a JSON text, strictly by RFC 8259, for whoever listens.

use thiserror::Error;

use super::document::Span;
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

/// Who is told what a text consists of, in its order.
///
/// A container is opened, then each child is announced and told, then it is closed. Whoever
/// listens may stop the reading.
pub(super) trait Listener {
    /// What is remembered of a container that is open.
    type Open;

    fn word(&mut self, word: Word) -> Result<(), Stop>;
    fn number(&mut self, number: &Number<'_>) -> Result<(), Stop>;
    fn string(&mut self, text: Text<'_>) -> Result<(), Stop>;

    /// A container that stands in so many others, itself counted.
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
    /// Before and behind its children, in JSON and in the canonical form alike.
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
    /// As it stands there in the text.
    Plain(Span),
    /// It had escapes.
    Unescaped(&'a str),
}

/// Why the reading ends early: [`Unclean`] without its place, which the parser knows, or that
/// whoever listens has no room for such a document. In one byte, as every step may end so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Syntax,
    LoneSurrogate,
    DuplicateMember,
    TooDeep,
    TooMuch,
}

/// The text, if it may be JSON at all.
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

/// Tells a listener of a [`checked`] text; `None` if the listener had no room for it.
pub(super) fn read(text: &str, listener: &mut impl Listener) -> Option<Result<(), Unclean>> {
    let unescaped = String::new();
    let mut parser = Parser { text, depth: 0, wrong_at: 0, unescaped, listener };
    match parser.document() {
        Ok(()) => Some(Ok(())),
        Err(Stop::Syntax) => Some(Err(Unclean::Syntax { at: parser.wrong_at })),
        Err(Stop::LoneSurrogate) => Some(Err(Unclean::LoneSurrogate)),
        Err(Stop::DuplicateMember) => Some(Err(Unclean::DuplicateMember)),
        Err(Stop::TooDeep) => Some(Err(Unclean::TooDeep)),
        Err(Stop::TooMuch) => None,
    }
}

/// Reads by functions that take the place where something begins and return the place behind
/// it, so that it stays in a register: nearly every step depends on the one before.
struct Parser<'t, 'l, L> {
    text: &'t str,
    depth: usize,
    /// Where the text is not JSON any more.
    wrong_at: usize,
    /// The last string that had escapes.
    unescaped: String,
    listener: &'l mut L,
}

impl<L: Listener> Parser<'_, '_, L> {
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
        let open = self.listener.open(container, self.depth)?;
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
        self.listener.close(open, children)?;
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
                self.listener.item(open, index)?;
                at
            }
            Container::Object => {
                if self.peek(at) != Some(b'"') {
                    return Err(self.syntax(at));
                }
                let end = self.string(at, |listener, name| listener.member(open, name))?;
                let behind = self.expect(self.blanks(end), b':')?;
                self.blanks(behind)
            }
        };
        let end = self.value(at)?;
        Ok(self.blanks(end))
    }

    /// Reads a string, up to behind its second quote, and tells it.
    #[inline]
    fn string(
        &mut self,
        at: usize,
        tell: impl FnOnce(&mut L, Text<'_>) -> Result<(), Stop>,
    ) -> Result<usize, Stop> {
        let end = special(self.text.as_bytes(), at + 1);
        match self.peek(end) {
            Some(b'"') => {
                tell(self.listener, Text::Plain(Span::new(at + 1..end)))?;
                Ok(end + 1)
            }
            Some(b'\\') => {
                let end = self.unescape(at + 1, end)?;
                tell(self.listener, Text::Unescaped(&self.unescaped))?;
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
        self.listener.number(&number)?;
        Ok(end)
    }

    fn word(&mut self, at: usize, text: &[u8], word: Word) -> Result<usize, Stop> {
        if !self.text.as_bytes()[at..].starts_with(text) {
            return Err(self.syntax(at));
        }
        self.listener.word(word)?;
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
    /// Its bytes, where this is the text that was read.
    #[inline]
    pub(super) fn bytes(self, text: &'a str) -> &'a [u8] {
        match self {
            Self::Plain(span) => &text.as_bytes()[span.range()],
            Self::Unescaped(text) => text.as_bytes(),
        }
    }

    /// Its first eight bytes, so that numbers compare as texts do. Shorter texts are filled up
    /// with zeros, so equal prefixes decide nothing.
    #[inline]
    pub(super) fn prefix(self, text: &'a str) -> u64 {
        // What stands behind a short text is read with it, and taken away again.
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
