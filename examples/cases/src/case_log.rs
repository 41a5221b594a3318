//! The cases in memory, and in a log file if there is one.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use onceward::http::PgTransaction;
use onceward::{BoxError, BulkError, Failure, Grant, OpenBulk, OperationId};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::bulk_item::{Decision, ItemRow, ItemState, Line, NewBulk, Owner, StoredBulk, decide};
use crate::case::{Case, Refusal, Step};
use crate::case_store::CaseStore;
use crate::checkpoint::{Checkpoint, CheckpointHook};

/// The cases and the results of bulks. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct CaseLog {
    log: Arc<Mutex<Log>>,
    on_checkpoint: CheckpointHook,
}

#[derive(Debug, Default)]
struct Log {
    /// `None` keeps everything in memory only.
    file: Option<File>,
    /// The case with the id 1 is the first one.
    cases: Vec<Case>,
    bulks: BTreeMap<OperationId, Bulk>,
    /// The bulk of each request.
    requests: BTreeMap<OperationId, OperationId>,
    /// Items that this process is working on. No other process has the file.
    running: HashSet<(OperationId, String)>,
}

#[derive(Debug)]
struct Bulk {
    owner: Owner,
    items: Vec<ItemRow>,
}

/// A line of the file. It is one step: after a crash it is there, or it is not.
#[derive(Debug, Serialize, Deserialize)]
enum Entry {
    /// A case was created or changed.
    Case(Case),
    /// A request for a bulk came; the first one has the items.
    Bulk { operation: OperationId, request: OperationId, owner: Owner, items: Vec<ItemRow> },
    /// An item was decided about, and its case was changed if it was approved.
    Item { bulk: OperationId, row: ItemRow, case: Option<Case> },
}

impl CaseLog {
    pub(crate) fn in_memory(on_checkpoint: CheckpointHook) -> Self {
        Self { log: Arc::default(), on_checkpoint }
    }

    /// Opens a log file, or creates it. Only one process may have it open.
    pub(crate) fn open(path: &Path, on_checkpoint: CheckpointHook) -> io::Result<Self> {
        let text = if path.exists() { std::fs::read_to_string(path)? } else { String::new() };
        let mut log = Log::default();
        // The process died while it wrote an incomplete last line, before any response.
        let complete = text.rfind('\n').map_or(0, |end| end + 1);
        for (number, line) in text[..complete].lines().enumerate() {
            let entry = serde_json::from_str(line).map_err(|error| {
                let why = format!("line {} of {}: {error}", number + 1, path.display());
                io::Error::new(io::ErrorKind::InvalidData, why)
            })?;
            log.apply(entry);
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        file.set_len(complete as u64)?;
        log.file = Some(file);
        Ok(Self { log: Arc::new(Mutex::new(log)), on_checkpoint })
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the log, on a thread that may wait for the disk.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Log) -> T + Send + 'static,
    ) -> T {
        let log = self.clone();
        let changed = spawn_blocking(move || change(&mut log.lock())).await;
        changed.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }
}

impl Log {
    /// Writes an entry, and then applies it.
    ///
    /// If that fails the process ends: what the file has then is known only when it is read again.
    /// So there is one recovery, that of a crash.
    fn write(&mut self, entry: Entry) {
        if let Some(file) = &mut self.file {
            let mut line = serde_json::to_vec(&entry).expect("names and numbers");
            line.push(b'\n');
            if let Err(error) = file.write_all(&line).and_then(|()| file.sync_data()) {
                eprintln!("the log of cases cannot be written: {error}; start the service again");
                std::process::abort();
            }
        }
        self.apply(entry);
    }

    fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Case(case) => self.put(case),
            Entry::Bulk { operation, request, owner, items } => {
                self.requests.insert(request, operation);
                self.bulks.entry(operation).or_insert(Bulk { owner, items });
            }
            Entry::Item { bulk, row, case } => {
                if let Some(known) = self.row(bulk, &row.client_item_id) {
                    *known = row;
                }
                case.into_iter().for_each(|case| self.put(case));
            }
        }
    }

    fn put(&mut self, case: Case) {
        match self.cases.iter_mut().find(|known| known.id == case.id) {
            Some(known) => *known = case,
            None => self.cases.push(case),
        }
    }

    fn case(&self, id: i64) -> Option<Case> {
        self.cases.iter().find(|case| case.id == id).cloned()
    }

    fn row(&mut self, bulk: OperationId, item: &str) -> Option<&mut ItemRow> {
        let bulk = self.bulks.get_mut(&bulk)?;
        bulk.items.iter_mut().find(|row| row.client_item_id == item)
    }

    /// Approves the case of an item, unless the item has a final result. An earlier owner of the
    /// item can have died, or can be late, after the result was written.
    fn approve(&mut self, bulk: OperationId, line: &Line) {
        let case = self.case(line.case_id);
        let Some(row) = self.row(bulk, &line.client_item_id) else { return };
        if row.state.is_final() {
            return;
        }
        let mut row = row.clone();
        let decision = decide(line, case);
        row.decide(&decision);
        let case = match decision {
            Decision::Approve(case) => Some(case),
            Decision::Refuse { .. } => None,
        };
        self.write(Entry::Item { bulk, row, case });
    }
}

