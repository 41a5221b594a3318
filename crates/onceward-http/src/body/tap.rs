//! Copies of request bodies, made while they stream to their handlers (shadow mode).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::oneshot;

use super::buffer::Chunks;

/// Most shadowed requests at once: with a store that hangs they would pile up without bound.
const REQUESTS_MAX: usize = 4096;
/// Most bytes that all copies hold together. Shadow mode must not exhaust the memory.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Shadowed requests and the bytes of their copies, in use.
#[derive(Debug, Default)]
pub(crate) struct TapBudget {
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

impl TapBudget {
    /// Admits one more request; `None` if there are too many.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<TapPermit> {
        let entered = take(&self.requests, 1, REQUESTS_MAX);
        entered.then(|| TapPermit { budget: Arc::clone(self), bytes: 0 })
    }
}

/// Adds to a counter, unless it would exceed `max`.
fn take(counter: &AtomicUsize, more: usize, max: usize) -> bool {
    let add = |now: usize| now.checked_add(more).filter(|sum| *sum <= max);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

/// The share of one request in the budget, given back on drop.
#[derive(Debug)]
pub(crate) struct TapPermit {
    budget: Arc<TapBudget>,
    bytes: usize,
}

impl TapPermit {
    fn grow(&mut self, more: usize) -> bool {
        let grown = take(&self.budget.bytes, more, BYTES_MAX);
        self.bytes += if grown { more } else { 0 };
        grown
    }
}

impl Drop for TapPermit {
    fn drop(&mut self) {
        self.budget.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Result of copying a body.
pub(crate) enum Tapped {
    /// The whole body, with its share of the budget.
    Whole(Bytes, TapPermit),
    /// The body is larger than the operation accepts.
    TooLarge,
    /// The handler did not read the whole body, or the budget is used up.
    Partial,
}

/// Copies one body, and sends the copy when the body ends or is dropped.
pub(crate) struct BodyTap {
    copied: Chunks,
    limit: usize,
    /// The body's length, if its head tells: then the end is known without a poll for it.
    length: Option<u64>,
    permit: Option<TapPermit>,
    result: Option<oneshot::Sender<Tapped>>,
}

impl BodyTap {
    pub(crate) fn new(
        limit: usize,
        length: Option<u64>,
        permit: TapPermit,
    ) -> (Self, oneshot::Receiver<Tapped>) {
        let (sender, receiver) = oneshot::channel();
        let mut tap = Self {
            copied: Chunks::default(),
            limit,
            length,
            permit: Some(permit),
            result: Some(sender),
        };
        if length.is_some_and(|length| length > limit as u64) {
            tap.send(Tapped::TooLarge);
        }
        (tap, receiver)
    }

    /// Copies a frame; `None` is the end.
    pub(crate) fn frame<E>(&mut self, frame: Option<&Result<Frame<Bytes>, E>>) {
        match frame {
            None => self.finish(),
            Some(Err(_)) => self.send(Tapped::Partial),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.copy(data);
                }
            }
        }
    }

    fn copy(&mut self, data: &Bytes) {
        let Some(permit) = &mut self.permit else { return };
        if self.copied.len() + data.len() > self.limit {
            self.send(Tapped::TooLarge);
        } else if permit.grow(data.len()) {
            self.copied.push(data.clone());
        } else {
            self.send(Tapped::Partial);
        }
    }

    /// Sends the copy: the body has ended.
    pub(crate) fn finish(&mut self) {
        if let Some(permit) = self.permit.take() {
            let whole = std::mem::take(&mut self.copied).finish();
            self.send(Tapped::Whole(whole, permit));
        }
    }

    fn send(&mut self, tapped: Tapped) {
        self.permit = None;
        self.copied = Chunks::default();
        if let Some(result) = self.result.take() {
            let _receiver_may_be_gone = result.send(tapped);
        }
    }
}

/// A server does not poll a body of known length for its end.
impl Drop for BodyTap {
    fn drop(&mut self) {
        if self.length == Some(self.copied.len() as u64) {
            self.finish();
        } else {
            self.send(Tapped::Partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn data(text: &'static str) -> Result<Frame<Bytes>, Infallible> {
        Ok(Frame::data(Bytes::from_static(text.as_bytes())))
    }

    fn tapped(length: Option<u64>, frames: &[&'static str], ended: bool) -> Tapped {
        let permit = Arc::new(TapBudget::default()).enter().unwrap();
        let (mut tap, mut result) = BodyTap::new(6, length, permit);
        frames.iter().for_each(|frame| tap.frame(Some(&data(frame))));
        if ended {
            tap.frame::<Infallible>(None);
        }
        drop(tap);
        result.try_recv().unwrap()
    }

    #[test]
    fn a_body_is_whole_at_its_end_or_at_its_length() {
        let whole = |tapped| matches!(tapped, Tapped::Whole(bytes, _) if bytes == "abcd");
        assert!(whole(tapped(None, &["ab", "cd"], true)));
        assert!(whole(tapped(Some(4), &["ab", "cd"], false)));
        assert!(matches!(tapped(None, &["ab", "cd"], false), Tapped::Partial));
        assert!(matches!(tapped(Some(5), &["ab", "cd"], false), Tapped::Partial));
        assert!(matches!(tapped(Some(0), &[], false), Tapped::Whole(bytes, _) if bytes.is_empty()));
    }

    #[test]
    fn a_body_over_the_limit_is_refused_by_its_length_or_while_it_streams() {
        assert!(matches!(tapped(Some(7), &[], false), Tapped::TooLarge));
        assert!(matches!(tapped(None, &["abcd", "efg"], true), Tapped::TooLarge));
    }

    #[test]
    fn the_budget_is_given_back_and_never_exceeded() {
        let budget = Arc::new(TapBudget::default());
        let mut permit = budget.enter().unwrap();
        assert!(permit.grow(BYTES_MAX) && !permit.grow(1));
        drop(permit);
        let permits: Vec<_> = (0..REQUESTS_MAX).map(|_| budget.enter().unwrap()).collect();
        assert!(budget.enter().is_none());
        drop(permits);
        assert!(budget.enter().unwrap().grow(BYTES_MAX));
    }
}
