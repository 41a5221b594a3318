//! Durations, sizes and lists in English, and texts of the configuration in Markdown.

use std::time::Duration;

use crate::config;

/// A duration in the largest unit that divides it, such as `24 hours` or `7 days`.
pub(super) fn duration(time: Duration) -> String {
    const UNITS: [(u128, &str); 4] =
        [(86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second")];
    let ms = time.as_millis();
    // One day is 24 hours, as in the promises of most APIs.
    let fits = |(unit, name): &&(u128, &str)| {
        ms >= *unit && ms.is_multiple_of(*unit) && (*name != "day" || ms > *unit)
    };
    match UNITS.iter().find(fits) {
        Some((unit, name)) if ms == *unit => format!("1 {name}"),
        Some((unit, name)) => format!("{} {name}s", ms / unit),
        None => format!("{ms} ms"),
    }
}

/// A size, such as `10 MiB`.
pub(super) fn size(bytes: u64) -> String {
    let text = config::Bytes(bytes).to_string();
    match text.find(|it: char| it.is_ascii_alphabetic()) {
        Some(unit) => format!("{} {}", &text[..unit], &text[unit..]),
        None => format!("{text} bytes"),
    }
}

/// A number with separators, such as `1,000,000`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// `a, b and c`.
pub(super) fn list(words: &[String]) -> String {
    joined(words, "and")
}

/// `a, b or c`.
pub(super) fn either(words: &[String]) -> String {
    joined(words, "or")
}

fn joined(words: &[String], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

/// A code span, also within a table. Texts of the configuration cannot leave it.
pub(super) fn code(text: &str) -> String {
    let text = line(text).replace('|', "\\|");
    let longest = text.split(|it| it != '`').map(str::len).max().unwrap_or_default();
    match longest {
        0 => format!("`{text}`"),
        _ => {
            let fence = "`".repeat(longest + 1);
            format!("{fence} {text} {fence}")
        }
    }
}

/// Code spans in a list.
pub(super) fn codes<'a>(texts: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    texts.into_iter().map(|text| code(text)).collect()
}

/// A header name in its usual spelling, such as `Idempotency-Key`.
pub(super) fn header(name: &str) -> String {
    let capital = |part: &str| match part.split_at_checked(1) {
        Some((first, rest)) => first.to_ascii_uppercase() + rest,
        None => String::new(),
    };
    name.split('-').map(capital).collect::<Vec<_>>().join("-")
}

/// A text in one line.
pub(super) fn line(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_unit() {
        for (seconds, text) in [
            (1, "1 second"),
            (90, "90 seconds"),
            (60, "1 minute"),
            (5_400, "90 minutes"),
            (86_400, "24 hours"),
            (2 * 86_400, "2 days"),
            (366 * 86_400, "366 days"),
        ] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
        assert_eq!(duration(Duration::from_millis(1_500)), "1500 ms");
        assert_eq!([7, 1_000, 12_345_678].map(count), ["7", "1,000", "12,345,678"]);
        assert_eq!((size(10 << 20), size(1_000)), ("10 MiB".into(), "1000 bytes".into()));
    }

    #[test]
    fn no_text_of_a_configuration_leaves_its_code_span() {
        assert_eq!(code("/a"), "`/a`");
        assert_eq!(code("/a|b\n# c"), "`/a\\|b # c`");
        assert_eq!(code("/a``b`"), "``` /a``b` ```");
        assert_eq!(header("x-api-key"), "X-Api-Key");
        assert_eq!(list(&["a".into(), "b".into(), "c".into()]), "a, b and c");
    }
}
