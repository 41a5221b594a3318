//! Builds a document from the parser's calls.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::document::{Document, Node, NodeId, Shape, Span};
use super::number::Number;
use super::parser::{self, Container, Stop, Text, Unclean, Visitor, Word};

impl<'t> Document<'t> {
    pub(super) fn parse(text: &'t [u8]) -> Result<Self, Unclean> {
        let text = parser::checked(text)?;
        let nodes = Vec::with_capacity(text.len() / 8 + 4);
        let made = Vec::with_capacity(text.len() / 8);
        let (members, shape) = (SmallVec::new(), Shape::default());
        let document = Self { text, made, nodes, members, shape };
        let mut builder = Builder { document, open: SmallVec::new() };
        let read = parser::read(text, &mut builder).expect("a document has no size limit");
        read.map(|()| builder.document)
    }

    /// Compares two members by the bytes of their names.
    fn order(&self, a: &Member, b: &Member) -> Ordering {
        let rest = || self.string(a.name).cmp(self.string(b.name));
        a.prefix.cmp(&b.prefix).then_with(rest)
    }
}

struct Builder<'t> {
    document: Document<'t>,
    /// The members of the open objects, the innermost object's last.
    open: SmallVec<[Member; 16]>,
}

/// A member's name, with its first bytes, which decide most comparisons.
#[derive(Clone, Copy)]
struct Member {
    prefix: u64,
    name: NodeId,
}

/// A container that is not complete yet.
struct Open {
    container: Container,
    node: usize,
    /// Index of its first member in the open members.
    first: usize,
}

impl Builder<'_> {
    fn push(&mut self, node: Node) -> usize {
        self.document.nodes.push(node);
        self.document.nodes.len() - 1
    }

    fn leaf(&mut self, node: Node) {
        self.document.shape.leaves += 1;
        self.push(node);
    }

    fn text(&mut self, text: Text<'_>) -> Node {
        match text {
            Text::Plain(span) => Node::Borrowed(span),
            Text::Unescaped(text) => {
                let start = self.document.made.len();
                self.document.made.extend_from_slice(text.as_bytes());
                Node::Unescaped(Span::new(start..self.document.made.len()))
            }
        }
    }

    fn next_id(&self) -> NodeId {
        self.document.nodes.len() as NodeId
    }

    /// Sorts the members of a complete object, and moves them to the document.
    fn sort(&mut self, first: usize) -> Result<Span, Stop> {
        let Self { document, open, .. } = self;
        let members = &mut open[first..];
        members.sort_unstable_by(|a, b| document.order(a, b));
        // Only two members of the same name are not strictly sorted.
        if !members.is_sorted_by(|a, b| document.order(a, b).is_lt()) {
            return Err(Stop::DuplicateMember);
        }
        let start = document.members.len();
        document.members.extend(open.drain(first..).map(|member| member.name));
        Ok(Span::new(start..document.members.len()))
    }
}

impl Visitor for Builder<'_> {
    type Open = Open;

    fn word(&mut self, word: Word) -> Result<(), Stop> {
        self.leaf(Node::Word(word));
        Ok(())
    }

    fn number(&mut self, number: &Number<'_>) -> Result<(), Stop> {
        let start = self.document.made.len();
        number.write(&mut self.document.made);
        self.leaf(Node::Number(Span::new(start..self.document.made.len())));
        Ok(())
    }

    fn string(&mut self, text: Text<'_>) -> Result<(), Stop> {
        let node = self.text(text);
        self.leaf(node);
        Ok(())
    }

    fn open(&mut self, container: Container, depth: usize) -> Result<Open, Stop> {
        self.document.shape.depth = self.document.shape.depth.max(depth);
        let node = self.push(Node::Array { end: 0 }); // until it closes
        Ok(Open { container, node, first: self.open.len() })
    }

    fn member(&mut self, _: &Open, name: Text<'_>) -> Result<(), Stop> {
        let prefix = name.prefix(self.document.text);
        self.open.push(Member { prefix, name: self.next_id() });
        let node = self.text(name);
        self.push(node);
        Ok(())
    }

    fn item(&mut self, _: &Open, index: usize) -> Result<(), Stop> {
        self.document.shape.items = self.document.shape.items.max(index + 1);
        Ok(())
    }

    fn close(&mut self, open: Open, children: usize) -> Result<(), Stop> {
        self.document.shape.leaves += usize::from(children == 0);
        let end = self.next_id();
        self.document.nodes[open.node] = match open.container {
            Container::Array => Node::Array { end },
            Container::Object => Node::Object { end, members: self.sort(open.first)? },
        };
        Ok(())
    }
}
