//! What many threads write, each in a place of its own.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Enough that the threads of most machines rarely meet, few enough to look through.
const LANES: usize = 16;

/// Several of a kind. A thread uses one of its own, as long as there are enough, so that threads
/// do not pull the same cache line back and forth.
#[derive(Debug, Default)]
pub(crate) struct Lanes<T>([Apart<T>; LANES]);

/// Which one it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane(usize);

/// Two cache lines: processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> Lanes<T> {
    /// The one that this thread uses.
    pub(crate) fn here(&self) -> (Lane, &T) {
        let lane = Lane::of_this_thread();
        (lane, self.at(lane))
    }

    pub(crate) fn at(&self, lane: Lane) -> &T {
        &self.0[lane.0].0
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (Lane, &T)> {
        self.0.iter().enumerate().map(|(lane, apart)| (Lane(lane), &apart.0))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|apart| &apart.0)
    }
}

impl Lane {
    fn of_this_thread() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: Cell<Option<Lane>> = const { Cell::new(None) };
        }
        let draw = || Self(NEXT.fetch_add(1, Ordering::Relaxed) % LANES);
        // A thread that ends has no locals any more, and takes any lane.
        let mine = MINE.try_with(|mine| {
            let lane = mine.get().unwrap_or_else(draw);
            mine.set(Some(lane));
            lane
        });
        mine.unwrap_or(Self(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_lane_and_another_has_another() {
        let lanes = Lanes::<AtomicUsize>::default();
        let (mine, count) = lanes.here();
        count.fetch_add(1, Ordering::Relaxed);
        assert_eq!(lanes.here().0, mine);
        let theirs: Vec<Lane> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..3).map(|_| scope.spawn(|| lanes.here().0)).collect();
            all.into_iter().map(|it| it.join().unwrap()).collect()
        });
        assert!(theirs.iter().any(|lane| *lane != mine), "{theirs:?}");
        assert_eq!(lanes.at(mine).load(Ordering::Relaxed), 1);
        assert_eq!(lanes.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>(), 1);
    }
}
