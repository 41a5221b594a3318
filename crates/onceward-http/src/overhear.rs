//! Request bodies, overheard while they stream to their handlers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::oneshot;

use crate::body::Gathered;

/// Most observations at once: with a store that hangs they would pile up for ever.
const OBSERVATIONS_MAX: usize = 4096;
/// Most bytes that all observations hold together: nobody waits for them, and nobody may run
/// out of memory for them.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// What observations use, all together.
#[derive(Debug, Default)]
pub(crate) struct Used {
    observations: AtomicUsize,
    bytes: AtomicUsize,
}

impl Used {
    /// A place for one more observation; `None` if there are too many.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Place> {
        let entered = take(&self.observations, 1, OBSERVATIONS_MAX);
        entered.then(|| Place { used: Arc::clone(self), bytes: 0 })
    }
}

/// Takes what is left of a counter's most.
fn take(counter: &AtomicUsize, more: usize, most: usize) -> bool {
    let add = |now: usize| now.checked_add(more).filter(|sum| *sum <= most);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

/// What one observation uses; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    used: Arc<Used>,
    bytes: usize,
}

impl Place {
    fn grow(&mut self, more: usize) -> bool {
        let grown = take(&self.used.bytes, more, BYTES_MAX);
        self.bytes += if grown { more } else { 0 };
        grown
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.used.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.used.observations.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What was overheard of a body.
pub(crate) enum Heard {
    /// All of it, in its place.
    Whole(Bytes, Place),
    /// It is larger than the operation takes.
    TooLarge,
    /// Its handler did not read all of it, or there was no room to listen.
    Partly,
}

/// Listens to one body, and tells what it heard when the body ends or is dropped.
pub(crate) struct Ear {
    heard: Gathered,
    limit: usize,
    /// The body's length, where its head tells it: then nobody need poll for the end.
    length: Option<u64>,
    place: Option<Place>,
    tell: Option<oneshot::Sender<Heard>>,
}

impl Ear {
    pub(crate) fn new(
        limit: usize,
        length: Option<u64>,
        place: Place,
    ) -> (Self, oneshot::Receiver<Heard>) {
        let (tell, told) = oneshot::channel();
        let mut ear = Self {
            heard: Gathered::default(),
            limit,
            length,
            place: Some(place),
            tell: Some(tell),
        };
        if length.is_some_and(|length| length > limit as u64) {
            ear.say(Heard::TooLarge);
        }
        (ear, told)
    }

    /// A frame went by; `None` is the end.
    pub(crate) fn hear<E>(&mut self, frame: Option<&Result<Frame<Bytes>, E>>) {
        match frame {
            None => self.finish(),
            Some(Err(_)) => self.say(Heard::Partly),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.keep(data);
                }
            }
        }
    }

    fn keep(&mut self, data: &Bytes) {
        let Some(place) = &mut self.place else { return };
        if self.heard.len() + data.len() > self.limit {
            self.say(Heard::TooLarge);
        } else if place.grow(data.len()) {
            self.heard.push(data.clone());
        } else {
            self.say(Heard::Partly);
        }
    }

    /// It has ended.
    pub(crate) fn finish(&mut self) {
        if let Some(place) = self.place.take() {
            let whole = std::mem::take(&mut self.heard).finish();
            self.say(Heard::Whole(whole, place));
        }
    }

    fn say(&mut self, heard: Heard) {
        self.place = None;
        self.heard = Gathered::default();
        if let Some(tell) = self.tell.take() {
            let _nobody_listens_any_more = tell.send(heard);
        }
    }
}

/// A server need not poll a body whose length it knows for its end.
impl Drop for Ear {
    fn drop(&mut self) {
        if self.length == Some(self.heard.len() as u64) {
            self.finish();
        } else {
            self.say(Heard::Partly);
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

    fn heard(length: Option<u64>, frames: &[&'static str], ended: bool) -> Heard {
        let place = Arc::new(Used::default()).enter().unwrap();
        let (mut ear, mut told) = Ear::new(6, length, place);
        frames.iter().for_each(|frame| ear.hear(Some(&data(frame))));
        if ended {
            ear.hear::<Infallible>(None);
        }
        drop(ear);
        told.try_recv().unwrap()
    }

    #[test]
    fn a_body_is_whole_at_its_end_or_at_its_length() {
        let whole = |heard| matches!(heard, Heard::Whole(bytes, _) if bytes == "abcd");
        assert!(whole(heard(None, &["ab", "cd"], true)));
        assert!(whole(heard(Some(4), &["ab", "cd"], false)));
        assert!(matches!(heard(None, &["ab", "cd"], false), Heard::Partly));
        assert!(matches!(heard(Some(5), &["ab", "cd"], false), Heard::Partly));
        assert!(matches!(heard(Some(0), &[], false), Heard::Whole(bytes, _) if bytes.is_empty()));
    }

    #[test]
    fn one_over_the_limit_is_known_by_its_length_or_when_it_gets_there() {
        assert!(matches!(heard(Some(7), &[], false), Heard::TooLarge));
        assert!(matches!(heard(None, &["abcd", "efg"], true), Heard::TooLarge));
    }

    #[test]
    fn what_was_used_is_given_back_and_more_than_there_is_is_refused() {
        let used = Arc::new(Used::default());
        let mut place = used.enter().unwrap();
        assert!(place.grow(BYTES_MAX) && !place.grow(1));
        drop(place);
        let places: Vec<_> = (0..OBSERVATIONS_MAX).map(|_| used.enter().unwrap()).collect();
        assert!(used.enter().is_none());
        drop(places);
        assert!(used.enter().unwrap().grow(BYTES_MAX));
    }
}
