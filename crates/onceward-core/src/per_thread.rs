//! A value for each thread, so that threads do not contend for one cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Enough that the threads of most machines rarely share a slot, few enough to visit all of them.
const SLOTS: usize = 16;

/// A value in each of [`SLOTS`] slots. Each thread uses one slot; threads share slots where
/// there are more threads than slots.
#[derive(Debug, Default)]
pub(crate) struct PerThread<T>([CachePadded<T>; SLOTS]);

/// Index of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadSlot(usize);

/// A value alone in two cache lines: processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> PerThread<T> {
    /// The current thread's slot and value.
    pub(crate) fn current(&self) -> (ThreadSlot, &T) {
        let slot = ThreadSlot::current();
        (slot, self.at(slot))
    }

    pub(crate) fn at(&self, slot: ThreadSlot) -> &T {
        &self.0[slot.0].0
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (ThreadSlot, &T)> {
        self.0.iter().enumerate().map(|(slot, padded)| (ThreadSlot(slot), &padded.0))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &padded.0)
    }
}

impl ThreadSlot {
    fn current() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: Cell<Option<ThreadSlot>> = const { Cell::new(None) };
        }
        let draw = || Self(NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS);
        // A thread that is ending has no locals any more; any slot will do.
        let mine = MINE.try_with(|mine| {
            let slot = mine.get().unwrap_or_else(draw);
            mine.set(Some(slot));
            slot
        });
        mine.unwrap_or(Self(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_slot_and_another_has_another() {
        let counts = PerThread::<AtomicUsize>::default();
        let (mine, count) = counts.current();
        count.fetch_add(1, Ordering::Relaxed);
        assert_eq!(counts.current().0, mine);
        let theirs: Vec<ThreadSlot> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..3).map(|_| scope.spawn(|| counts.current().0)).collect();
            all.into_iter().map(|it| it.join().unwrap()).collect()
        });
        assert!(theirs.iter().any(|slot| *slot != mine), "{theirs:?}");
        assert_eq!(counts.at(mine).load(Ordering::Relaxed), 1);
        assert_eq!(counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>(), 1);
    }
}
