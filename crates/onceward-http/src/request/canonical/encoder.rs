//! Writes the canonical form.

use super::document::{Document, Node, NodeId, Step};
use super::parser::Container;
use super::selection::{Cut, Target};

/// Appends values of a document in the [canonical form](super).
pub(super) struct Encoder<'d> {
    pub(super) document: &'d Document<'d>,
    pub(super) out: &'d mut Vec<u8>,
}

const ABSENT: u8 = b'_';

impl<'d> Encoder<'d> {
    pub(super) fn new(document: &'d Document<'d>, out: &'d mut Vec<u8>) -> Self {
        Self { document, out }
    }

    pub(super) fn target(&mut self, target: Target<'_>) {
        match target.found {
            Some((node, cut)) => self.value(node, cut),
            None => self.absent(),
        }
    }

    pub(super) fn value(&mut self, id: NodeId, cut: Cut<'_>) {
        match self.document.node(id) {
            Node::Word(word) => self.out.push(word.form()),
            Node::Number(span) => self.out.extend_from_slice(self.document.made(span)),
            Node::Borrowed(_) | Node::Unescaped(_) => self.string(self.document.string(id)),
            Node::Array { .. } | Node::Object { .. } => self.container(id, cut),
        }
    }

    fn container(&mut self, id: NodeId, cut: Cut<'_>) {
        self.open(id);
        for child in self.document.children(id) {
            match cut.step(child.step) {
                Some(cut) => {
                    self.step(child.step);
                    self.value(child.node, cut);
                }
                None => self.gap(child.step),
            }
        }
        self.close(id);
    }

    /// Writes the begin of a container.
    pub(super) fn open(&mut self, id: NodeId) {
        self.out.push(self.container_at(id).brackets().0);
    }

    pub(super) fn close(&mut self, id: NodeId) {
        self.out.push(self.container_at(id).brackets().1);
    }

    fn container_at(&self, id: NodeId) -> Container {
        match self.document.node(id) {
            Node::Array { .. } => Container::Array,
            _ => Container::Object,
        }
    }

    /// Writes the begin of a child.
    pub(super) fn step(&mut self, step: Step<'_>) {
        match step {
            Step::Member(name) => self.string(name),
            Step::Item(_) => {}
        }
    }

    /// Writes the placeholder of an excluded child.
    pub(super) fn gap(&mut self, step: Step<'_>) {
        match step {
            Step::Member(_) => {}
            Step::Item(_) => self.absent(),
        }
    }

    fn absent(&mut self) {
        self.out.push(ABSENT);
    }

    fn string(&mut self, text: &[u8]) {
        write_text(self.out, text);
    }
}

/// Appends a string.
#[inline]
pub(super) fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    if text.len() < 0x80 {
        out.extend_from_slice(&[b's', text.len() as u8]);
        return out.extend_from_slice(text);
    }
    out.push(b's');
    let mut length = text.len();
    // Seven bits a byte, the lowest first.
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(text);
}
