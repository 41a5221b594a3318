//! The work of a process: claims, effects and completions, each of them reported.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::{Claim, ClaimRequest, Fence, Fenced, FullStore, Holder, Retention, Settlement};

use super::ledger::{Try, Word, body};
use crate::calls::{DAY, id, outcome, request, settle};

const TASKS: usize = 8;

/// Works until it is killed, on a runtime of its own. Purges regularly.
pub(crate) fn work<S: FullStore>(
    open: impl Future<Output = S>,
    life: u32,
    lease: Duration,
    purge_every: Duration,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store: Arc<dyn FullStore> = Arc::new(open.await);
        let worker = |task| Worker { store: Arc::clone(&store), life, task, lease, tries: 0 };
        let tasks: Vec<_> = (0..TASKS).map(|task| tokio::spawn(worker(task).work())).collect();
        loop {
            store.purge(50).await.unwrap();
            tokio::time::sleep(purge_every).await;
            assert!(tasks.iter().all(|task| !task.is_finished()));
        }
    });
}

/// One of several tasks of a process.
struct Worker {
    store: Arc<dyn FullStore>,
    life: u32,
    task: usize,
    /// The lease of its claims, which is over when the next life begins.
    lease: Duration,
    tries: usize,
}

impl Worker {
    async fn work(mut self) {
        for index in 0.. {
            let key = self.key(self.life, index);
            self.attempt(&key).await;
            // Tries a key of an earlier life again.
            let earlier = self.life.checked_sub(1 + index as u32 % 3);
            if index % 5 == 4
                && let Some(earlier) = earlier
            {
                let old = self.key(earlier, index % 40);
                self.attempt(&old).await;
            }
            // Completes some keys with a short retention, so that there is something to purge.
            if index % 7 == 6 {
                self.short_lived(&format!("short-{key}")).await;
            }
        }
    }

    fn key(&self, life: u32, index: usize) -> String {
        format!("{life}-{}-{index}", self.task)
    }

    async fn attempt(&mut self, key: &str) {
        self.tries += 1;
        let (who, store) = (Try::new(self.life, self.task, self.tries), &self.store);
        let request = ClaimRequest { owner: who.owner(), lease: self.lease, ..request(key) };
        let say = |word: Word, fence| say(&word.line(key, who, fence, request.owner));
        say(Word::Claiming, Fence(0));
        match store.claim(&request).await.unwrap() {
            Claim::Granted { lease, .. } => {
                let fence = lease.fence;
                say(Word::Claimed, fence);
                say(Word::Effect, fence);
                say(Word::Completing, fence);
                let holder = Holder { owner: request.owner, fence };
                let done = Settlement::Complete(outcome(body(key, fence)));
                let settled = settle(&**store, key, holder, done, DAY).await.unwrap();
                assert_eq!(settled, Fenced::Applied(()), "{key}");
                say(Word::Completed, fence);
            }
            Claim::Completed { outcome, .. } => {
                let (word, fence) = (Word::Replayed, self.met(key, who, Word::Replayed).await);
                assert_eq!(outcome.bytes, body(key, fence).as_bytes(), "{key}: {word:?}");
            }
            Claim::Unknown { .. } => drop(self.met(key, who, Word::Unknown).await),
            other => panic!("{key}: {other:?}"),
        }
    }

    /// Reports a record that was found, with its fence and owner.
    async fn met(&self, key: &str, who: Try, word: Word) -> Fence {
        let record = self.store.get(&id(key)).await.unwrap().unwrap();
        say(&word.line(key, who, record.fence, record.owner));
        record.fence
    }

    async fn short_lived(&self, key: &str) {
        let request = request(key);
        let Claim::Granted { lease, .. } = self.store.claim(&request).await.unwrap() else {
            return;
        };
        let holder = Holder { owner: request.owner, fence: lease.fence };
        let keep = Duration::from_millis(20);
        let short = Retention { keep, tombstone: keep };
        let done = Settlement::Complete(outcome(key));
        let _ = settle(&*self.store, key, holder, done, short).await.unwrap();
    }
}

fn say(line: &str) {
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}
