//! Idempotency keys: the client's name for one intent.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::operation_id::DownstreamKey;
use crate::hex::hex;

/// Longest accepted key, in characters. Stripe's limit, which clients already honour.
pub const KEY_CHARS_MAX: usize = 255;

/// An idempotency key: the client's name for one intent, the same on every attempt.
///
/// 1 to 255 printable ASCII characters, not only blanks. A key often gives access to the reply
/// like a password, so `Debug` shows the prefix of a digest, and there is no `Display`.
///
/// ```
/// use onceward_core::Key;
///
/// let key = Key::new("8e03978e-40d5-43e8-bc93-6894a57f9324")?;
/// assert!(!format!("{key:?}").contains("8e03978e"));
/// # Ok::<(), onceward_core::InvalidKey>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(Arc<str>);

impl Key {
    /// Checks a text and makes it a key.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, InvalidKey> {
        let text = text.into();
        if !is_printable(&text) {
            let mut characters = text.chars().enumerate();
            let (position, character) =
                characters.find(|(_, c)| !matches!(c, ' '..='~')).unwrap_or_default();
            return Err(InvalidKey::Character { character, position });
        }
        match text.len() {
            0 => Err(InvalidKey::Empty),
            length if length > KEY_CHARS_MAX => Err(InvalidKey::TooLong { length }),
            _ if text.bytes().all(|byte| byte == b' ') => Err(InvalidKey::Blank),
            _ => Ok(Self(text)),
        }
    }

    /// A key from parts of any length and alphabet, such as a CloudEvents source and id: the hex
    /// SHA-256 over the length-prefixed parts.
    pub fn derived(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new_with_prefix(b"onceward key v1");
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hex(&hash.finalize()).into())
    }

    /// The raw key. Never log it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = Sha256::digest(self.0.as_bytes());
        write!(f, "Key(sha256:{}…)", hex(&digest[..4]))
    }
}

impl TryFrom<String> for Key {
    type Error = InvalidKey;

    fn try_from(text: String) -> Result<Self, InvalidKey> {
        Self::new(text)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.0.as_ref().to_owned()
    }
}

/// True if all bytes are printable ASCII. `all` would stop at the first other byte, and so keep
/// the compiler from checking many bytes at once.
pub(crate) fn is_printable(text: &str) -> bool {
    !text.bytes().fold(false, |found, byte| found | !matches!(byte, b' '..=b'~'))
}

/// Conversion to a [`Key`]: for texts, UUIDs, the [`DownstreamKey`] of the operation above, and
/// your own types.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made into a key",
    label = "neither a `Key` nor a text nor a `Uuid`",
    note = "turn it into text, or implement `ToKey` for it"
)]
pub trait ToKey {
    /// Returns the key, or why it is not valid.
    fn to_key(&self) -> Result<Key, InvalidKey>;
}

impl ToKey for Key {
    fn to_key(&self) -> Result<Key, InvalidKey> {
        Ok(self.clone())
    }
}

impl ToKey for str {
    fn to_key(&self) -> Result<Key, InvalidKey> {
        Key::new(self)
    }
}

impl ToKey for String {
    fn to_key(&self) -> Result<Key, InvalidKey> {
        Key::new(self.as_str())
    }
}

impl ToKey for Cow<'_, str> {
    fn to_key(&self) -> Result<Key, InvalidKey> {
        Key::new(&**self)
    }
}

impl ToKey for Arc<str> {
    fn to_key(&self) -> Result<Key, InvalidKey> {
        Key::new(Arc::clone(self))
    }
}

impl ToKey for Uuid {
    fn to_key(&self) -> Result<Key, InvalidKey> {
        Key::new(self.to_string())
    }
}

impl ToKey for DownstreamKey {
    fn to_key(&self) -> Result<Key, InvalidKey> {
        Key::new(self.as_str())
    }
}

impl<T: ToKey + ?Sized> ToKey for &T {
    fn to_key(&self) -> Result<Key, InvalidKey> {
        (**self).to_key()
    }
}

/// Why a text is not a [`Key`]. Never repeats the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKey {
    /// No characters at all.
    #[error("the idempotency key is empty; send 1 to {KEY_CHARS_MAX} characters")]
    Empty,
    /// Only blanks.
    #[error("the idempotency key has only blanks; send a unique value, such as a UUID")]
    Blank,
    /// Longer than [`KEY_CHARS_MAX`].
    #[error("the idempotency key has {length} characters; at most {KEY_CHARS_MAX} are allowed")]
    TooLong {
        /// Its number of characters.
        length: usize,
    },
    /// Something other than printable ASCII.
    #[error(
        "the idempotency key has {character:?} at position {position}; only printable ASCII is allowed"
    )]
    Character {
        /// The character that is not allowed.
        character: char,
        /// Its position, counted from zero.
        position: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_keys_are_refused_with_what_is_wrong() {
        assert_eq!(Key::new("").unwrap_err(), InvalidKey::Empty);
        assert_eq!(Key::new("   ").unwrap_err(), InvalidKey::Blank);
        assert_eq!(Key::new("k".repeat(256)).unwrap_err(), InvalidKey::TooLong { length: 256 });
        let accent = InvalidKey::Character { character: 'é', position: 3 };
        assert_eq!(Key::new("caf\u{e9}").unwrap_err(), accent);
        assert!(Key::new("a\nb").unwrap_err().to_string().contains("position 1"));
        assert!(Key::new("k".repeat(255)).is_ok());
    }

    #[test]
    fn errors_and_debug_never_show_the_key() {
        let long = format!("canary{}", "k".repeat(300));
        assert!(!Key::new(long).unwrap_err().to_string().contains("canary"));
        assert!(!format!("{:?}", Key::new("canary").unwrap()).contains("canary"));
    }

    #[test]
    fn a_key_is_the_same_whatever_it_is_made_of() {
        let key = Key::new("67e55044-10b1-426f-9247-bb680e5fe0c8").unwrap();
        let text = key.expose().to_owned();
        assert_eq!(text.as_str().to_key().unwrap(), key);
        assert_eq!(Cow::Borrowed(text.as_str()).to_key().unwrap(), key);
        assert_eq!(Arc::<str>::from(text.as_str()).to_key().unwrap(), key);
        assert_eq!(text.parse::<Uuid>().unwrap().to_key().unwrap(), key);
        assert_eq!(<&&Key as ToKey>::to_key(&&&key).unwrap(), text.to_key().unwrap());
        assert_eq!("".to_key().unwrap_err(), InvalidKey::Empty);
    }

    #[test]
    fn derived_keys_keep_their_parts_apart() {
        assert_ne!(Key::derived(&[b"ab", b"c"]), Key::derived(&[b"a", b"bc"]));
    }
}
