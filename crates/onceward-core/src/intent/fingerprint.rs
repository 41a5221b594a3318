//! Fingerprints, which tell a retry from another request under the same key.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::hex::hex;

/// A digest of what a request means, with the version of the rules that made it.
///
/// Two requests with one key and different fingerprints are different intents: the second
/// is refused. Fingerprints of different rule versions never compare equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fingerprint {
    rules: u8,
    digest: [u8; 32],
}

impl Fingerprint {
    /// Rules of [`Fingerprint::of_parts`].
    pub const PARTS_V1: u8 = 1;
    /// Rules of [`Fingerprint::of_value`].
    pub const VALUE_V1: u8 = 2;

    /// A fingerprint that another component computed by its own rules.
    ///
    /// Rule numbers below 16 are reserved for this crate.
    pub const fn from_digest(rules: u8, digest: [u8; 32]) -> Self {
        Self { rules, digest }
    }

    /// SHA-256 over the parts, each with its length, so that different lists of parts never hash
    /// the same bytes.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        hash.update((parts.len() as u64).to_be_bytes());
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self { rules: Self::PARTS_V1, digest: hash.finalize().into() }
    }

    /// SHA-256 over a value as serde serialises it. The order of map entries and struct fields
    /// does not matter, the order of sequences does.
    pub fn of_value<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        let value = serde_json::to_value(value)?;
        let mut hash = Sha256::new();
        absorb(&mut hash, &value);
        Ok(Self { rules: Self::VALUE_V1, digest: hash.finalize().into() })
    }

    /// The same as [`of_value`](Self::of_value) of a struct with these fields. Names are unique.
    pub fn of_members(members: &[(&str, Value)]) -> Self {
        let mut hash = Sha256::new();
        absorb_members(&mut hash, members.iter().map(|(name, member)| (*name, member)).collect());
        Self { rules: Self::VALUE_V1, digest: hash.finalize().into() }
    }

    /// Number of the rules that made it.
    pub const fn rules(&self) -> u8 {
        self.rules
    }

    /// The digest.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint(v{}:{}…)", self.rules, hex(&self.digest[..4]))
    }
}

/// Hashes a value in a prefix-free form: a type byte, a length where the type has one, content.
fn absorb(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hash.update(b"z"),
        Value::Bool(false) => hash.update(b"f"),
        Value::Bool(true) => hash.update(b"t"),
        Value::Number(number) => absorb_text(hash, b"n", &number.to_string()),
        Value::String(string) => absorb_text(hash, b"s", string),
        Value::Array(items) => {
            hash.update(b"a");
            hash.update((items.len() as u64).to_be_bytes());
            items.iter().for_each(|item| absorb(hash, item));
        }
        Value::Object(members) => {
            let members = members.iter().map(|(name, member)| (name.as_str(), member));
            absorb_members(hash, members.collect());
        }
    }
}

fn absorb_members(hash: &mut Sha256, mut members: Vec<(&str, &Value)>) {
    // Sorted here, because any crate in the build can change the order of serde_json's map by
    // a feature.
    members.sort_unstable_by_key(|(name, _)| *name);
    hash.update(b"o");
    hash.update((members.len() as u64).to_be_bytes());
    for (name, member) in members {
        absorb_text(hash, b"s", name);
        absorb(hash, member);
    }
}

fn absorb_text(hash: &mut Sha256, kind: &[u8], text: &str) {
    hash.update(kind);
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(value: impl Into<Value>) -> Fingerprint {
        Fingerprint::of_value(&value.into()).unwrap()
    }

    #[test]
    fn member_order_does_not_matter_and_everything_else_does() {
        assert_eq!(of(json!({"a": 1, "b": 2})), of(json!({"b": 2, "a": 1})));
        assert_ne!(of(json!([1, 2])), of(json!([2, 1])));
        assert_ne!(of(json!(1)), of(json!("1")));
        assert_ne!(of(json!({"a": null})), of(json!({})));
        assert_ne!(of(json!(9_007_199_254_740_993_u64)), of(json!(9_007_199_254_740_992_u64)));
    }

    #[test]
    fn members_are_those_of_a_struct_in_any_order() {
        let members = [("b", json!([2, {"c": 3}])), ("a", json!(1))];
        let expected = of(json!({"a": 1, "b": [2, {"c": 3}]}));
        assert_eq!(Fingerprint::of_members(&members), expected);
    }

    #[test]
    fn parts_do_not_run_together() {
        let of = Fingerprint::of_parts;
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"ab"]), of(&[b"ab", b""]));
    }
}
