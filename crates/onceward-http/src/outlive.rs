//! Work that goes on when nobody waits for it any more.

use std::pin::Pin;
use std::task::{Context, Poll};

/// Polls a future in place; dropped before its end, it is finished in a task of its own.
///
/// Servers drop a handler's future when the client hangs up. A task for every request
/// would prevent that too, at the price of a change of tasks for each; this one costs
/// something only when it happens.
pub(crate) struct Outlive<F: Future + Send + 'static> {
    work: Option<Pin<Box<F>>>,
}

impl<F: Future + Send + 'static> Outlive<F> {
    pub(crate) fn new(work: F) -> Self {
        Self { work: Some(Box::pin(work)) }
    }
}

impl<F: Future + Send + 'static> Future for Outlive<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        // Taken out while it is polled: one that panics is not polled again by `Drop`.
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<F: Future + Send + 'static> Drop for Outlive<F> {
    fn drop(&mut self) {
        // Without a runtime the process is going down, and the lease lapses as in a crash.
        if let Some(work) = self.work.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                let _nobody_waits = work.await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn work_whose_caller_is_gone_is_finished() {
        let (go, gone) = oneshot::channel::<()>();
        let (done, finished) = oneshot::channel();
        let mut work = Box::pin(Outlive::new(async move {
            gone.await.unwrap();
            done.send("finished").unwrap();
        }));
        assert!(futures_util::FutureExt::now_or_never(work.as_mut()).is_none());
        drop(work);
        go.send(()).unwrap();
        assert_eq!(finished.await, Ok("finished"));
    }

    #[tokio::test]
    async fn work_that_nobody_polled_is_finished_too() {
        let (done, finished) = oneshot::channel();
        drop(Outlive::new(async move { done.send(()).unwrap() }));
        assert_eq!(finished.await, Ok(()));
    }
}
