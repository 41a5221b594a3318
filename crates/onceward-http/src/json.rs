//! Fingerprints of JSON that comes without a request, by the same exact rules.

use onceward_core::{Difference, Fingerprint, Part};
use sha2::{Digest, Sha256};

use crate::canonical::{Selection, canonicalize, part_names};

/// Number of these rules; a change of what is hashed needs a new one.
const JSON_V1: u8 = 17;

/// What kind of bytes follow in the hash.
#[derive(Clone, Copy)]
enum Domain {
    Canonical = 1,
    /// Text that has no canonical form: members that occur twice, lone surrogates, too deep.
    Raw = 2,
}

/// The digest of a JSON text, and its parts for explaining a mismatch.
///
/// Equal exactly when two texts mean the same: member order, blanks and escapes do not
/// matter, and numbers are compared by their exact decimal value. A text that is not clean
/// JSON is equal to itself only.
pub fn json_fingerprint(text: &[u8]) -> (Fingerprint, Vec<Part>) {
    let (mut bytes, mut parts) = (vec![Domain::Canonical as u8], Vec::new());
    if canonicalize(text, &Selection::default(), &mut bytes, Some(&mut parts)).is_err() {
        bytes = [&[Domain::Raw as u8], text].concat();
    }
    (Fingerprint::from_digest(JSON_V1, Sha256::digest(&bytes).into()), parts)
}

/// Names the parts of a refused JSON text that differ from the first, as JSON pointers.
/// Never a value.
pub fn json_differences(text: &[u8], difference: Difference) -> Vec<String> {
    let names = part_names(text, &Selection::default()).unwrap_or_default();
    let mut told: Vec<String> =
        difference.changed().filter_map(|position| names.get(position)).cloned().collect();
    if difference.missing() > 0 {
        told.push(format!("({} fewer)", crate::fingerprint::fields(difference.missing())));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Fingerprint {
        json_fingerprint(text.as_bytes()).0
    }

    #[test]
    fn the_meaning_counts_and_not_the_spelling() {
        assert_eq!(of(r#"{"a":100,"b":"x"}"#), of(r#" { "b": "\u0078", "a": 1e2 } "#));
        assert_ne!(of("9007199254740993"), of("9007199254740992"));
        assert_ne!(of("null"), of("{}"));
        assert_ne!(of("1"), of(r#""1""#));
    }

    #[test]
    fn what_is_not_clean_equals_itself_only() {
        let twice = r#"{"a":1,"a":1}"#;
        assert_eq!(of(twice), of(twice));
        assert_ne!(of(twice), of(r#"{"a":1}"#));
    }
}
