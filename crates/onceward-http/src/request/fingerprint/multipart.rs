//! Parts of `multipart/form-data` bodies in memory (RFC 7578, RFC 2046).
//!
//! A fingerprint covers the parts, because a client that sends a form again chooses another boundary.
//! The fields of [`MultipartPart`] must therefore describe a part completely. A body that contains
//! anything else, or that servers may read differently, is [`Malformed`] and can only be compared byte
//! by byte: one with a preamble, a bare line feed, a folded, unknown or repeated header, or a repeated
//! parameter.

use memchr::memmem::{self, Finder};
use thiserror::Error;

/// One field of a form, borrowed from the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultipartPart<'b> {
    /// The name as written between the quotes. Escapes are not decoded, because servers disagree on
    /// them.
    pub name: &'b [u8],
    /// The file name as written between the quotes.
    pub filename: Option<&'b [u8]>,
    /// The parameter `filename*`, which .NET sends beside the other.
    pub filename_extended: Option<&'b [u8]>,
    /// The value of `Content-Type`.
    pub content_type: Option<&'b [u8]>,
    /// The content.
    pub bytes: &'b [u8],
}

/// Why a body has no unambiguous parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// RFC 2046 allows 1 to 70 characters of a limited set, the last not a blank.
    #[error("the boundary is not allowed")]
    Boundary,
    /// The body does not begin with the boundary, or does not end with its closing form.
    #[error("the body is not enclosed in boundaries")]
    Enclosure,
    /// A line begins with the boundary and continues.
    #[error("a line begins with the boundary and does not end with it")]
    Delimiter,
    /// The headers have no final empty line, or one is malformed, unknown or repeated.
    #[error("a part has headers that are not understood")]
    Header,
    /// A part without `Content-Disposition: form-data` and a name, or with unknown parameters.
    #[error("a part names no field of the form")]
    Disposition,
    /// A part does not have its declared length.
    #[error("a part has a wrong length")]
    Length,
}

/// Splits a body at its boundary. An empty form has no parts.
///
/// Takes time linear in the body, and memory for its parts only.
pub fn parts<'b>(body: &'b [u8], boundary: &str) -> Result<Vec<MultipartPart<'b>>, Malformed> {
    check(boundary)?;
    let delimiter = format!("\r\n--{boundary}");
    let finder = Finder::new(&delimiter);
    // The first delimiter has no line before it.
    let mut rest = body.strip_prefix(&delimiter.as_bytes()[2..]).ok_or(Malformed::Enclosure)?;
    let mut parts = Vec::new();
    while let After::Part(begin) = after(rest)? {
        let end = finder.find(begin).ok_or(Malformed::Enclosure)?;
        parts.push(part(&begin[..end])?);
        rest = &begin[end + delimiter.len()..];
    }
    Ok(parts)
}

fn check(boundary: &str) -> Result<(), Malformed> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    let fine = (1..=70).contains(&boundary.len())
        && boundary.bytes().all(allowed)
        && !boundary.ends_with(' ');
    if fine { Ok(()) } else { Err(Malformed::Boundary) }
}

/// Result of reading the line of a boundary.
enum After<'b> {
    /// The next part and everything after it.
    Part(&'b [u8]),
    /// The end of the body.
    End,
}

fn after(rest: &[u8]) -> Result<After<'_>, Malformed> {
    if let Some(epilogue) = rest.strip_prefix(b"--") {
        let at_end = matches!(skip_blanks(epilogue), b"" | b"\r\n");
        return if at_end { Ok(After::End) } else { Err(Malformed::Enclosure) };
    }
    skip_blanks(rest).strip_prefix(b"\r\n").map(After::Part).ok_or(Malformed::Delimiter)
}

fn part(part: &[u8]) -> Result<MultipartPart<'_>, Malformed> {
    let end = memmem::find(part, b"\r\n\r\n").ok_or(Malformed::Header)?;
    let headers = Headers::read(&part[..end])?;
    let bytes = &part[end + 4..];
    headers.check(bytes)?;
    let disposition = Disposition::read(headers.disposition.ok_or(Malformed::Disposition)?)?;
    Ok(MultipartPart {
        name: disposition.name.ok_or(Malformed::Disposition)?,
        filename: disposition.filename,
        filename_extended: disposition.filename_extended,
        content_type: headers.content_type,
        bytes,
    })
}

/// The headers that a part of a form may have.
#[derive(Default)]
struct Headers<'b> {
    disposition: Option<&'b [u8]>,
    content_type: Option<&'b [u8]>,
    /// Sent by some clients; redundant.
    content_length: Option<&'b [u8]>,
    transfer_encoding: Option<&'b [u8]>,
}

impl<'b> Headers<'b> {
    fn read(block: &'b [u8]) -> Result<Self, Malformed> {
        let mut headers = Self::default();
        let mut rest = Some(block);
        while let Some(lines) = rest {
            let (line, next) = match memmem::find(lines, b"\r\n") {
                Some(end) => (&lines[..end], Some(&lines[end + 2..])),
                None => (lines, None),
            };
            headers.take(line)?;
            rest = next;
        }
        Ok(headers)
    }

