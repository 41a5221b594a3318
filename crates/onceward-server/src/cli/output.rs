//! Output: text for people, JSON for programs.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use serde::Serialize;

use super::Fallible;

/// Width that fits every terminal.
const COLUMNS: usize = 80;

/// Prints a line.
pub(super) fn line(text: impl AsRef<str>) -> Fallible {
    Ok(writeln!(io::stdout().lock(), "{}", text.as_ref())?)
}

/// Prints bytes unchanged.
pub(super) fn bytes(bytes: &[u8]) -> Fallible {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Prints a value as JSON.
pub(super) fn json<T: Serialize>(value: &T) -> Fallible {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    line(text)
}

/// Returns whether standard output is a terminal.
pub(super) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// A line without control characters, cut to the width on a terminal.
pub(super) fn fitted(text: &str) -> String {
    let plain = plain(text);
    let plain = plain.trim_end();
    match is_terminal() && plain.chars().count() > COLUMNS {
        true => plain.chars().take(COLUMNS - 1).chain(['…']).collect(),
        false => plain.to_owned(),
    }
}

/// A text without control characters, which a terminal would obey.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

/// A text wrapped into lines that begin with `indent`.
pub(super) fn wrapped(text: &str, indent: &str) -> String {
    let (mut lines, mut current) = (Vec::new(), String::new());
    for word in plain(text).split_whitespace() {
        let longer = indent.len() + current.chars().count() + 1 + word.chars().count();
        if !current.is_empty() && longer > COLUMNS {
            lines.push(format!("{indent}{current}"));
            current.clear();
        }
        if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(word);
    }
    lines.push(format!("{indent}{current}"));
    lines.join("\n")
}

/// A duration in one unit.
pub(super) fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// A number of bytes in one unit.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// A number with thousands separators.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_at_a_glance() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!(size(1_023), "1023 B");
        assert_eq!(size(1_536), "1.5 KiB");
        assert_eq!(age(Duration::from_secs(119)), "119s");
        assert_eq!(age(Duration::from_secs(3 * 86_400)), "3d");
    }

    #[test]
    fn nothing_that_is_shown_moves_the_cursor_or_passes_the_margin() {
        assert_eq!(plain("a\u{1b}[2Jb\n"), "a [2Jb ");
        let wrapped = wrapped(&"word ".repeat(60), "    ");
        assert!(wrapped.lines().all(|line| line.len() <= COLUMNS && line.starts_with("    ")));
        assert_eq!(wrapped.split_whitespace().count(), 60);
    }
}