#[async_trait]
impl CaseStore for CaseLog {
    async fn create(&self, _: Option<&PgTransaction>, title: String) -> Result<Case, BoxError> {
        let create = |log: &mut Log| {
            let id = i64::try_from(log.cases.len()).expect("they are in memory") + 1;
            let case = Case::draft(id, title);
            log.write(Entry::Case(case.clone()));
            case
        };
        Ok(self.change(create).await)
    }

    async fn find(&self, id: i64) -> Result<Option<Case>, BoxError> {
        Ok(self.lock().case(id))
    }

    async fn take(
        &self,
        _: Option<&PgTransaction>,
        id: i64,
        step: Step,
        expected_version: i64,
    ) -> Result<Option<Result<Case, Refusal>>, BoxError> {
        let take = move |log: &mut Log| {
            let mut case = log.case(id)?;
            let taken = case.take(step, Some(expected_version));
            if taken.is_ok() {
                log.write(Entry::Case(case.clone()));
            }
            Some(taken.map(|()| case))
        };
        Ok(self.change(take).await)
    }

    async fn begin_bulk(&self, bulk: NewBulk) -> Result<(), BoxError> {
        let NewBulk { operation, request, owner, lines } = bulk;
        let begin = move |log: &mut Log| {
            let items = match log.bulks.contains_key(&operation) {
                true => Vec::new(),
                false => lines.iter().map(ItemRow::pending).collect(),
            };
            log.write(Entry::Bulk { operation, request, owner, items });
        };
        self.change(begin).await;
        Ok(())
    }

    /// The claim of an item and its line in the log are two steps. So an item that was running when
    /// the process died is taken over, and its line is recognised.
    async fn run_bulk(&self, bulk: OpenBulk<Line>) -> Result<(), BulkError> {
        let (log, operation) = (self.clone(), bulk.operation());
        let approve = move |line: Line, _: Grant| {
            let log = log.clone();
            async move {
                let item = line.client_item_id.clone();
                log.lock().running.insert((operation, item.clone()));
                log.on_checkpoint.reached(Checkpoint::ItemClaimed, &item).await;
                log.change(move |log| log.approve(operation, &line)).await;
                log.on_checkpoint.reached(Checkpoint::ItemChanged, &item).await;
                log.lock().running.remove(&(operation, item));
                Ok::<(), Failure<String>>(())
            }
        };
        bulk.run(approve).await.map(drop)
    }

    async fn bulk(&self, id: OperationId) -> Result<Option<StoredBulk>, BoxError> {
        let log = self.lock();
        let operation = log.requests.get(&id).copied().unwrap_or(id);
        let Some(Bulk { owner, items }) = log.bulks.get(&operation) else { return Ok(None) };
        let (owner, mut items) = (owner.clone(), items.clone());
        for row in items.iter_mut().filter(|row| row.state == ItemState::Pending) {
            if log.running.contains(&(operation, row.client_item_id.clone())) {
                row.state = ItemState::Running;
            }
        }
        Ok(Some(StoredBulk { operation, owner, items }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> io::Result<CaseLog> {
        CaseLog::open(path, CheckpointHook::none())
    }

    async fn titles(log: &CaseLog) -> Vec<String> {
        log.lock().cases.iter().map(|case| case.title.clone()).collect()
    }

    #[tokio::test]
    async fn a_line_that_was_cut_off_never_was_and_the_next_one_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cases");
        let log = open(&path).unwrap();
        log.create(None, "first".into()).await.unwrap();
        log.create(None, "second".into()).await.unwrap();
        let length = std::fs::metadata(&path).unwrap().len();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 3).unwrap();
        let log = open(&path).unwrap();
        assert_eq!(titles(&log).await, ["first"]);
        log.create(None, "third".into()).await.unwrap();
        assert_eq!(titles(&open(&path).unwrap()).await, ["first", "third"]);
    }

    #[tokio::test]
    async fn a_damaged_line_is_named_and_nothing_is_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cases");
        std::fs::write(&path, "{\"Case\":\n").unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.starts_with(&format!("line 1 of {}", path.display())), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"Case\":\n");
    }
}
