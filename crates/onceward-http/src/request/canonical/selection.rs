//! The fields of a document that count.

use thiserror::Error;

use super::document::{Document, NodeId, Step};
use super::parser::DEPTH_MAX;

/// The fields that count in a fingerprint, as JSON pointers (RFC 6901).
///
/// - **exclude**: a member counts as absent. An item of an array leaves a gap: later items keep their
///   positions, and the array its length.
/// - **include**, if not empty: only the values at these pointers count, or that there is none. Values
///   around them do not: under `/a/b` alone, `{}`, `{"a":{}}` and `{"a":5}` are equal. A pointer
///   inside another included one adds nothing.
/// - **both**: exclude applies within include. An included pointer inside an excluded one finds
///   nothing.
///
/// The whole text must be clean, also where it does not count. Canonical forms of different selections
/// must not be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Sorted, and none inside another. Everything is one pointer to the root.
    include: Vec<Pointer>,
    exclude: Branch,
}

/// An invalid JSON pointer in a selection.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{pointer}` is not a JSON pointer: {reason}")]
pub struct InvalidPointer {
    /// The pointer.
    pub pointer: String,
    /// The cause.
    pub reason: &'static str,
}

impl Selection {
    /// Compiles pointers.
    pub fn new(
        include: &[impl AsRef<str>],
        exclude: &[impl AsRef<str>],
    ) -> Result<Self, InvalidPointer> {
        let mut selection = Self { include: parse(include)?, exclude: Branch::default() };
        if selection.include.is_empty() {
            selection.include.push(Pointer::default());
        }
        selection.include.sort_unstable();
        // Sorted: a pointer is followed by the pointers inside it.
        selection.include.dedup_by(|next, kept| next.segments.starts_with(&kept.segments));
        for pointer in parse(exclude)? {
            selection.exclude.add(&pointer.segments);
        }
        Ok(selection)
    }

    /// The whole document.
    pub fn everything() -> Self {
        Self { include: vec![Pointer::default()], exclude: Branch::default() }
    }

    pub(super) fn is_everything(&self) -> bool {
        let all = |include: &[Pointer]| matches!(include, [root] if root.segments.is_empty());
        all(&self.include) && Cut::of(&self.exclude).is_some_and(Cut::is_nothing)
    }

    /// Returns the target of each included pointer, in an order that does not depend on the document.
    pub(super) fn targets<'s>(
        &'s self,
        document: &Document<'_>,
    ) -> impl Iterator<Item = Target<'s>> {
        self.include.iter().map(|pointer| Target {
            pointer: &pointer.text,
            found: self.find(&pointer.segments, document),
        })
    }

    fn find(&self, path: &[Segment], document: &Document<'_>) -> Option<(NodeId, Cut<'_>)> {
        let mut cut = Cut::of(&self.exclude)?;
        let mut node = 0;
        for segment in path {
            let child = document.child(node, &segment.name, segment.index)?;
            cut = cut.step(child.step)?;
            node = child.node;
        }
        Some((node, cut))
    }
}

impl Default for Selection {
    fn default() -> Self {
        Self::everything()
    }
}

/// An included pointer and its node in one document.
#[derive(Clone, Copy)]
pub(super) struct Target<'s> {
    pub(super) pointer: &'s str,
    pub(super) found: Option<(NodeId, Cut<'s>)>,
}

/// The exclusions at and below one node.
#[derive(Clone, Copy)]
pub(super) struct Cut<'s>(Option<&'s Branch>);

impl<'s> Cut<'s> {
    /// `None` if the whole node is excluded.
    fn of(branch: &'s Branch) -> Option<Self> {
        (!branch.whole).then_some(Self((!branch.next.is_empty()).then_some(branch)))
    }

    /// Returns true if nothing is excluded.
    pub(super) fn is_nothing(self) -> bool {
        self.0.is_none()
    }

    /// Returns the exclusions of a child; `None` if the child is excluded.
    #[inline]
    pub(super) fn step(self, step: Step<'_>) -> Option<Self> {
        match self.0.and_then(|branch| branch.follow(step)) {
            Some(branch) => Self::of(branch),
            None => Some(Self(None)),
        }
    }
}

/// Excluded pointers as a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Branch {
    /// A pointer ends here.
    whole: bool,
    /// Sorted by the names of the segments.
    next: Vec<(Segment, Branch)>,
}

impl Branch {
    fn add(&mut self, path: &[Segment]) {
        let Some((first, rest)) = path.split_first() else {
            self.whole = true;
            return;
        };
        let place = self.next.binary_search_by(|(segment, _)| segment.cmp(first));
        let place = place.unwrap_or_else(|place| {
            self.next.insert(place, (first.clone(), Self::default()));
            place
        });
        self.next[place].1.add(rest);
    }

    fn follow(&self, step: Step<'_>) -> Option<&Self> {
        let place = match step {
            Step::Member(name) => {
                self.next.binary_search_by(|(segment, _)| segment.name.as_bytes().cmp(name)).ok()?
            }
            Step::Item(index) => {
                self.next.iter().position(|(segment, _)| segment.index == Some(index))?
            }
        };
        Some(&self.next[place].1)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Pointer {
    segments: Vec<Segment>,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Segment {
    name: Box<str>,
    /// The item of an array that it names.
    index: Option<usize>,
}

fn parse(pointers: &[impl AsRef<str>]) -> Result<Vec<Pointer>, InvalidPointer> {
    pointers.iter().map(|pointer| Pointer::parse(pointer.as_ref())).collect()
}

impl Pointer {
    fn parse(text: &str) -> Result<Self, InvalidPointer> {
        let invalid = |reason| InvalidPointer { pointer: text.to_owned(), reason };
        let mut parts = text.split('/');
        if parts.next() != Some("") {
            return Err(invalid("it must be empty or begin with `/`"));
        }
        let segments: Option<Vec<_>> = parts.map(Segment::parse).collect();
        let segments = segments.ok_or_else(|| invalid("`~` must be followed by `0` or `1`"))?;
        if segments.len() > DEPTH_MAX {
            return Err(invalid("it is deeper than any document may be"));
        }
        Ok(Self { segments, text: text.to_owned() })
    }
}

impl Segment {
    fn parse(text: &str) -> Option<Self> {
        let mut name = String::with_capacity(text.len());
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            name.push(match char {
                '~' => match chars.next()? {
                    '0' => '~',
                    '1' => '/',
                    _ => return None,
                },
                other => other,
            });
        }
        Some(Self { index: index(&name), name: name.into() })
    }
}

/// Parses an index without leading zeros and signs: `01` is only the name of a member.
fn index(name: &str) -> Option<usize> {
    let canonical = name == "0" || name.starts_with(|first: char| ('1'..='9').contains(&first));
    canonical.then(|| name.parse().ok()).flatten()
}
