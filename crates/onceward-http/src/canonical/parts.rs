//! The parts of a document, for telling later in which of them another one differs.
//!
//! Taking containers apart is planned first, nearest to the root first, so that a large
//! object deep inside does not use up the parts of what stands beside it. The plan depends on
//! names and shapes only, and the walk is one and the same for hashes and for names: so the
//! n-th name belongs to the n-th hash.

use std::fmt::Write;
use std::hash::Hasher;

use onceward_core::Part;
use siphasher::sip::SipHasher13;

use super::document::{Document, Node, NodeId, Step};
use super::encoder::Encoder;
use super::selection::{Cut, Selection, Target};

/// Parts of a document at most. A person who looks for the difference reads a handful; a
/// record keeps some bytes of each.
pub const PARTS_MAX: usize = 32;

/// Containers deeper than this are one part: pointers have four segments at most.
const LEVELS_MAX: usize = 4;

/// Longer arrays are one part. One item more would otherwise differ in all that follow.
const ITEMS_MAX: usize = 8;

/// Who is told of each part: its pointer and its canonical form.
pub(super) trait Sink {
    fn part(&mut self, pointer: &str, form: &[u8]);
}

/// Keeps hashes of both.
pub(super) struct Hashes<'p>(pub(super) &'p mut Vec<Part>);

impl Sink for Hashes<'_> {
    fn part(&mut self, pointer: &str, form: &[u8]) {
        self.0.push(Part { name: hash(pointer.as_bytes()), value: hash(form) });
    }
}

/// Keeps the pointers.
pub(super) struct Names<'p>(pub(super) &'p mut Vec<String>);

impl Sink for Names<'_> {
    fn part(&mut self, pointer: &str, _form: &[u8]) {
        self.0.push(pointer.to_owned());
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hash = SipHasher13::new();
    hash.write(bytes);
    hash.finish()
}

/// Which containers are taken apart.
pub(super) struct Plan<'s> {
    targets: Vec<Target<'s>>,
    /// So many of the targets that were found are parts of their own.
    targets_shown: usize,
    opened: Vec<Opened>,
    /// Parts that may still be added.
    left: usize,
}

/// A container of which so many children are parts of their own, and the others together one.
struct Opened {
    node: NodeId,
    shown: usize,
}

/// A value that is a part by now, and may be taken apart.
struct Candidate<'s> {
    node: NodeId,
    cut: Cut<'s>,
    level: usize,
}

impl<'s> Plan<'s> {
    pub(super) fn of(document: &Document<'_>, selection: &'s Selection) -> Self {
        let targets: Vec<_> = selection.targets(document).collect();
        let found = targets.iter().filter_map(|target| target.found);
        let mut candidates: Vec<_> =
            found.map(|(node, cut)| Candidate { node, cut, level: 0 }).collect();
        let mut plan = Self { targets, targets_shown: 0, opened: Vec::new(), left: PARTS_MAX - 1 };
        // The targets are the children of a container that stands for the selection.
        plan.targets_shown = plan.room_for(candidates.len());
        candidates.truncate(plan.targets_shown);
        let mut next = 0;
        while plan.left > 0 && next < candidates.len() {
            plan.consider(document, next, &mut candidates);
            next += 1;
        }
        plan
    }

    /// Takes a candidate apart if that is allowed, which makes candidates of its children.
    fn consider(
        &mut self,
        document: &Document<'_>,
        candidate: usize,
        candidates: &mut Vec<Candidate<'s>>,
    ) {
        let Candidate { node, cut, level } = candidates[candidate];
        // Two more than there is room for tell as much as a million.
        let children = document.kept(node, cut).take(self.left + 2).count();
        let long = matches!(document.node(node), Node::Array { .. })
            && document.children(node).nth(ITEMS_MAX).is_some();
        if children == 0 || long || level == LEVELS_MAX {
            return;
        }
        let shown = self.room_for(children);
        self.opened.push(Opened { node, shown });
        let children = document.kept(node, cut).take(shown);
        candidates.extend(children.map(|(child, cut)| Candidate {
            node: child.node,
            cut,
            level: level + 1,
        }));
    }

    /// How many of the children of what is one part by now become parts of their own: all, or
    /// as many as leave that one part for the rest.
    fn room_for(&mut self, children: usize) -> usize {
        let fit = children <= self.left + 1;
        let shown = if fit { children } else { self.left };
        self.left -= if fit { children.saturating_sub(1) } else { self.left };
        shown
    }

    fn shown(&self, node: NodeId) -> Option<usize> {
        self.opened.iter().find(|opened| opened.node == node).map(|opened| opened.shown)
    }

    /// Writes the targets, and tells the parts.
    pub(super) fn carry_out(&self, encoder: Encoder<'_>, sink: impl Sink) {
        let mut walk = Walk { plan: self, encoder, sink, pointer: String::with_capacity(64) };
        walk.targets();
    }
}

struct Walk<'w, S> {
    plan: &'w Plan<'w>,
    encoder: Encoder<'w>,
    sink: S,
    /// The way to where the walk is.
    pointer: String,
}

impl<S: Sink> Walk<'_, S> {
    fn targets(&mut self) {
        let mut shown = 0;
        let mut targets = self.plan.targets.iter();
        while shown < self.plan.targets_shown
            && let Some(target) = targets.next()
        {
            match target.found {
                Some((node, cut)) => {
                    shown += 1;
                    self.pointer.push_str(target.pointer);
                    self.value(node, cut);
                    self.pointer.clear();
                }
                None => self.encoder.target(*target),
            }
        }
        let rest = self.encoder.out.len();
        let more = targets.clone().any(|target| target.found.is_some());
        targets.for_each(|target| self.encoder.target(*target));
        if more {
            self.part(rest);
        }
    }

    /// A value that is one part, or several.
    fn value(&mut self, id: NodeId, cut: Cut<'_>) {
        let start = self.encoder.out.len();
        match self.plan.shown(id) {
            Some(shown) => self.container(id, cut, shown),
            None => {
                self.encoder.value(id, cut);
                self.part(start);
            }
        }
    }

    fn container(&mut self, id: NodeId, cut: Cut<'_>, shown: usize) {
        let mut position = 0;
        let mut rest = None;
        self.encoder.open(id);
        for child in self.encoder.document.children(id) {
            let Some(cut) = cut.step(child.step) else {
                self.encoder.gap(child.step);
                continue;
            };
            if position == shown {
                rest = Some(self.encoder.out.len());
            }
            self.encoder.step(child.step);
            if position < shown {
                self.child(child.step, child.node, cut);
            } else {
                self.encoder.value(child.node, cut);
            }
            position += 1;
        }
        if let Some(rest) = rest {
            self.part(rest);
        }
        self.encoder.close(id);
    }

    fn child(&mut self, step: Step<'_>, node: NodeId, cut: Cut<'_>) {
        let parent = self.pointer.len();
        push_segment(&mut self.pointer, step);
        self.value(node, cut);
        self.pointer.truncate(parent);
    }

    fn part(&mut self, start: usize) {
        self.sink.part(&self.pointer, &self.encoder.out[start..]);
    }
}

fn push_segment(pointer: &mut String, step: Step<'_>) {
    pointer.push('/');
    match step {
        Step::Member(name) if name.contains(['~', '/']) => {
            pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        }
        Step::Member(name) => pointer.push_str(name),
        Step::Item(index) => write!(pointer, "{index}").expect("a string takes everything"),
    }
}
