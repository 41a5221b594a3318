//! Which fields of a document count.

use thiserror::Error;

use super::document::{Document, NodeId, Step};
use super::parser::DEPTH_MAX;

/// The fields that matter for a fingerprint, as JSON pointers (RFC 6901).
///
/// - **exclude**: a member counts as absent. An item of an array leaves a gap: the items after
///   it keep their places, and the array its length.
/// - **include**, if there is any: only what these pointers lead to counts, or that they lead
///   to nothing. What stands around it does not: under `/a/b` alone, `{}`, `{"a":{}}` and
///   `{"a":5}` are equal. A pointer inside of another included one adds nothing.
/// - **both**: exclude applies within include. An included pointer inside an excluded one
///   leads to nothing.
///
/// The whole text must be clean, also where it does not count. Canonical forms of different
/// selections are not to be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Sorted, and none inside another. Everything is one pointer to the root.
    include: Vec<Pointer>,
    exclude: Branch,
}

/// A JSON pointer in a selection that is none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{pointer}` is not a JSON pointer: {reason}")]
pub struct InvalidPointer {
    /// As it was given.
    pub pointer: String,
    /// What is wrong with it.
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
        // A pointer is followed by those inside of it.
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

    /// What each included pointer leads to in a document, in an order that does not depend
    /// on the document.
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

/// An included pointer and what it leads to in one document.
#[derive(Clone, Copy)]
pub(super) struct Target<'s> {
    pub(super) pointer: &'s str,
    pub(super) found: Option<(NodeId, Cut<'s>)>,
}

/// What is excluded at and below one node.
#[derive(Clone, Copy)]
pub(super) struct Cut<'s>(Option<&'s Branch>);

impl<'s> Cut<'s> {
    /// `None` if nothing is left.
    fn of(branch: &'s Branch) -> Option<Self> {
        (!branch.whole).then_some(Self((!branch.next.is_empty()).then_some(branch)))
    }

    /// Whether all of it is left.
    pub(super) fn is_nothing(self) -> bool {
        self.0.is_none()
    }

    /// The cut for a child, or `None` if all of it is excluded.
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
    /// By the names of the segments.
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
    /// The item it names in an array.
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

/// Without leading zeros and signs: `01` is the name of a member only.
fn index(name: &str) -> Option<usize> {
    let canonical = name == "0" || name.starts_with(|first: char| ('1'..='9').contains(&first));
    canonical.then(|| name.parse().ok()).flatten()
}
