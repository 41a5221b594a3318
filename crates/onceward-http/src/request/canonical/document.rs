//! A JSON text that was read, as one flat list of nodes.

use std::ops::Range;
use std::slice;

use smallvec::SmallVec;

use super::parser::Word;
use super::selection::Cut;

/// Every value and every member's name in the order of the text. A container is followed by
/// what it contains, a name by its value.
pub(super) struct Document<'t> {
    pub(super) text: &'t str,
    /// What could not be borrowed from the text: strings with escapes, and numbers in their
    /// canonical form.
    pub(super) made: Vec<u8>,
    pub(super) nodes: Vec<Node>,
    /// The names of all objects' members, each object's together and sorted.
    pub(super) members: SmallVec<[NodeId; 32]>,
    pub(super) shape: Shape,
}

/// How large and how deep a document is.
#[derive(Clone, Copy, Default)]
pub(super) struct Shape {
    /// Scalars and empty containers.
    pub(super) leaves: usize,
    /// Containers that stand in one another.
    pub(super) depth: usize,
    /// Items of the longest array.
    pub(super) items: usize,
}

/// The place of a node in its document.
pub(super) type NodeId = u32;

#[derive(Clone, Copy)]
pub(super) enum Node {
    Word(Word),
    /// In `made`, as it is written.
    Number(Span),
    /// In the text.
    Borrowed(Span),
    /// In `made`.
    Unescaped(Span),
    /// `end` is the node after the last one inside.
    Array {
        end: NodeId,
    },
    /// `members` is a span of the document's members.
    Object {
        end: NodeId,
        members: Span,
    },
}

/// A range in half the space. Texts are short enough for it, which the parser checks.
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

/// How a child is reached from its container.
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

    /// The text of a string, which is UTF-8.
    #[inline]
    pub(super) fn string(&self, id: NodeId) -> &[u8] {
        match self.node(id) {
            Node::Borrowed(span) => &self.text.as_bytes()[span.range()],
            Node::Unescaped(span) => self.made(span),
            _ => unreachable!("only names and strings are asked for their text"),
        }
    }

    /// Members by name, or items in order; nothing for a scalar.
    pub(super) fn children(&self, id: NodeId) -> Children<'_> {
        let inside = match self.node(id) {
            Node::Array { end } => Inside::Items { next: id + 1, end, index: 0 },
            Node::Object { members, .. } => Inside::Members(self.members[members.range()].iter()),
            _ => Inside::Members([].iter()),
        };
        Children { document: self, inside }
    }

    /// Whether it is a container, and not an empty one.
    pub(super) fn has_children(&self, id: NodeId) -> bool {
        match self.node(id) {
            Node::Array { end } | Node::Object { end, .. } => end > id + 1,
            _ => false,
        }
    }

    /// The children that are left after the cut, each with what is cut from it.
    pub(super) fn kept<'d, 's>(
        &'d self,
        id: NodeId,
        cut: Cut<'s>,
    ) -> impl Iterator<Item = (Child<'d>, Cut<'s>)> {
        self.children(id)
            .filter_map(move |child| cut.step(child.step).map(|inside| (child, inside)))
    }

    /// The child that one segment of a JSON pointer leads to.
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
    /// Whoever makes a span knows that its text is short enough.
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
