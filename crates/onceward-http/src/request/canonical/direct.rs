//! Writes the canonical form of a small document while the document is read.
//!
//! Nearly every request has a small document and no selection, and needs neither a list of nodes nor a
//! plan. Form and parts are the same as those of the longer way through a
//! [`Document`](super::document::Document); a test compares the two.

use std::cmp::Ordering;

use onceward_core::Part;
use smallvec::SmallVec;

use super::document::{Shape, Span, Step};
use super::encoder::write_text;
use super::number::Number;
use super::parser::{self, Container, Stop, Text, Unclean, Visitor, Word};
use super::parts::{Hashes, Sink};

/// Appends the form of a [checked](parser::checked) text, and its parts; `None` if the document is not
/// small. Then, and after an error, the caller must truncate the output.
pub(super) fn write(
    text: &str,
    out: &mut Vec<u8>,
    parts: Option<&mut Vec<Part>>,
) -> Option<Result<(), Unclean>> {
    let mut hashes = parts.map(Hashes::new);
    if let Some(hashes) = &mut hashes {
        hashes.begin("");
    }
    let (members, shape) = (SmallVec::new(), Shape::default());
    parser::read(text, &mut Direct { text, out, hashes, members, shape })
}

struct Direct<'t, 'w> {
    text: &'t str,
    out: &'w mut Vec<u8>,
    hashes: Option<Hashes<'w>>,
    /// The members of the open objects, the innermost object's last.
    members: SmallVec<[Member; 16]>,
    shape: Shape,
}

/// A member in the output.
#[derive(Clone, Copy)]
struct Member {
    /// The first bytes of its name, which decide most comparisons.
    prefix: u64,
    name: Span,
    /// Name and value.
    form: Span,
    parts: Span,
}

/// A container that is not complete yet.
struct Open {
    container: Container,
    /// Start in the output.
    start: usize,
    /// Index of its first member in the open members.
    first: usize,
    /// Hash of its pointer, like in a part.
    name: u64,
}

impl Direct<'_, '_> {
    /// Makes the output since `start` a part.
    fn leaf(&mut self, start: usize) -> Result<(), Stop> {
        self.shape.leaves += 1;
        if let Some(hashes) = &mut self.hashes {
            hashes.part(&self.out[start..]);
        }
        // Every container ends in a leaf, so checking at leaves is enough.
        if self.shape.fits() { Ok(()) } else { Err(Stop::TooMuch) }
    }

    fn parts(&self) -> usize {
        self.hashes.as_ref().map_or(0, |hashes| hashes.parts.len())
    }

    /// Enters the next child of an open container.
    fn enter(&mut self, open: &Open, step: Step<'_>) {
        if let Some(hashes) = &mut self.hashes {
            hashes.name = open.name;
            hashes.enter(step);
        }
    }

    /// Ends the last member of an open object.
    fn end_member(&mut self, first: usize) {
        let (form, parts) = (self.out.len() as u32, self.parts() as u32);
        if let Some(last) = self.members[first..].last_mut() {
            (last.form.end, last.parts.end) = (form, parts);
        }
    }

    /// Sorts the members of a complete object.
    fn sort(&mut self, first: usize) -> Result<(), Stop> {
        let members = &mut self.members[first..];
        let is_less = |a: &Member, b: &Member| a.order(b, self.out).is_lt();
        if members.is_sorted_by(is_less) {
            return Ok(());
        }
        let (form, parts) = (members[0].form.start as usize, members[0].parts.start as usize);
        members.sort_unstable_by(|a, b| a.order(b, self.out));
        // Only two members of the same name are not strictly sorted.
        if !members.is_sorted_by(is_less) {
            return Err(Stop::DuplicateMember);
        }
        rearrange(self.out, form, members.iter().map(|member| member.form));
        if let Some(hashes) = &mut self.hashes {
            rearrange(hashes.parts, parts, members.iter().map(|member| member.parts));
        }
        Ok(())
    }
}

impl Member {
    /// Compares two members by the bytes of their names.
    fn order(&self, other: &Self, out: &[u8]) -> Ordering {
        let rest = || out[self.name.range()].cmp(&out[other.name.range()]);
        self.prefix.cmp(&other.prefix).then_with(rest)
    }
}

/// Reorders the pieces that the list from `start` on consists of.
fn rearrange<T: Copy>(list: &mut Vec<T>, start: usize, pieces: impl Iterator<Item = Span>) {
    let end = list.len();
    pieces.for_each(|piece| list.extend_from_within(piece.range()));
    list.copy_within(end.., start);
    list.truncate(end);
}

impl Visitor for Direct<'_, '_> {
    type Open = Open;

    fn word(&mut self, word: Word) -> Result<(), Stop> {
        self.out.push(word.form());
        self.leaf(self.out.len() - 1)
    }

    fn number(&mut self, number: &Number<'_>) -> Result<(), Stop> {
        let start = self.out.len();
        number.write(self.out);
        self.leaf(start)
    }

    fn string(&mut self, text: Text<'_>) -> Result<(), Stop> {
        let start = self.out.len();
        write_text(self.out, text.bytes(self.text));
        self.leaf(start)
    }

    fn open(&mut self, container: Container, depth: usize) -> Result<Open, Stop> {
        self.shape.depth = self.shape.depth.max(depth);
        let (start, first) = (self.out.len(), self.members.len());
        let name = self.hashes.as_ref().map_or(0, |hashes| hashes.name);
        self.out.push(container.brackets().0);
        Ok(Open { container, start, first, name })
    }

    fn member(&mut self, open: &Open, name: Text<'_>) -> Result<(), Stop> {
        self.end_member(open.first);
        let (form, parts) = (self.out.len(), self.parts());
        let bytes = name.bytes(self.text);
        write_text(self.out, bytes);
        self.members.push(Member {
            prefix: name.prefix(self.text),
            name: Span::new(self.out.len() - bytes.len()..self.out.len()),
            form: Span::new(form..form),
            parts: Span::new(parts..parts),
        });
        self.enter(open, Step::Member(bytes));
        Ok(())
    }

    fn item(&mut self, open: &Open, index: usize) -> Result<(), Stop> {
        self.shape.items = self.shape.items.max(index + 1);
        self.enter(open, Step::Item(index));
        Ok(())
    }

    fn close(&mut self, open: Open, children: usize) -> Result<(), Stop> {
        self.end_member(open.first);
        self.sort(open.first)?;
        self.members.truncate(open.first);
        self.out.push(open.container.brackets().1);
        if children == 0 { self.leaf(open.start) } else { Ok(()) }
    }
}
