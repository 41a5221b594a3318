//! Files of Java properties.

use std::collections::BTreeMap;
use std::fmt;

/// Properties by their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Properties(BTreeMap<String, String>);

impl Properties {
    /// Sets a property, and replaces an earlier value.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// Sets the properties of another file.
    pub(super) fn extend(&mut self, others: &Self) {
        others.0.iter().for_each(|(name, value)| self.set(name, value));
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Properties {
    fn from_iter<T: IntoIterator<Item = (N, V)>>(all: T) -> Self {
        Self(all.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl IntoIterator for Properties {
    type Item = (String, String);
    type IntoIter = std::collections::btree_map::IntoIter<String, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The text of the file. A backslash starts an escape, and Java reads the file as Latin-1.
impl fmt::Display for Properties {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, value)| writeln!(to, "{name}={}", escaped(value)))
    }
}

fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for unit in value.encode_utf16() {
        match u8::try_from(unit) {
            Ok(b'\\') => escaped.push_str(r"\\"),
            Ok(byte @ b' '..=b'~') => escaped.push(byte.into()),
            Ok(_) | Err(_) => escaped.push_str(&format!("\\u{unit:04x}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_set() {
        let mut properties = Properties::from_iter([("b", r"public\.outbox"), ("a", "1")]);
        properties.extend(&Properties::from_iter([("a", "é\n")]));
        assert_eq!(properties.to_string(), "a=\\u00e9\\u000a\nb=public\\\\.outbox\n");
    }
}
