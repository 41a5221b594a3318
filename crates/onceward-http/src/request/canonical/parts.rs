//! The parts of a document, for finding those in which another document differs.
//!
//! A plan splits containers, those near the root first, so that a large object deep inside does not
//! use up the parts of its neighbours. The plan depends only on names and shapes, and hashes and names
//! come from the same walk, so the n-th name belongs to the n-th hash.

use std::fmt::Write;

use onceward_core::Part;
use smallvec::SmallVec;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::document::{Document, Node, NodeId, Shape, Step};
use super::encoder::Encoder;
use super::selection::{Cut, Selection, Target};

/// Most parts of a document. A person who looks for the difference reads a handful, and a record
/// stores some bytes of each.
pub const PARTS_MAX: usize = 32;

/// Deeper containers are one part: pointers have four segments at most.
const LEVELS_MAX: usize = 4;

/// Longer arrays are one part: an inserted item would otherwise change all later parts.
const ITEMS_MAX: usize = 8;

impl Shape {
    /// Returns true if every leaf can be a part of its own. No plan is needed then.
    pub(super) fn fits(self) -> bool {
        self.leaves <= PARTS_MAX && self.depth <= LEVELS_MAX && self.items <= ITEMS_MAX
    }
}

/// Receives the parts of a walk, with the position of the walk below a target.
pub(super) trait Sink {
    /// State for returning to the parent.
    type Parent;

    /// The walk begins at this pointer.
    fn begin(&mut self, pointer: &str);
    fn enter(&mut self, step: Step<'_>) -> Self::Parent;
    fn leave(&mut self, parent: Self::Parent);
    /// A part at the current position, in its canonical form.
    fn part(&mut self, form: &[u8]);
}

/// Collects hashes of the parts. The hash of a pointer is computed step by step, with the parent's hash
/// as the seed, so that no pointer is written.
pub(super) struct Hashes<'p> {
    pub(super) parts: &'p mut Vec<Part>,
    /// Hash of the current pointer.
    pub(super) name: u64,
}

impl<'p> Hashes<'p> {
    pub(super) fn new(parts: &'p mut Vec<Part>) -> Self {
        Self { parts, name: 0 }
    }
}

impl Sink for Hashes<'_> {
    type Parent = u64;

    fn begin(&mut self, pointer: &str) {
        self.name = xxh3_64(pointer.as_bytes());
    }

    fn enter(&mut self, step: Step<'_>) -> u64 {
        let parent = self.name;
        self.name = match step {
            Step::Member(name) => xxh3_64_with_seed(name, parent),
            Step::Item(index) => xxh3_64_with_seed(&(index as u64).to_le_bytes(), parent),
        };
        parent
    }

    fn leave(&mut self, parent: u64) {
        self.name = parent;
    }

    fn part(&mut self, form: &[u8]) {
        self.parts.push(Part { name: self.name, value: xxh3_64(form) });
    }
}

/// Collects the pointers of the parts.
pub(super) struct Names<'p> {
    names: &'p mut Vec<String>,
    pointer: String,
}

impl<'p> Names<'p> {
    pub(super) fn new(names: &'p mut Vec<String>) -> Self {
        Self { names, pointer: String::new() }
    }
}

impl Sink for Names<'_> {
    type Parent = usize;

    fn begin(&mut self, pointer: &str) {
        pointer.clone_into(&mut self.pointer);
    }

    fn enter(&mut self, step: Step<'_>) -> usize {
        let parent = self.pointer.len();
        push_segment(&mut self.pointer, step);
        parent
    }

    fn leave(&mut self, parent: usize) {
        self.pointer.truncate(parent);
    }

    fn part(&mut self, _form: &[u8]) {
        self.names.push(self.pointer.clone());
    }
}

/// The containers that are split into parts.
pub(super) struct Plan<'s> {
    targets: Targets<'s>,
    /// Number of found targets that are parts of their own.
    targets_shown: usize,
    opened: Vec<Opened>,
    /// Every container is split; `opened` is empty.
    all: bool,
    /// Number of parts that can still be added.
    left: usize,
}

/// Usually only the root, which needs no allocation.
type Targets<'s> = SmallVec<[Target<'s>; 1]>;