    fn take(&mut self, line: &'b [u8]) -> Result<(), Malformed> {
        let control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
        let colon = memchr::memchr(b':', line).ok_or(Malformed::Header)?;
        let slot = match &line[..colon].to_ascii_lowercase()[..] {
            b"content-disposition" => &mut self.disposition,
            b"content-type" => &mut self.content_type,
            b"content-length" => &mut self.content_length,
            b"content-transfer-encoding" => &mut self.transfer_encoding,
            _ => return Err(Malformed::Header),
        };
        if line.iter().any(control) {
            return Err(Malformed::Header);
        }
        fill(slot, trim(&line[colon + 1..]), Malformed::Header)
    }

    /// Checks that the headers which are not returned are redundant.
    fn check(&self, bytes: &[u8]) -> Result<(), Malformed> {
        let length = bytes.len().to_string();
        if self.content_length.is_some_and(|value| value != length.as_bytes()) {
            return Err(Malformed::Length);
        }
        let plain: [&[u8]; 3] = [b"binary", b"8bit", b"7bit"];
        let is_plain = |value: &[u8]| plain.iter().any(|plain| value.eq_ignore_ascii_case(plain));
        match self.transfer_encoding {
            Some(value) if !is_plain(value) => Err(Malformed::Header),
            _ => Ok(()),
        }
    }
}

/// The parameters of `Content-Disposition: form-data`.
#[derive(Default)]
struct Disposition<'b> {
    name: Option<&'b [u8]>,
    filename: Option<&'b [u8]>,
    filename_extended: Option<&'b [u8]>,
}

impl<'b> Disposition<'b> {
    fn read(value: &'b [u8]) -> Result<Self, Malformed> {
        let (kind, mut rest) = token(value);
        if !kind.eq_ignore_ascii_case(b"form-data") {
            return Err(Malformed::Disposition);
        }
        let mut disposition = Self::default();
        while let Some(parameter) = skip_blanks(rest).strip_prefix(b";") {
            let (name, after) = token(skip_blanks(parameter));
            let value = after.strip_prefix(b"=").ok_or(Malformed::Disposition)?;
            let (value, after) = parameter_value(value)?;
            fill(disposition.slot(name)?, value, Malformed::Disposition)?;
            rest = after;
        }
        if skip_blanks(rest).is_empty() { Ok(disposition) } else { Err(Malformed::Disposition) }
    }

    fn slot(&mut self, name: &[u8]) -> Result<&mut Option<&'b [u8]>, Malformed> {
        match &name.to_ascii_lowercase()[..] {
            b"name" => Ok(&mut self.name),
            b"filename" => Ok(&mut self.filename),
            b"filename*" => Ok(&mut self.filename_extended),
            _ => Err(Malformed::Disposition),
        }
    }
}

/// Sets a slot, which must be empty.
fn fill<'b>(
    slot: &mut Option<&'b [u8]>,
    value: &'b [u8],
    twice: Malformed,
) -> Result<(), Malformed> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(twice),
    }
}

/// Splits off the value of a parameter, a token or a quoted string without its quotes. A token has no
/// backslash, so the two cannot be confused.
fn parameter_value(text: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let (value, rest) = token(text);
        return if value.is_empty() { Err(Malformed::Disposition) } else { Ok((value, rest)) };
    };
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'"', b'\\', quoted.get(at..).unwrap_or_default()) {
        at += found;
        if quoted[at] == b'"' {
            return Ok((&quoted[..at], &quoted[at + 1..]));
        }
        // Skips the escaped byte.
        at += 2;
    }
    Err(Malformed::Disposition)
}

fn token(text: &[u8]) -> (&[u8], &[u8]) {
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let end = text.iter().position(|byte| !inside(byte)).unwrap_or(text.len());
    text.split_at(end)
}

fn skip_blanks(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &text[blanks..]
}

