//! The media type of a request body.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// The media type of a request.
pub(super) struct MediaType<'a> {
    text: &'a [u8],
    /// Lower case, without parameters: the boundary and the character set do not count.
    pub(super) essence: Cow<'a, [u8]>,
}

/// The kinds of bodies that are compared by meaning.
pub(super) enum BodyKind {
    Json,
    Multipart(String),
    Form,
    Other,
}

impl<'a> MediaType<'a> {
    pub(super) fn of(headers: &'a HeaderMap) -> Self {
        let text = headers.get(CONTENT_TYPE).map_or(b"".as_slice(), |value| value.as_bytes());
        if text == b"application/json" {
            return Self { text, essence: Cow::Borrowed(text) }; // nearly every request
        }
        let end = text.iter().position(|byte| *byte == b';').unwrap_or(text.len());
        let bare = text[..end].trim_ascii();
        let lower = !bare.iter().any(u8::is_ascii_uppercase);
        let essence =
            if lower { Cow::Borrowed(bare) } else { Cow::Owned(bare.to_ascii_lowercase()) };
        Self { text, essence }
    }

    pub(super) fn kind(&self) -> BodyKind {
        if *self.essence == *b"application/json" || self.essence.ends_with(b"+json") {
            return BodyKind::Json;
        }
        if *self.essence == *b"application/x-www-form-urlencoded" {
            return BodyKind::Form;
        }
        match self.boundary() {
            Some(boundary) if *self.essence == *b"multipart/form-data" => {
                BodyKind::Multipart(boundary)
            }
            _ => BodyKind::Other,
        }
    }

    fn boundary(&self) -> Option<String> {
        let text = std::str::from_utf8(self.text).ok()?;
        text.split(';').skip(1).find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            let boundary = name.trim().eq_ignore_ascii_case("boundary");
            boundary.then(|| value.trim().trim_matches('"').to_owned())
        })
    }
}
