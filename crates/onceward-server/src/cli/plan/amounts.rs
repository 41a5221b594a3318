//! Rates and sizes on the command line.

use std::str::FromStr;

/// A rate per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate(f64);

/// More than any store can handle, and small enough that ten years of it do not overflow.
const PER_SECOND_MAX: f64 = 1e9;

impl Rate {
    pub(super) const fn per_second(self) -> f64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a rate such as 200/s, 5000/m, 90000/h or 1000000/d");
        let (number, unit) = text.split_once('/').ok_or_else(wrong)?;
        let seconds = match unit.trim() {
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let rate = number / seconds;
        let is_real = rate > 0.0 && rate <= PER_SECOND_MAX;
        is_real.then_some(Self(rate)).ok_or_else(wrong)
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(super) u64);

/// Larger than any reply that is stored.
const BYTES_MAX: f64 = (1_u64 << 40) as f64;

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a size such as 800, 1.5KiB or 2MiB");
        let units = [("KiB", 1_u64 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];
        let of_unit = |(name, size): &(&str, u64)| Some((text.strip_suffix(name)?, *size));
        let (number, unit) = units.iter().find_map(of_unit).unwrap_or((text, 1));
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let bytes = number * unit as f64;
        (0.0..=BYTES_MAX).contains(&bytes).then_some(Self(bytes.ceil() as u64)).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_nonsense_is_refused_by_name() {
        assert_eq!("120/m".parse::<Rate>().unwrap().per_second(), 2.0);
        assert_eq!("1.5KiB".parse::<Size>().unwrap(), Size(1536));
        assert_eq!("800".parse::<Size>().unwrap(), Size(800));
        for wrong in ["200", "x/s", "-1/s", "0/s", "inf/s", "NaN/s", "1/y"] {
            assert!(wrong.parse::<Rate>().unwrap_err().contains(wrong));
        }
        for wrong in ["", "1.5 elephants", "-1", "NaN", "1e99"] {
            assert!(wrong.parse::<Size>().unwrap_err().contains("1.5KiB"));
        }
    }
}
