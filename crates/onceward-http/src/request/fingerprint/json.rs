//! Fingerprints of JSON without a request, with the same canonical form.

use onceward_core::{Difference, Fingerprint, Part};
use sha2::{Digest, Sha256};

use crate::request::canonical::{Selection, canonicalize, part_names};

/// Number of these hashing rules; a change of the hashed bytes needs a new number.
const JSON_V1: u8 = 17;

/// Prefix of the hashed bytes.
#[derive(Clone, Copy)]
enum Domain {
    Canonical = 1,
    /// Text without a canonical form: members that occur twice, lone surrogates, too deep.
    Raw = 2,
}

/// Returns the digest of a JSON text, and its parts for explaining a mismatch.
///
/// Two texts have equal digests exactly if they have the same meaning: member order, blanks and
/// escapes do not count, and numbers are compared by their exact decimal value. A text that is not
/// clean JSON equals only itself.
pub fn json_fingerprint(text: &[u8]) -> (Fingerprint, Vec<Part>) {
    let (mut bytes, mut parts) = (vec![Domain::Canonical as u8], Vec::new());
    if canonicalize(text, &Selection::default(), &mut bytes, Some(&mut parts)).is_err() {
        bytes = [&[Domain::Raw as u8], text].concat();
    }
    (Fingerprint::from_digest(JSON_V1, Sha256::digest(&bytes).into()), parts)
}

/// Returns the JSON pointers of the parts in which a refused text differs from the first one.
/// Never a value.
pub fn json_differences(text: &[u8], difference: Difference) -> Vec<String> {
    let names = part_names(text, &Selection::default()).unwrap_or_default();
    let mut differing: Vec<String> =
        difference.changed().filter_map(|position| names.get(position)).cloned().collect();
    if difference.missing() > 0 {
        differing.push(format!("({} fewer)", super::fields(difference.missing())));
    }
    differing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Fingerprint {
        json_fingerprint(text.as_bytes()).0
    }

    #[test]
    fn equal_meaning_gives_equal_fingerprints() {
        assert_eq!(of(r#"{"a":100,"b":"x"}"#), of(r#" { "b": "\u0078", "a": 1e2 } "#));
        assert_ne!(of("9007199254740993"), of("9007199254740992"));
        assert_ne!(of("null"), of("{}"));
        assert_ne!(of("1"), of(r#""1""#));
    }

    #[test]
    fn a_text_that_is_not_clean_equals_only_itself() {
        let twice = r#"{"a":1,"a":1}"#;
        assert_eq!(of(twice), of(twice));
        assert_ne!(of(twice), of(r#"{"a":1}"#));
    }
}
