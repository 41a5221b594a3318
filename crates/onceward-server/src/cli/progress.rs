//! Progress of long work, shown on a terminal only.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

use super::output::count;

/// Time between two updates of the line: smooth to see, and little work for the terminal.
const INTERVAL: Duration = Duration::from_millis(100);
const BAR_WIDTH: usize = 30;

/// One line on standard error, erased when the work is done.
pub(super) struct Progress {
    what: &'static str,
    total: Option<u64>,
    shown: bool,
    last: Option<Instant>,
}

impl Progress {
    /// Starts at 0 of `total`, if that is known.
    pub(super) fn new(what: &'static str, total: Option<u64>) -> Self {
        let shown = stderr().is_terminal();
        Self { what, total: total.filter(|total| *total > 0), shown, last: None }
    }

    /// Shows that `done` are done.
    pub(super) fn at(&mut self, done: u64) {
        let due = self.last.is_none_or(|last| last.elapsed() >= INTERVAL);
        if self.shown && due {
            self.last = Some(Instant::now());
            let _terminal_closed = write!(stderr().lock(), "\r\u{1b}[K{}", self.line(done));
        }
    }

    fn line(&self, done: u64) -> String {
        let Some(total) = self.total else { return format!("{} {}", count(done), self.what) };
        let share = (done as f64 / total as f64).min(1.0);
        let full = (share * BAR_WIDTH as f64) as usize;
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(BAR_WIDTH - full));
        let percent = (share * 100.0) as u8;
        format!("[{bar}] {percent:>3} %  {} of about {} {}", count(done), count(total), self.what)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown && self.last.is_some() {
            let _terminal_closed = write!(stderr().lock(), "\r\u{1b}[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_and_never_passes_its_end() {
        let progress = Progress::new("records", Some(1_000_000));
        assert!(progress.line(999_999).len() < 80, "{}", progress.line(999_999));
        assert!(progress.line(2_000_000).contains("100 %"));
        assert_eq!(Progress::new("records", Some(0)).line(7), "7 records");
    }
}