fn trim(text: &[u8]) -> &[u8] {
    let text = skip_blanks(text);
    let blanks = text.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &text[..text.len() - blanks]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(body: &str) -> Result<Vec<MultipartPart<'_>>, Malformed> {
        parts(body.as_bytes(), "b")
    }

    fn one(headers: &str) -> Result<(), Malformed> {
        text(&format!("--b\r\n{headers}\r\n\r\nx\r\n--b--\r\n")).map(|parts| {
            assert_eq!(parts.len(), 1);
            assert_eq!(parts[0].bytes, b"x");
        })
    }

    #[test]
    fn fields_and_files_are_distinguished() {
        let body = "--b\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n100\r\n\
            --b\r\ncontent-disposition:form-data;name=\"file\" ; filename=\"a\\\"b.txt\"\r\n\
            Content-Type:  text/plain; charset=utf-8 \r\n\r\nline\r\n\r\n--c\r\n--b--\r\n";
        let amount = MultipartPart {
            name: b"amount",
            filename: None,
            filename_extended: None,
            content_type: None,
            bytes: b"100",
        };
        let file = MultipartPart {
            name: b"file",
            filename: Some(b"a\\\"b.txt"),
            content_type: Some(b"text/plain; charset=utf-8"),
            bytes: b"line\r\n\r\n--c",
            ..amount
        };
        assert_eq!(text(body), Ok(vec![amount, file]));
    }

    #[test]
    fn another_boundary_gives_the_same_parts() {
        let body = |boundary: &str| {
            format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=a\r\n\r\n1\0\r\n\
                --{boundary} \t\r\nContent-Disposition: form-data; name=b\r\n\r\n\r\n--{boundary}--"
            )
        };
        let (first, other) = (body("x-1"), body("----WebKitFormBoundary7MA4YWxk"));
        let first = parts(first.as_bytes(), "x-1").unwrap();
        assert_eq!(first, parts(other.as_bytes(), "----WebKitFormBoundary7MA4YWxk").unwrap());
        assert_eq!((first[0].bytes, first[1].bytes), (&b"1\0"[..], &b""[..]));
    }

    #[test]
    fn an_empty_form_has_no_parts() {
        assert_eq!(text("--b--\r\n"), Ok(vec![]));
        assert_eq!(text("--b--"), Ok(vec![]));
    }

    #[test]
    fn redundant_headers_of_clients_are_accepted() {
        let disposition = "Content-Disposition: form-data; name=a";
        // OkHttp and Apache HttpClient; then .NET.
        one(&format!("{disposition}\r\nContent-Length: 1")).unwrap();
        one(&format!("{disposition}\r\nContent-Transfer-Encoding: Binary")).unwrap();
        one(&format!("{disposition}; filename=f; filename*=utf-8''f%20g")).unwrap();
    }

    #[test]
    fn a_body_that_is_not_enclosed_is_malformed() {
        let part = "Content-Disposition: form-data; name=a\r\n\r\n1\r\n";
        for body in [
            String::new(),
            "x".to_owned(),
            format!("preamble\r\n--b\r\n{part}--b--"),
            format!("\r\n--b\r\n{part}--b--"),
            format!("--b\r\n{part}--c--"),
            format!("--b\r\n{part}"),
            format!("--b\r\n{part}--b--epilogue"),
            format!("--b\r\n{part}--b--\r\nepilogue"),
            format!("--b\r\n{part}--b--\r\n\r\n"),
        ] {
            assert_eq!(text(&body), Err(Malformed::Enclosure), "{body:?}");
        }
    }

    #[test]
    fn a_boundary_followed_by_something_is_malformed() {
        let part = "Content-Disposition: form-data; name=a\r\n\r\n1\r\n";
        for body in [
            format!("--b\r\n{part}--bx\r\n{part}--b--"),
            format!("--b\n{part}--b--"),
            "--b-".into(),
        ] {
            assert_eq!(text(&body), Err(Malformed::Delimiter), "{body:?}");
        }
    }

    #[test]
    fn unknown_repeated_or_folded_headers_are_malformed() {
        let fine = "Content-Disposition: form-data; name=a";
        for headers in [
            "",
            "no colon",
            &format!("{fine}\r\nX-Custom: 1"),
            &format!("{fine}\r\n{fine}"),
            &format!("{fine}\r\nContent-Type: a/b\r\n c/d"),
            &format!("{fine}\nContent-Type: a/b"),
            &format!("{fine}\r\nContent-Type : a/b"),
            &format!("{fine}\r\nContent-Transfer-Encoding: base64"),
        ] {
            assert_eq!(one(headers), Err(Malformed::Header), "{headers:?}");
        }
        assert_eq!(one(&format!("{fine}\r\nContent-Length: 2")), Err(Malformed::Length));
    }

    #[test]
    fn a_part_must_have_one_name() {
        for disposition in [
            "form-data",
            "attachment; name=a",
            "form-data; name=",
            "form-data; name=\"a",
            "form-data; name=\"a\\\"",
            "form-data; name=a; name=b",
            "form-data; name=a; size=1",
            "form-data; name=a b",
            "form-data; name = a",
            "form-data; name=a;",
        ] {
            let header = format!("Content-Disposition: {disposition}");
            assert_eq!(one(&header), Err(Malformed::Disposition), "{disposition:?}");
        }
        assert_eq!(one("Content-Type: text/plain"), Err(Malformed::Disposition));
    }

    #[test]
    fn a_boundary_must_be_valid() {
        for boundary in ["", "a ", "ä", "a\r\nb", "a;b", &"x".repeat(71)] {
            assert_eq!(parts(b"--", boundary), Err(Malformed::Boundary), "{boundary:?}");
        }
        parts(b"--a b'()+_,-./:=?--", "a b'()+_,-./:=?").unwrap();
    }
}
