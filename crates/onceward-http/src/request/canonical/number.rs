//! JSON numbers by their exact decimal value.

use std::io::Write;

/// Most digits of a power of ten that fit into an `i64`, also after [`Number::write`] has moved the
/// decimal point across the text.
const EXPONENT_DIGITS_MAX: usize = 18;

/// A number as written in the text.
pub(super) struct Number<'t> {
    negative: bool,
    /// `0`, or digits without a leading zero.
    integer: &'t str,
    /// Digits, or empty.
    fraction: &'t str,
    /// Digits, or empty.
    exponent: &'t str,
    exponent_negative: bool,
}

impl<'t> Number<'t> {
    /// Reads the number at a position, and returns it with its end.
    pub(super) fn read(text: &'t str, start: usize) -> Option<(Self, usize)> {
        let bytes = text.as_bytes();
        let byte = |at: usize| bytes.get(at).copied();
        let negative = byte(start) == Some(b'-');
        let begin = start + usize::from(negative);
        let mut end = digits(bytes, begin);
        let integer = &text[begin..end];
        if integer.is_empty() || (integer.len() > 1 && byte(begin) == Some(b'0')) {
            return None;
        }
        let mut number =
            Self { negative, integer, fraction: "", exponent: "", exponent_negative: false };
        if byte(end) == Some(b'.') {
            let begin = end + 1;
            end = digits(bytes, begin);
            number.fraction = Some(&text[begin..end]).filter(|digits| !digits.is_empty())?;
        }
        if let Some(b'e' | b'E') = byte(end) {
            let sign = byte(end + 1);
            number.exponent_negative = sign == Some(b'-');
            let begin = end + 1 + usize::from(matches!(sign, Some(b'+' | b'-')));
            end = digits(bytes, begin);
            number.exponent = Some(&text[begin..end]).filter(|digits| !digits.is_empty())?;
        }
        Some((number, end))
    }

    /// Appends the canonical form: see [the module](super).
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut integer = self.integer;
        let mut fraction = without_last_zeros(self.fraction);
        // The power of ten, with all remaining digits read as an integer.
        let mut point = -(fraction.len() as i64);
        if fraction.is_empty() {
            integer = without_last_zeros(self.integer);
            point = (self.integer.len() - integer.len()) as i64;
        } else if integer == "0" {
            integer = "";
            fraction = without_first_zeros(fraction);
        }
        if integer.is_empty() && fraction.is_empty() {
            return out.push(b'0');
        }
        out.push(if self.negative { b'-' } else { b'+' });
        out.extend_from_slice(integer.as_bytes());
        out.extend_from_slice(fraction.as_bytes());
        self.write_exponent(point, out);
        out.push(b';');
    }

    fn write_exponent(&self, point: i64, out: &mut Vec<u8>) {
        let exponent = without_first_zeros(self.exponent);
        if exponent.len() > EXPONENT_DIGITS_MAX {
            let towards_zero = self.exponent_negative != (point < 0);
            out.extend_from_slice(if self.exponent_negative { b"e-" } else { b"e" });
            return write_sum(exponent, point.unsigned_abs(), towards_zero, out);
        }
        let exponent = exponent.bytes().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        let sum = point + if self.exponent_negative { -exponent } else { exponent };
        match sum {
            0 => {}
            1..=9 => out.extend_from_slice(&[b'e', b'0' + sum as u8]),
            _ => write!(out, "e{sum}").expect("writing to memory never fails"),
        }
    }
}

/// Appends `digits + small`, or `digits - small`, which must not be negative.
fn write_sum(digits: &str, small: u64, subtract: bool, out: &mut Vec<u8>) {
    let mut sum: Vec<u8> = digits.bytes().map(|digit| digit - b'0').collect();
    let mut carry = small;
    for digit in sum.iter_mut().rev() {
        if carry == 0 {
            break;
        }
        let (own, theirs) = (u64::from(*digit), carry % 10);
        let next = if subtract { 10 + own - theirs } else { own + theirs };
        *digit = (next % 10) as u8;
        // One to borrow, or one to carry.
        let over = if subtract { next < 10 } else { next >= 10 };
        carry = carry / 10 + u64::from(over);
    }
    if carry > 0 {
        write!(out, "{carry}").expect("writing to memory never fails");
    }
    let leading = if carry > 0 { 0 } else { sum.iter().take_while(|digit| **digit == 0).count() };
    out.extend(sum[leading..].iter().map(|digit| b'0' + digit));
}

/// Returns the end of a run of digits.
fn digits(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len())
}

fn without_first_zeros(digits: &str) -> &str {
    let zeros = digits.bytes().take_while(|digit| *digit == b'0').count();
    &digits[zeros..]
}

fn without_last_zeros(digits: &str) -> &str {
    let zeros = digits.bytes().rev().take_while(|digit| *digit == b'0').count();
    &digits[..digits.len() - zeros]
}
