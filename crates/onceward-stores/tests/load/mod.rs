//! Clients on several engines, with a ledger of their effects apart from the stores, judged by the
//! history checker.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onceward_core::{
    Begin, BeginError, Ended, Engine, Fence, Fingerprint, FullStore, Identity, Intent, Key, Policy,
    Rejection, Settled, Timestamp,
};
use onceward_testkit::history::{
    Answer, Attempt, Event, Expectations, History, Invariant, Outcome, Violation, check,
};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::calls::{outcome, replay, scope};

/// A load on some stores, and its history.
pub(crate) struct Load {
    engines: Vec<Engine>,
    history: History,
    attempts: AtomicU64,
    /// Outcomes that clients were told are stored.
    told: Mutex<HashMap<String, Vec<u8>>>,
    stopped: AtomicBool,
    work: Duration,
}

impl Load {
    /// Creates an engine on each of these stores. Work takes about `work`.
    pub(crate) fn on(
        stores: impl IntoIterator<Item = Arc<dyn FullStore>>,
        lease: Duration,
        work: Duration,
    ) -> Arc<Self> {
        let policy = Policy::builder().lease(lease).wait(Duration::ZERO).build().unwrap();
        let engine =
            |store: Arc<dyn FullStore>| Engine::builder(store).policy(policy.clone()).build();
        Arc::new(Self {
            engines: stores.into_iter().map(engine).collect(),
            history: History::default(),
            attempts: AtomicU64::new(0),
            told: Mutex::default(),
            stopped: AtomicBool::new(false),
            work,
        })
    }

    /// Starts to work on new keys, each sent by two clients, until `stop`.
    pub(crate) fn begin(self: &Arc<Self>, tasks: usize) -> Vec<JoinHandle<()>> {
        let task = |task: usize| {
            let load = Arc::clone(self);
            tokio::spawn(async move {
                for index in 0.. {
                    if load.stopped.load(Ordering::SeqCst) {
                        break;
                    }
                    let key = format!("{task}-{index}");
                    tokio::join!(load.client(task, &key), load.client(task + 1, &key));
                }
            })
        };
        (0..tasks).map(task).collect()
    }

    /// Ends the load once all calls are answered.
    pub(crate) async fn stop(&self, tasks: Vec<JoinHandle<()>>) {
        self.stopped.store(true, Ordering::SeqCst);
        for task in tasks {
            task.await.unwrap();
        }
    }

    /// Sends an intent until its outcome is known, or known to be unknown.
    pub(crate) async fn client(&self, engine: usize, key: &str) {
        let engine = &self.engines[engine % self.engines.len()];
        for _ in 0..2_000 {
            match self.attempt(engine, key).await {
                Answer::Running | Answer::Unavailable | Answer::Released => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                _ => return,
            }
        }
        panic!("{key}: no answer in a long time");
    }

    /// Sends an intent several times, regardless of the responses.
    pub(crate) async fn bounded(&self, engine: usize, key: &str, times: usize) {
        let engine = &self.engines[engine % self.engines.len()];
        for _ in 0..times {
            self.attempt(engine, key).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn attempt(&self, engine: &Engine, key: &str) -> Answer {
        let attempt = Attempt(self.attempts.fetch_add(1, Ordering::SeqCst));
        let intent = intent(key);
        let record = Identity::unkeyed().record_id(&intent.scope, &intent.key);
        self.history.push(Event::Sent { attempt, record });
        let answer = match engine.begin(&intent).await {
            Ok(Begin::Execute(permit)) => self.execute(attempt, key, permit).await,
            Ok(Begin::Replay(replay)) => Answer::Replay(result(key, &replay.outcome.bytes)),
            Ok(Begin::Reject(Rejection::Running { .. })) => Answer::Running,
            Ok(Begin::Reject(Rejection::Unknown { .. })) => Answer::Unknown,
            Ok(other) => panic!("{key}: {other:?}"),
            Err(BeginError::Unavailable(_)) => Answer::Unavailable,
            Err(other) => panic!("{key}: {other:?}"),
        };
        let (fingerprint, told) = (intent.fingerprint, answer.clone());
        self.history.push(Event::Answered { attempt, record, fingerprint, answer: told });
        answer
    }

    async fn execute(&self, attempt: Attempt, key: &str, permit: onceward_core::Permit) -> Answer {
        tokio::time::sleep(self.work).await;
        let fence = permit.grant().fence();
        if permit.grant().check().is_err() {
            return match permit.release().await {
                Settled::Durable => Answer::Released,
                _ => Answer::NoWord,
            };
        }
        let intent = intent(key);
        let record = Identity::unkeyed().record_id(&intent.scope, &intent.key);
        self.history.push(Event::Effect { record, fence, attempt });
        let body = format!("{} {} {key}", fence.0, attempt.0);
        match permit.complete(outcome(&body)).await {
            Settled::Durable => {
                self.told.lock().insert(key.to_owned(), body.clone().into_bytes());
                Answer::First { result: result(key, body.as_bytes()), durable: false }
            }
            Settled::Pending => {
                Answer::First { result: result(key, body.as_bytes()), durable: false }
            }
            Settled::Superseded | Settled::Missing => Answer::NoWord,
        }
    }

    /// Violations of the invariants.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let elsewhere = Expectations { claims_elsewhere: true, ..Expectations::default() };
        check(&self.history.events(), &[], Timestamp::default(), elsewhere)
    }

    /// Number of effects that were not the first of their key.
    pub(crate) fn duplicates(&self) -> usize {
        self.violations().iter().filter(|it| it.invariant == Invariant::I1OneEffect).count()
    }

    /// Number of keys that clients were told are done.
    pub(crate) fn completed(&self) -> usize {
        self.told.lock().len()
    }

    /// Waits until this many more keys are done.
    pub(crate) async fn goes_on(&self, keys: usize) {
        let before = self.completed();
        while self.completed() < before + keys {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Answer) -> bool) -> u64 {
        let is = |event: &Event| matches!(event, Event::Answered { answer, .. } if wanted(answer));
        self.history.count(is)
    }

    /// Checks that each key has one effect, and that the store has what clients were told.
    pub(crate) async fn assert_held(&self, store: &dyn FullStore) {
        let violations = self.violations();
        assert!(violations.is_empty(), "{} violations, {}", violations.len(), violations[0]);
        let told = self.told.lock().clone();
        for (key, body) in told {
            let replayed = replay(store, &key).await;
            assert_eq!(replayed.as_bytes(), body, "{key}");
        }
    }
}

fn intent(key: &str) -> Intent {
    Intent::new(scope(), Key::new(key).unwrap(), Fingerprint::of_parts(&[b"request"]))
}

/// An outcome whose text begins with the fence.
fn result(key: &str, bytes: &[u8]) -> Outcome {
    let intent = intent(key);
    let text = String::from_utf8_lossy(bytes);
    let fence = Fence(text.split(' ').next().unwrap().parse().unwrap());
    Outcome {
        record: Identity::unkeyed().record_id(&intent.scope, &intent.key),
        fingerprint: intent.fingerprint,
        fence,
        ended: Ended::Completed,
        bytes: bytes.to_vec(),
    }
}
