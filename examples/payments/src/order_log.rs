//! The shop's log of orders: each order when it is requested, and again when it is paid.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward::OperationId;

/// Log of orders, keyed by operation id, so that recording an order again adds nothing.
#[derive(Debug, Clone, Default)]
pub struct OrderLog(Arc<Mutex<Log>>);

#[derive(Debug, Default)]
struct Log {
    /// `None` keeps the log in memory only.
    file: Option<File>,
    /// The charge of each order; `None` if the order is not paid yet.
    charges: BTreeMap<String, Option<String>>,
}

impl OrderLog {
    /// Opens a log file. It has one line per entry, and each entry is synced to the disk before
    /// the call returns.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut charges = BTreeMap::new();
        let text = if path.exists() { std::fs::read_to_string(path)? } else { String::new() };
        // An incomplete last line is ignored: its call did not return.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            match line.split_once(' ') {
                Some((order, charge)) => charges.insert(order.to_owned(), Some(charge.to_owned())),
                None => charges.insert(line.to_owned(), None),
            };
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        Ok(Self(Arc::new(Mutex::new(Log { file: Some(file), charges }))))
    }

    /// Records that an order was requested.
    pub(crate) fn record_requested(&self, order: OperationId) -> io::Result<()> {
        let mut log = self.lock();
        if log.charges.contains_key(&order.to_string()) {
            return Ok(());
        }
        log.append(&format!("{order}\n"))?;
        log.charges.insert(order.to_string(), None);
        Ok(())
    }

    /// Records the charge that paid an order.
    pub(crate) fn record_paid(&self, order: OperationId, charge: &str) -> io::Result<()> {
        let mut log = self.lock();
        if log.charges.get(&order.to_string()).is_some_and(Option::is_some) {
            return Ok(());
        }
        log.append(&format!("{order} {charge}\n"))?;
        log.charges.insert(order.to_string(), Some(charge.to_owned()));
        Ok(())
    }

    /// The charges of all paid orders, by order.
    pub fn charges(&self) -> BTreeMap<String, String> {
        let log = self.lock();
        let charges = log.charges.iter();
        charges.filter_map(|(order, charge)| Some((order.clone(), charge.clone()?))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn append(&mut self, line: &str) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(line.as_bytes())?;
        file.sync_data()
    }
}
