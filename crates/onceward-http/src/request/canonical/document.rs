//! A parsed JSON text, as a flat list of nodes.

use std::ops::Range;
use std::slice;

use smallvec::SmallVec;

use super::parser::Word;
use super::selection::Cut;

/// All values and member names in the order of the text. A container is followed by its content, a
/// name by its value.
pub(super) struct Document<'t> {
    pub(super) text: &'t str,
    /// Text that cannot be borrowed: strings with escapes, and numbers in their canonical form.
    pub(super) made: Vec<u8>,
    pub(super) nodes: Vec<Node>,
    /// The members' names, grouped by object and sorted.
    pub(super) members: SmallVec<[NodeId; 32]>,
    pub(super) shape: Shape,
}

/// Size and depth of a document.
#[derive(Clone, Copy, Default)]
pub(super) struct Shape {
    /// Scalars and empty containers.
    pub(super) leaves: usize,
    /// Nesting of containers.
    pub(super) depth: usize,
    /// Length of the longest array.
    pub(super) items: usize,
}

/// Index of a node in its document.
pub(super) type NodeId = u32;

#[derive(Clone, Copy)]
pub(super) enum Node {
    Word(Word),
    /// In `made`, in canonical form.
    Number(Span),
    /// In the text.
    Borrowed(Span),
    /// In `made`.
    Unescaped(Span),
    /// `end` is the first node behind the content.
    Array {
        end: NodeId,
    },
    /// `members` is a span of the document's members.
    Object {
        end: NodeId,
        members: Span,
    },
}

/// A range of 32-bit numbers. The parser refuses longer texts.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// A member or an item of a container.
pub(super) struct Child<'d> {
    pub(super) step: Step<'d>,
    pub(super) node: NodeId,
}

/// The step from a container to a child.
#[derive(Clone, Copy)]
pub(super) enum Step<'d> {
    Member(&'d [u8]),
    Item(usize),
}

impl Document<'_> {
    #[inline]
    pub(super) fn node(&self, id: NodeId) -> Node {
        self.nodes[id as usize]
    }

    pub(super) fn made(&self, span: Span) -> &[u8] {
        &self.made[span.range()]
    }

    /// Returns the text of a string, which is UTF-8.
    #[inline]
    pub(super) fn string(&self, id: NodeId) -> &[u8] {
        match self.node(id) {
            Node::Borrowed(span) => &self.text.as_bytes()[span.range()],
            Node::Unescaped(span) => self.made(span),
            _ => unreachable!("only names and strings have a text"),
        }
    }

    /// Returns the members by name, or the items in order; nothing for a scalar.
    pub(super) fn children(&self, id: NodeId) -> Children<'_> {
        let inside = match self.node(id) {
            Node::Array { end } => Inside::Items { next: id + 1, end, index: 0 },
            Node::Object { members, .. } => Inside::Members(self.members[members.range()].iter()),
            _ => Inside::Members([].iter()),
        };
        Children { document: self, inside }
    }

    /// Returns true for a container that is not empty.
    pub(super) fn has_children(&self, id: NodeId) -> bool {
        match self.node(id) {
            Node::Array { end } | Node::Object { end, .. } => end > id + 1,
            _ => false,
        }
    }

    /// Returns the children that are not excluded, each with its own exclusions.
    pub(super) fn kept<'d, 's>(
        &'d self,
        id: NodeId,
        cut: Cut<'s>,
    ) -> impl Iterator<Item = (Child<'d>, Cut<'s>)> {
        self.children(id)
            .filter_map(move |child| cut.step(child.step).map(|inside| (child, inside)))
    }

    /// Returns the child of a segment of a JSON pointer.
    pub(super) fn child(&self, id: NodeId, name: &str, index: Option<usize>) -> Option<Child<'_>> {
        match self.node(id) {
            Node::Array { .. } => self.children(id).nth(index?),
            Node::Object { members, .. } => {
                let members = &self.members[members.range()];
                let found =
                    members.binary_search_by(|member| self.string(*member).cmp(name.as_bytes()));
                Some(self.member(members[found.ok()?]))
            }
            _ => None,
        }
    }

    fn member(&self, name: NodeId) -> Child<'_> {
        Child { step: Step::Member(self.string(name)), node: name + 1 }
    }

    fn after(&self, id: NodeId) -> NodeId {
        match self.node(id) {
            Node::Array { end } | Node::Object { end, .. } => end,
            _ => id + 1,
        }
    }
}

impl Span {
    /// The range must fit into 32 bits, which the parser ensures.
    pub(super) fn new(range: Range<usize>) -> Self {
        Self { start: range.start as u32, end: range.end as u32 }
    }

    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// See [`Document::children`].
pub(super) struct Children<'d> {
    document: &'d Document<'d>,
    inside: Inside<'d>,
}

enum Inside<'d> {
    Items { next: NodeId, end: NodeId, index: usize },
    Members(slice::Iter<'d, NodeId>),
}

impl<'d> Iterator for Children<'d> {
    type Item = Child<'d>;

    fn next(&mut self) -> Option<Child<'d>> {
        match &mut self.inside {
            Inside::Members(names) => names.next().map(|name| self.document.member(*name)),
            Inside::Items { next, end, index } if *next < *end => {
                let child = Child { step: Step::Item(*index), node: *next };
                *next = self.document.after(*next);
                *index += 1;
                Some(child)
            }
            Inside::Items { .. } => None,
        }
    }
}
