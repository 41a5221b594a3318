//! The schema of the tables.

use std::fmt;

/// Name of a schema in a database: lower-case letters, digits and underscores.
///
/// Names that need quotes are refused, so that operators can type the name as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema(String);

/// Longest name: PostgreSQL's names have up to 63 bytes, and the channel's name contains this one.
const NAME_BYTES_MAX: usize = 48;

impl Schema {
    /// Checks a name.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidSchema> {
        let name = name.into();
        let begins = name.bytes().next().is_some_and(|it| it.is_ascii_lowercase() || it == b'_');
        let letter = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_';
        if begins && name.bytes().all(letter) && name.len() <= NAME_BYTES_MAX {
            return Ok(Self(name));
        }
        Err(InvalidSchema)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The channel for notifications of settlements.
    pub(super) fn channel(&self) -> String {
        format!("onceward_{}", self.0)
    }

    /// Inserts the name into a statement for `{schema}`, and removes the comments, so that the
    /// server need not parse them with every statement.
    pub fn statement(&self, text: &str) -> String {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
        self.apply(&lines.collect::<Vec<_>>().join("\n"))
    }

    /// Inserts the name into SQL. It is quoted, as it may be a reserved word.
    pub(super) fn apply(&self, sql: &str) -> String {
        sql.replace("{schema}", &format!("\"{}\"", self.0))
    }

    /// The schema's number for advisory locks, the same in every release.
    pub(super) fn lock(&self) -> i64 {
        xxhash_rust::xxh3::xxh3_64(format!("onceward {}", self.0).as_bytes()).cast_signed()
    }
}

impl Default for Schema {
    fn default() -> Self {
        Self("onceward".to_owned())
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is not the name of a [`Schema`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a schema's name is up to {NAME_BYTES_MAX} lower-case letters, digits and underscores, and does not begin with a digit"
)]
pub struct InvalidSchema;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_need_quotes_is_refused() {
        assert!(Schema::new("once_2").is_ok() && Schema::new("_x").is_ok());
        for name in ["", "2x", "Once", "a-b", "a\"b", "a.b", &"a".repeat(49)] {
            assert_eq!(Schema::new(name), Err(InvalidSchema), "{name}");
        }
    }
}
