//! Work that must finish although its client has disconnected.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// Polls a future in place. If it is dropped after it has set [`MustFinish`], it is finished in a task
/// of its own.
///
/// Servers drop a handler's future when the client disconnects. A task for every request would
/// prevent that too, but costs a task switch for each; this costs something only if it happens.
pub(crate) struct FinishInBackground<T> {
    work: Option<Pin<Box<dyn Work<Output = T>>>>,
    must_finish: MustFinish,
}

/// A future that a task can finish.
trait Work: Future + Send {
    fn finish(self: Pin<Box<Self>>, runtime: &Handle);
}

impl<F: Future + Send + 'static> Work for F {
    fn finish(self: Pin<Box<Self>>, runtime: &Handle) {
        runtime.spawn(async move {
            drop(self.await); // the client is gone
        });
    }
}

/// Flag that the work sets as soon as stopping it would do harm.
#[derive(Clone, Default)]
pub(crate) struct MustFinish(Arc<AtomicBool>);

impl MustFinish {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T> FinishInBackground<T> {
    pub(crate) fn new<F>(work: impl FnOnce(MustFinish) -> F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let must_finish = MustFinish::default();
        Self { work: Some(Box::pin(work(must_finish.clone()))), must_finish }
    }

    /// Size of the future.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.work.as_deref().map_or(0, size_of_val)
    }
}

impl<T> Future for FinishInBackground<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        // Taken out while it is polled: after a panic, `Drop` does not poll it again.
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T> Drop for FinishInBackground<T> {
    fn drop(&mut self) {
        // Without a runtime the process is stopping, and the lease lapses as in a crash.
        if let Some(work) = self.work.take()
            && self.must_finish.is_set()
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
    async fn work_that_must_finish_is_finished_after_its_caller_is_gone() {
        let (go, gone) = oneshot::channel::<()>();
        let (done, finished) = oneshot::channel();
        let mut work = Box::pin(FinishInBackground::new(async move |must_finish: MustFinish| {
            must_finish.set();
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
        let mut work = Box::pin(FinishInBackground::new(async move |_| gone.await));
        assert!(futures_util::FutureExt::now_or_never(work.as_mut()).is_none());
        drop(work);
        assert!(go.is_closed());
    }
}
