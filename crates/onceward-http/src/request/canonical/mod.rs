//! A canonical form of JSON: two documents have equal forms exactly if they have the same meaning.
//!
//! Member order, blanks and escapes do not count. Numbers are compared by their exact decimal value
//! and never become floating point: `100`, `1e2` and `100.0` are equal (so are `0` and `-0`), and
//! 9007199254740993 differs from 9007199254740992. Everything else counts: the order of items, the
//! type of a value, `null` or absent, every code point (no Unicode normalisation). This is **not**
//! RFC 8785, whose number rule would make two amounts equal.
//!
//! The form of a small text is written while the text is read ([`parser`], [`number`], [`direct`]).
//! Any other text is read into a flat list of nodes ([`document`], [`builder`]), and a walk over the
//! nodes writes the form ([`encoder`]). Either way the members of each object are sorted when it
//! closes, and a byte is copied a few times at most, whatever its depth. The time is linear in the
//! text, except for the sorting (`n log n`). Errors never contain a value, and of the parts only
//! hashes and pointers are returned ([`parts`]).
//!
//! # The form
//!
//! It is not JSON and not meant to be read. It is prefix-free, so that it can be hashed together with
//! other fields.
//!
//! | value | bytes |
//! |---|---|
//! | `null`, `false`, `true` | `z`, `f`, `t` |
//! | zero | `0` |
//! | number | `+` or `-`, its digits without zeros at either end, `e` and the power of ten that makes it exact if that is not 0, `;` |
//! | string | `s`, the length (LEB128), UTF-8 |
//! | array | `[`, items, `]` |
//! | object | `{`, for each member its name as a string and its value, by the bytes of the names, `}` |
//! | an item that a selection excludes, or a pointer that it does not find | `_` |
//!
//! The power of ten is written in decimal whatever its size, so `1e999999999999999999999` is exact and
//! costs no more than its text.

mod builder;
mod direct;
mod document;
mod encoder;
mod number;
mod parser;
mod parts;
mod selection;
#[cfg(test)]
mod tests;

use onceward_core::Part;

use document::Document;
use encoder::Encoder;
pub use parser::{DEPTH_MAX, Unclean};
pub use parts::PARTS_MAX;
use parts::{Hashes, Names, Plan};
pub use selection::{InvalidPointer, Selection};

/// Appends the canonical form of a JSON text to `out`, and its parts to `parts`, for finding the parts
/// in which another text differs.
///
/// An [`Unclean`] text has no canonical form, and nothing is appended.
///
/// There are at most [`PARTS_MAX`] parts. Containers near the root are split first, until that number
/// is reached. Deeper values than four levels, arrays of more than eight items, and the rest that does
/// not fit stay one part with the pointer of its container. The order of the parts depends only on
/// names, and a part's hashes only on its pointer and its canonical form, not on the text and not on
/// this release. The hashes have no key, so a short value can be guessed from its hash: do not store
/// them as they are.
pub fn canonicalize(
    text: &[u8],
    selection: &Selection,
    out: &mut Vec<u8>,
    mut parts: Option<&mut Vec<Part>>,
) -> Result<(), Unclean> {
    if selection.is_everything()
        && let Some(written) = directly(text, out, parts.as_deref_mut())
    {
        return written;
    }
    by_document(text, selection, out, parts)
}

/// Returns true if a text is JSON that all parsers read alike: without repeated members and lone
/// surrogates, and not too deep.
pub(crate) fn is_clean(text: &[u8]) -> bool {
    Document::parse(text).is_ok()
}

/// [`canonicalize`] for a document of any size and any selection.
fn by_document(
    text: &[u8],
    selection: &Selection,
    out: &mut Vec<u8>,
    parts: Option<&mut Vec<Part>>,
) -> Result<(), Unclean> {
    let document = Document::parse(text)?;
    out.reserve(text.len() + text.len() / 8);
    let mut encoder = Encoder::new(&document, out);
    match parts {
        None => selection.targets(&document).for_each(|target| encoder.target(target)),
        Some(parts) => Plan::of(&document, selection).carry_out(encoder, Hashes::new(parts)),
    }
    Ok(())
}

/// [`canonicalize`] for a small document; `None`, and nothing is appended, for a larger one.
fn directly(
    text: &[u8],
    out: &mut Vec<u8>,
    mut parts: Option<&mut Vec<Part>>,
) -> Option<Result<(), Unclean>> {
    let begin = (out.len(), parts.as_ref().map_or(0, |parts| parts.len()));
    let written = match parser::checked(text) {
        Ok(text) => direct::write(text, out, parts.as_deref_mut()),
        Err(unclean) => Some(Err(unclean)),
    };
    if written != Some(Ok(())) {
        out.truncate(begin.0);
        if let Some(parts) = parts {
            parts.truncate(begin.1);
        }
    }
    written
}

/// Returns the JSON pointers of the parts that [`canonicalize`] returns for this text, in their order.
///
/// Slower, for refusals only. Pointers contain names of members, never values.
pub fn part_names(text: &[u8], selection: &Selection) -> Result<Vec<String>, Unclean> {
    let document = Document::parse(text)?;
    let (mut form, mut names) = (Vec::new(), Vec::new());
    let encoder = Encoder::new(&document, &mut form);
    Plan::of(&document, selection).carry_out(encoder, Names::new(&mut names));
    Ok(names)
}
