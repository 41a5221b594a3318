//! The shop's own book of orders: what was asked for, and what was paid.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward::OperationId;

/// Orders, each under the name of its operation: written down again, it is the same order.
#[derive(Debug, Clone, Default)]
pub struct Orders(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    /// Without one, it lasts as long as the process.
    file: Option<File>,
    /// The charge of each order that is paid.
    paid: BTreeMap<String, Option<String>>,
}

impl Orders {
    /// A book that survives: a line for each entry, on the disk before anybody goes on.
    pub fn at(path: &Path) -> io::Result<Self> {
        let mut paid = BTreeMap::new();
        let text = if path.exists() { std::fs::read_to_string(path)? } else { String::new() };
        // A line that is cut off was never acted upon.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            match line.split_once(' ') {
                Some((order, charge)) => paid.insert(order.to_owned(), Some(charge.to_owned())),
                None => paid.insert(line.to_owned(), None),
            };
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        Ok(Self(Arc::new(Mutex::new(Book { file: Some(file), paid }))))
    }

    /// Somebody wants it.
    pub(crate) fn wanted(&self, order: OperationId) -> io::Result<()> {
        let mut book = self.book();
        if book.paid.contains_key(&order.to_string()) {
            return Ok(());
        }
        book.write(&format!("{order}\n"))?;
        book.paid.insert(order.to_string(), None);
        Ok(())
    }

    /// It is paid by this charge.
    pub(crate) fn paid(&self, order: OperationId, charge: &str) -> io::Result<()> {
        let mut book = self.book();
        if book.paid.get(&order.to_string()).is_some_and(Option::is_some) {
            return Ok(());
        }
        book.write(&format!("{order} {charge}\n"))?;
        book.paid.insert(order.to_string(), Some(charge.to_owned()));
        Ok(())
    }

    /// The charges of all orders that are paid, by order.
    pub fn charges(&self) -> BTreeMap<String, String> {
        let book = self.book();
        let paid = book.paid.iter();
        paid.filter_map(|(order, charge)| Some((order.clone(), charge.clone()?))).collect()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn write(&mut self, line: &str) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(line.as_bytes())?;
        file.sync_data()
    }
}
