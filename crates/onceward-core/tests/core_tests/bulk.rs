//! Many items under one key.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use onceward_core::{
    BeginError, Bulk, BulkDone, BulkError, BulkItem, Done, Effect, Engine, Failure, Grant, Intent,
    InvalidBulk, ItemResult, Key, OperationId, Rejection, RunError, Scope, Settled, StoreError,
    StoreErrorKind,
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

#[tokio::test(start_paused = true)]
async fn other_credentials_do_not_get_the_results_of_a_bulk() {
    let (bench, books) = (Bench::new(), Books::default());
    let bulk = |credentials| {
        let scope = Scope::bound("acme", credentials, "cases.approve").unwrap();
        Bulk::new(bench.engine(), scope, Key::new("bulk").unwrap())
    };
    bulk("3f9a").run(items(&[1, 2]), books.work()).await.unwrap();
    let refused = bulk("77c0").run(items(&[1, 2]), books.work()).await;
    assert!(matches!(refused, Err(BulkError::Rejected(Rejection::Mismatch { .. }))));
    assert!(bulk("3f9a").run(items(&[1, 2]), books.work()).await.unwrap().replayed);
    assert_eq!(books.done(), [1, 2]);
}

#[tokio::test]
async fn a_bulk_over_its_limit_is_refused_and_the_limit_is_named() {
    let (bench, books) = (Bench::new(), Books::default());
    let bulk = bulk(bench.engine()).items_max(2);
    let refused = bulk.run(items(&[1, 2, 3]), books.work()).await.unwrap_err();
    assert_eq!(refused.to_string(), "the bulk has 3 items; at most 2 are allowed");
    assert_eq!(books.done(), [0; 0]);
    bulk.run(items(&[1, 2]), books.work()).await.unwrap();
}

/// Work that claims its items itself, as a transaction does.
type OwnClaim = std::pin::Pin<Box<dyn Future<Output = Result<Done<i32>, RunError<String>>> + Send>>;

/// Does items in a "database" that commits an item's claim, effect and result together.
#[derive(Clone, Default)]
struct Database(Arc<Mutex<Vec<(Intent, i32)>>>);

impl Database {
    /// Does items, except 3: its connection fails in the first run.
    fn each(&self, is_down: bool) -> impl Fn(i32, Intent) -> OwnClaim + Send + Sync + 'static {
        let database = self.clone();
        move |number, intent| {
            let database = database.clone();
            Box::pin(async move {
                let mut rows = database.0.lock();
                let replayed = rows.iter().any(|(known, _)| known.key == intent.key);
                if is_down && number == 3 {
                    let error =
                        StoreError::new("test", StoreErrorKind::Unavailable, Effect::NotApplied);
                    return Err(RunError::Begin(BeginError::Unavailable(error)));
                }
                if !replayed {
                    rows.push((intent, number));
                }
                let operation = OperationId::of_no_record();
                Ok(Done { value: number, operation, replayed, settled: Settled::Durable })
            })
        }
    }
}

/// The items are claimed by the work itself. When one cannot be, the bulk is interrupted; its next
/// run is the same operation, and each item keeps its intent.
#[tokio::test(start_paused = true)]
async fn items_that_claim_themselves_are_done_once_across_an_interruption() {
    let (bench, database) = (Bench::new(), Database::default());
    let bulk = bulk(bench.engine()).concurrency(1);
    let open = bulk.begin(items(&[1, 2, 3, 4])).await.unwrap();
    let operation = open.operation();
    let listed: Vec<_> = open.items().map(|(id, input)| (id.to_owned(), *input)).collect();
    assert_eq!(listed[3], ("line-4".to_owned(), 4));
    let stopped = open.run_each(database.each(true)).await.unwrap_err();
    assert!(matches!(stopped, BulkError::Interrupted { item, .. } if item == "line-3"));

    sleep(LEASE * 2).await;
    let open = bulk.begin(items(&[1, 2, 3, 4])).await.unwrap();
    assert_eq!(open.operation(), operation);
    let done = open.run_each(database.each(false)).await.unwrap();
    assert_eq!((done.operation, done.replayed, done.items.len()), (operation, false, 4));
    let numbers: Vec<_> = database.0.lock().iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, [1, 2, 3, 4], "nothing was done twice");

    let replay = bulk.begin(items(&[1, 2, 3, 4])).await.unwrap();
    assert_eq!(replay.operation(), operation);
    assert!(replay.run_each(database.each(true)).await.unwrap().replayed);
}

/// An item whose own claim is refused as unknown does not stop the others, and a replay asks again.
#[tokio::test(start_paused = true)]
async fn an_unknown_item_is_asked_about_again_by_every_replay() {
    let (bench, bulk_operation) = (Bench::new(), OperationId::of_no_record());
    let bulk = bulk(bench.engine());
    let evidence = Arc::new(Mutex::new(false));
    let each = || {
        let evidence = Arc::clone(&evidence);
        move |number, _: Intent| {
            let is_known = number != 2 || *evidence.lock();
            let answer: OwnClaim = Box::pin(async move {
                let operation = bulk_operation;
                match is_known {
                    true => Ok(Done {
                        value: number,
                        operation,
                        replayed: false,
                        settled: Settled::Durable,
                    }),
                    false => Err(RunError::Rejected(Rejection::Unknown { operation })),
                }
            });
            answer
        }
    };
    let run = async || {
        let open = bulk.begin(items(&[1, 2, 3])).await.unwrap();
        results(open.run_each(each()).await.unwrap())
    };
    let first = run().await;
    assert!(matches!(first[1], ItemResult::Unknown { .. }));
    assert_eq!(first[2], ItemResult::Succeeded { value: 3 });
    assert_eq!(run().await, first);
    *evidence.lock() = true;
    assert_eq!(run().await[1], ItemResult::Succeeded { value: 2 });
}

/// Between `begin` and the first item the caller may fail, and the bulk is not lost.
#[tokio::test(start_paused = true)]
async fn an_open_bulk_that_is_dropped_is_left_to_the_next_sender() {
    let (bench, books) = (Bench::new(), Books::default());
    let bulk = bulk(bench.engine());
    drop(bulk.begin(items(&[1])).await.unwrap());
    let busy = bulk.run(items(&[1]), books.work()).await;
    assert!(matches!(busy, Err(BulkError::Rejected(Rejection::Running { .. }))));
    sleep(LEASE * 2).await;
    let done = bulk.run(items(&[1]), books.work()).await.unwrap();
    assert_eq!((done.replayed, books.done()), (false, vec![1]));
}
