//! Work that goes on when nobody waits for it any more.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// Polls a future in place. One that has said that it must go on to its end, and is dropped
/// before it, is finished in a task of its own.
///
/// Servers drop a handler's future when the client hangs up. A task for every request
/// would prevent that too, at the price of a change of tasks for each; this one costs
/// something only when it happens.
pub(crate) struct Outlive<T> {
    work: Option<Pin<Box<dyn Work<Output = T>>>>,
    goes_on: GoesOn,
}

/// A future that a task can finish.
trait Work: Future + Send {
    fn finish(self: Pin<Box<Self>>, runtime: &Handle);
}

impl<F: Future + Send + 'static> Work for F {
    fn finish(self: Pin<Box<Self>>, runtime: &Handle) {
        runtime.spawn(async move {
            drop(self.await); // nobody waits
        });
    }
}

/// Told by the work itself, from the moment on at which stopping would do harm.
#[derive(Clone, Default)]
pub(crate) struct GoesOn(Arc<AtomicBool>);

impl GoesOn {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T> Outlive<T> {
    pub(crate) fn new<F>(work: impl FnOnce(GoesOn) -> F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let goes_on = GoesOn::default();
        Self { work: Some(Box::pin(work(goes_on.clone()))), goes_on }
    }

    /// How large the work is.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.work.as_deref().map_or(0, size_of_val)
    }
}

impl<T> Future for Outlive<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        // Taken out while it is polled: one that panics is not polled again by `Drop`.
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T> Drop for Outlive<T> {
    fn drop(&mut self) {
        // Without a runtime the process is going down, and the lease lapses as in a crash.
        if let Some(work) = self.work.take()
            && self.goes_on.is_set()
            && let Ok(runtime) = Handle::try_current()
        {
            work.finish(&runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn work_that_goes_on_is_finished_when_its_caller_is_gone() {
        let (go, gone) = oneshot::channel::<()>();
        let (done, finished) = oneshot::channel();
        let mut work = Box::pin(Outlive::new(async move |goes_on| {
            goes_on.set();
            gone.await.unwrap();
            done.send("finished").unwrap();
        }));
        assert!(futures_util::FutureExt::now_or_never(work.as_mut()).is_none());
        drop(work);
        go.send(()).unwrap();
        assert_eq!(finished.await, Ok("finished"));
    }

    #[tokio::test]
    async fn work_that_may_stop_ends_with_its_caller() {
        let (go, gone) = oneshot::channel::<()>();
        let mut work = Box::pin(Outlive::new(async move |_| gone.await));
        assert!(futures_util::FutureExt::now_or_never(work.as_mut()).is_none());
        drop(work);
        assert!(go.is_closed());
    }
}
