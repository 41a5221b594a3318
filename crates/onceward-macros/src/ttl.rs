//! Durations in attributes: `24h`, `7d`, `1h30m`.

use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Ten years: the longest retention of a policy.
const LONGEST: u64 = 10 * 366 * DAY;

/// Parses a duration.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    match seconds(text) {
        None => Err(format!(
            "`{text}` is not a time: write numbers with a unit (s, m, h, d), such as \"24h\" or \"1h30m\""
        )),
        Some(0) => Err(format!("`{text}` keeps nothing: write a time longer than zero")),
        Some(seconds) if seconds > LONGEST => Err(format!(
            "`{text}` is longer than ten years, the longest time that outcomes are kept"
        )),
        Some(seconds) => Ok(Duration::from_secs(seconds)),
    }
}

fn seconds(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(unit_at);
        let unit = tail.chars().next()?;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(seconds_in(unit)?)?)?;
        rest = tail[unit.len_utf8()..].trim_start();
    }
    (!text.trim().is_empty()).then_some(sum)
}

fn seconds_in(unit: char) -> Option<u64> {
    match unit {
        's' => Some(1),
        'm' => Some(MINUTE),
        'h' => Some(HOUR),
        'd' => Some(DAY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_add_up() {
        for (text, seconds) in [("24h", 86_400), ("7d", 604_800), ("1h30m", 5400), ("5s", 5)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse("1d 12h").unwrap(), Duration::from_secs(129_600));
    }

    #[test]
    fn what_is_no_time_is_refused_by_name() {
        for text in
            ["", "24", "h", "1w", "-1h", "1.5h", "24H", "90 s", "99999999999999999999s", "é"]
        {
            assert!(parse(text).unwrap_err().contains(&format!("`{text}` is not a time")));
        }
        assert!(parse("0s").unwrap_err().contains("longer than zero"));
        assert!(parse("4000d").unwrap_err().contains("ten years"));
        assert!(parse("18446744073709551615d").is_err());
    }
}