/// A container with this many children as parts of their own, and the others as one part.
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
        let targets: Targets<'_> = selection.targets(document).collect();
        if let [Target { found: Some((0, cut)), .. }] = targets[..]
            && cut.is_nothing()
            && document.shape.fits()
        {
            return Self { targets, targets_shown: 1, opened: Vec::new(), all: true, left: 0 };
        }
        Self::made(document, targets)
    }

    #[cold]
    fn made(document: &Document<'_>, targets: Targets<'s>) -> Self {
        let found = targets.iter().filter_map(|target| target.found);
        let mut candidates: Vec<_> =
            found.map(|(node, cut)| Candidate { node, cut, level: 0 }).collect();
        let (opened, left) = (Vec::new(), PARTS_MAX - 1);
        let mut plan = Self { targets, targets_shown: 0, opened, all: false, left };
        // The selection counts as a container with the targets as its children.
        plan.targets_shown = plan.room_for(candidates.len());
        candidates.truncate(plan.targets_shown);
        let mut next = 0;
        while next < candidates.len() {
            plan.consider(document, next, &mut candidates);
            next += 1;
        }
        plan
    }

    /// Splits a candidate if possible; its children become candidates.
    fn consider(
        &mut self,
        document: &Document<'_>,
        candidate: usize,
        candidates: &mut Vec<Candidate<'s>>,
    ) {
        let Candidate { node, cut, level } = candidates[candidate];
        // Counting two more than fit is enough.
        let children = document.kept(node, cut).take(self.left + 2).count();
        let long = matches!(document.node(node), Node::Array { .. })
            && document.children(node).nth(ITEMS_MAX).is_some();
        if children == 0 || long || level == LEVELS_MAX {
            return;
        }
        let shown = self.room_for(children);
        if shown == 0 {
            return;
        }
        self.opened.push(Opened { node, shown });
        let children = document.kept(node, cut).take(shown);
        candidates.extend(children.map(|(child, cut)| Candidate {
            node: child.node,
            cut,
            level: level + 1,
        }));
    }

    /// Returns the number of children that become parts of their own: all, or as many as leave one
    /// part for the rest.
    fn room_for(&mut self, children: usize) -> usize {
        let fit = children <= self.left + 1;
        let shown = if fit { children } else { self.left };
        self.left -= if fit { children.saturating_sub(1) } else { self.left };
        shown
    }

    /// Returns the number of children that are parts of their own; `None` if the container is a part
    /// itself.
    fn shown(&self, document: &Document<'_>, node: NodeId) -> Option<usize> {
        if self.all {
            return document.has_children(node).then_some(usize::MAX);
        }
        self.opened.iter().find(|opened| opened.node == node).map(|opened| opened.shown)
    }

    /// Writes the targets and reports the parts.
    pub(super) fn carry_out(&self, encoder: Encoder<'_>, sink: impl Sink) {
        Walk { plan: self, encoder, sink }.targets();
    }
}

struct Walk<'w, 's, S> {
    plan: &'w Plan<'s>,
    encoder: Encoder<'w>,
    sink: S,
}

impl<S: Sink> Walk<'_, '_, S> {
    fn targets(&mut self) {
        let mut shown = 0;
        let mut targets = self.plan.targets.iter();
        while shown < self.plan.targets_shown
            && let Some(target) = targets.next()
        {
            match target.found {
                Some((node, cut)) => {
                    shown += 1;
                    self.sink.begin(target.pointer);
                    self.value(node, cut);
                }
                None => self.encoder.target(*target),
            }
        }
        let rest = self.encoder.out.len();
        let more = targets.clone().any(|target| target.found.is_some());
        targets.for_each(|target| self.encoder.target(*target));
        if more {
            self.sink.begin("");
            self.part(rest);
        }
    }

    /// Writes a value that is one part or several.
    fn value(&mut self, id: NodeId, cut: Cut<'_>) {
        let start = self.encoder.out.len();
        match self.plan.shown(self.encoder.document, id) {
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
        let parent = self.sink.enter(step);
        self.value(node, cut);
        self.sink.leave(parent);
    }

    fn part(&mut self, start: usize) {
        self.sink.part(&self.encoder.out[start..]);
    }
}

fn push_segment(pointer: &mut String, step: Step<'_>) {
    pointer.push('/');
    match step {
        Step::Member(name) => {
            let name = String::from_utf8_lossy(name);
            pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        }
        Step::Item(index) => write!(pointer, "{index}").expect("writing to a string never fails"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(document: &Document<'_>, plan: &Plan<'_>) -> Vec<String> {
        let (mut form, mut names) = (Vec::new(), Vec::new());
        plan.carry_out(Encoder::new(document, &mut form), Names::new(&mut names));
        names
    }

    #[test]
    fn a_plan_of_a_small_document_splits_everything() {
        let members = |count: usize| {
            let members: Vec<_> = (0..count).map(|n| format!("\"m{n}\":{{\"x\":[]}}")).collect();
            format!("{{{}}}", members.join(","))
        };
        let texts = [
            "1".into(),
            "[]".into(),
            r#"{"a":[1,{"b":[[2]]}],"c":{},"d":null}"#.into(),
            r#"{"a":{"b":{"c":{"d":[]}}}}"#.into(),
            "[1,2,3,4,5,6,7,[8]]".into(),
            members(PARTS_MAX),
        ];
        for text in texts {
            let selection = Selection::everything();
            let document = Document::parse(text.as_bytes()).unwrap();
            let quick = Plan::of(&document, &selection);
            let slow = Plan::made(&document, selection.targets(&document).collect());
            assert!(quick.all || document.shape.depth > LEVELS_MAX, "{text}");
            assert_eq!(names(&document, &quick), names(&document, &slow), "{text}");
        }
        for text in ["[1,2,3,4,5,6,7,8,9]", "[[[[[1]]]]]", &members(PARTS_MAX + 1)] {
            let document = Document::parse(text.as_bytes()).unwrap();
            assert!(!Plan::of(&document, &Selection::everything()).all, "{text}");
        }
    }
}
