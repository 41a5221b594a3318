//! Many items under one key.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use onceward_core::{
    Bulk, BulkDone, BulkError, BulkItem, Engine, Failure, Grant, InvalidBulk, ItemResult, Key,
    Rejection,
};
use parking_lot::Mutex;
use tokio::time::sleep;

/// Does items, and records them.
#[derive(Clone, Default)]
struct Books(Arc<Mutex<Vec<i32>>>);

impl Books {
    /// 0..100 succeed, 100..200 fail for good, 200..300 may be retried, 300.. are unknown.
    fn work(&self) -> impl Fn(i32, Grant) -> Work + Send + Sync + 'static {
        let books = self.clone();
        move |number, _| {
            let books = books.clone();
            Box::pin(async move {
                books.0.lock().push(number);
                match number {
                    ..100 => Ok(number * 2),
                    100..200 => Err(Failure::Keep("no such case".into())),
                    200..300 => Err(Failure::Release("busy".into())),
                    _ => Err(Failure::Unknown("timed out".into())),
                }
            })
        }
    }

    fn done(&self) -> Vec<i32> {
        let mut done = self.0.lock().clone();
        done.sort_unstable();
        done
    }
}

type Work = std::pin::Pin<Box<dyn Future<Output = Result<i32, Failure<String>>> + Send + 'static>>;

fn items(numbers: &[i32]) -> Vec<BulkItem<i32>> {
    numbers.iter().map(|it| BulkItem { id: format!("line-{it}"), input: *it }).collect()
}

fn bulk(engine: Engine) -> Bulk {
    Bulk::new(engine, scope(), Key::new("bulk").unwrap())
}

fn results(done: BulkDone<i32, String>) -> Vec<ItemResult<i32, String>> {
    done.items.into_iter().map(|(_, result)| result).collect()
}

#[tokio::test(start_paused = true)]
async fn each_item_is_done_once_and_the_whole_is_replayed() {
    let (bench, books) = (Bench::new(), Books::default());
    let bulk = bulk(bench.engine());
    let numbers = [1, 100, 200, 300, 2];
    let first = bulk.run(items(&numbers), books.work()).await.unwrap();
    assert!(!first.replayed);
    assert_eq!(first.items[3].0, "line-300");
    let first = results(first);
    assert_eq!(first[0], ItemResult::Succeeded { value: 2 });
    assert_eq!(first[1], ItemResult::Failed { error: "no such case".into() });
    assert_eq!(first[2], ItemResult::Retryable { error: "busy".into() });
    assert!(matches!(first[3], ItemResult::Unknown { .. }));

    let retry = bulk.run(items(&numbers), books.work()).await.unwrap();
    assert!(retry.replayed);
    assert_eq!(results(retry), first);
    assert_eq!(books.done(), [1, 2, 100, 200, 300], "nothing was done twice");
}

#[tokio::test(start_paused = true)]
async fn other_items_under_the_key_are_a_mismatch() {
    let (bench, books) = (Bench::new(), Books::default());
    let bulk = bulk(bench.engine());
    bulk.run(items(&[1, 2]), books.work()).await.unwrap();
    for other in [&[1, 3][..], &[1], &[2, 1], &[1, 2, 3]] {
        let refused = bulk.run(items(other), books.work()).await;
        assert!(
            matches!(refused, Err(BulkError::Rejected(Rejection::Mismatch { .. }))),
            "{other:?}"
        );
    }
    let changed = vec![
        BulkItem { id: "line-1".into(), input: 1 },
        BulkItem { id: "line-2".into(), input: 9 },
    ];
    let refused = bulk.run(changed, books.work()).await;
    assert!(matches!(refused, Err(BulkError::Rejected(Rejection::Mismatch { .. }))));
    assert_eq!(books.done(), [1, 2]);
}

/// The process dies while item 3 is running: the next sender continues, does not repeat finished
/// items, and does not guess about the running one.
#[tokio::test(start_paused = true)]
async fn a_crash_in_the_middle_resumes() {
    let (bench, books) = (Bench::new(), Books::default());
    let numbers = [1, 2, 3, 4];
    let crashed = std::thread::spawn({
        // A runtime stands for a process: when it is dropped, its tasks stop without a word.
        let (store, books) = (bench.store.clone(), books.clone());
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let runtime = runtime.unwrap();
            let engine = Engine::builder(store).policy(policy().build().unwrap()).build();
            let work = move |number, _: Grant| {
                let books = books.clone();
                let work: Work = Box::pin(async move {
                    books.0.lock().push(number);
                    if number == 3 {
                        std::future::pending::<()>().await;
                    }
                    Ok(number * 2)
                });
                work
            };
            runtime.block_on(async {
                let bulk = bulk(engine).concurrency(1);
                let walk = bulk.run(items(&[1, 2, 3, 4]), work);
                let _crash = tokio::time::timeout(Duration::from_millis(50), walk).await;
            });
            runtime.shutdown_background();
        }
    });
    crashed.join().unwrap();
    assert_eq!(books.done(), [1, 2, 3]);

    let bulk = bulk(bench.engine());
    let busy = bulk.run(items(&numbers), books.work()).await;
    assert!(matches!(busy, Err(BulkError::Rejected(Rejection::Running { .. }))));
    sleep(LEASE * 2).await;
    let resumed = results(bulk.run(items(&numbers), books.work()).await.unwrap());
    assert_eq!(resumed[0], ItemResult::Succeeded { value: 2 });
    assert!(matches!(resumed[2], ItemResult::Unknown { .. }), "{resumed:?}");
    assert_eq!(resumed[3], ItemResult::Succeeded { value: 8 });
    assert_eq!(books.done(), [1, 2, 3, 4], "nothing was done twice");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_does_not_stop_the_walk() {
    let (bench, books) = (Bench::new(), Books::default());
    let bulk = bulk(bench.engine());
    let slow = {
        let books = books.clone();
        move |number, _: Grant| {
            let books = books.clone();
            let work: Work = Box::pin(async move {
                sleep(Duration::from_secs(1)).await;
                books.0.lock().push(number);
                Ok(number)
            });
            work
        }
    };
    let walk = bulk.run(items(&[1, 2, 3]), slow);
    assert!(tokio::time::timeout(Duration::from_millis(100), walk).await.is_err());
    sleep(Duration::from_secs(5)).await;
    assert!(bulk.run(items(&[1, 2, 3]), books.work()).await.unwrap().replayed);
    assert_eq!(books.done(), [1, 2, 3]);
}

#[tokio::test]
async fn bad_lists_are_refused_with_what_is_wrong() {
    let (bench, books) = (Bench::new(), Books::default());
    let bulk = bulk(bench.engine());
    let twice = bulk.run(items(&[1, 2, 1]), books.work()).await.unwrap_err();
    assert!(matches!(
        &twice,
        BulkError::Invalid(InvalidBulk::DuplicateItem { id }) if id == "line-1"
    ));
    assert_eq!(twice.to_string(), "the item id \"line-1\" occurs more than once");
    let unnamed = vec![BulkItem { id: String::new(), input: 1 }];
    let unnamed = bulk.run(unnamed, books.work()).await.unwrap_err();
    assert_eq!(unnamed.to_string(), "the item at position 0 has an empty id");
    assert_eq!(books.done(), [0; 0]);
}
