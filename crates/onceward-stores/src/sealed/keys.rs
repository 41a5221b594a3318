//! The keys that seal and open outcomes, and where they are read from.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs, io};

use aws_lc_rs::aead::{AES_256_GCM_SIV, LessSafeKey, UnboundKey};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

/// Bytes of a key, for AES-256.
pub const KEY_BYTES: usize = 32;
/// Longest id of a key. Every sealed outcome contains it.
pub const KEY_ID_BYTES_MAX: usize = 32;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Keys for sealing. Cheap to clone.
///
/// The text has one key a line, `id:base64`, of 32 bytes; blank lines and lines that begin with `#`
/// are ignored. The **first** key seals, and all of them open:
///
/// ```text
/// # seals since November
/// 2026-11:q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=
/// # opens what was sealed before
/// 2026-05:EjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCrze8=
/// ```
///
/// The text is wiped from memory after it is read, and `Debug` shows ids only.
#[derive(Clone)]
pub struct Keys {
    keys: Arc<[SealKey]>,
}

/// One key. The cipher wipes it when it is dropped.
pub(super) struct SealKey {
    pub(super) id: Box<str>,
    pub(super) cipher: LessSafeKey,
}

/// Why keys cannot be read. Never shows any of the text, which may be a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// The file could not be read.
    #[error("cannot read the sealing keys in {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The environment variable is not set.
    #[error(
        "the environment variable {name} is not set: it must hold the sealing keys, as `id:base64`"
    )]
    Unset {
        /// The variable.
        name: String,
    },
    /// There are no keys.
    #[error(
        "{place} holds no sealing key: write one a line, as `id:base64`, the one that seals first"
    )]
    Empty {
        /// The file or variable.
        place: String,
    },
    /// The content is not text.
    #[error("{place} is not UTF-8 text")]
    NotText {
        /// The file or variable.
        place: String,
    },
    /// A key is wrong.
    #[error("{place}: {problem}")]
    Key {
        /// The file or variable, and the line.
        place: String,
        /// The problem.
        problem: KeyProblem,
    },
}

/// A problem of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyProblem {
    /// There is no colon.
    #[error("this is not `id:base64`: there is no colon")]
    NoColon,
    /// The id is empty, too long, or has other characters.
    #[error(
        "the id before the colon must be 1 to {KEY_ID_BYTES_MAX} characters of A-Z a-z 0-9 . _ -"
    )]
    Id,
    /// The part after the colon is not base64.
    #[error("what follows the colon is not base64 (of the standard alphabet)")]
    NotBase64,
    /// The key is too long or too short.
    #[error(
        "a key has {KEY_BYTES} bytes, this one has {bytes}: make one by `head -c {KEY_BYTES} /dev/urandom | base64`"
    )]
    Length {
        /// The length of this key.
        bytes: usize,
    },
    /// The key is a placeholder.
    #[error(
        "all bytes of this key are the same, which is no secret: make one by `head -c {KEY_BYTES} /dev/urandom | base64`"
    )]
    Placeholder,
    /// Another line has the same id.
    #[error("{first} has the id `{id}` too")]
    SameId {
        /// The id.
        id: String,
        /// The other line.
        first: String,
    },
    /// Another line has the same key, so nothing would be rotated.
    #[error("{first} has the same key under another id")]
    SameKey {
        /// The other line.
        first: String,
    },
}

impl Keys {
    /// Reads keys from a file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, KeysError> {
        let path = path.as_ref();
        let bytes = fs::read(path).map(Zeroizing::new);
        let bytes = bytes.map_err(|source| KeysError::File { path: path.into(), source })?;
        let place = path.display().to_string();
        let Ok(text) = std::str::from_utf8(&bytes) else {
            return Err(KeysError::NotText { place });
        };
        Self::read(&place, "line", text.split('\n'))
    }

    /// Reads keys from an environment variable, where commas separate them as well.
    ///
    /// The variable stays in the environment of the process: prefer a file if others can read that.
    pub fn from_env(name: &str) -> Result<Self, KeysError> {
        match env::var(name).map(Zeroizing::new) {
            Ok(text) => Self::read(name, "entry", text.split(['\n', ','])),
            Err(env::VarError::NotPresent) => Err(KeysError::Unset { name: name.into() }),
            Err(env::VarError::NotUnicode(_)) => Err(KeysError::NotText { place: name.into() }),
        }
    }

    /// Reads keys from text, for example from a vault. The caller wipes that text.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        Self::read("the given text", "line", text.split('\n'))
    }

    /// The id of the key that seals.
    pub fn sealing(&self) -> &str {
        &self.first().id
    }

    /// The ids of all keys, the one that seals first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| &*key.id)
    }

    pub(super) fn first(&self) -> &SealKey {
        // `read` never returns an empty list.
        &self.keys[0]
    }

    pub(super) fn find(&self, id: &str) -> Option<&SealKey> {
        self.keys.iter().find(|key| &*key.id == id)
    }

    fn read<'a>(
        place: &str,
        unit: &str,
        entries: impl Iterator<Item = &'a str>,
    ) -> Result<Self, KeysError> {
        let mut read: Vec<Entry<'a>> = Vec::new();
        for (index, text) in entries.enumerate() {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let at = format!("{unit} {}", index + 1);
            let entry = Entry::read(at, text).and_then(|entry| entry.unlike(&read));
            let wrong = |(at, problem)| KeysError::Key { place: format!("{place}, {at}"), problem };
            read.push(entry.map_err(wrong)?);
        }
        if read.is_empty() {
            return Err(KeysError::Empty { place: place.into() });
        }
        let keys: Result<_, _> = read.into_iter().map(|entry| entry.into_key(place)).collect();
        Ok(Self { keys: keys? })
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opening: Vec<_> = self.ids().skip(1).collect();
        f.debug_struct("Keys").field("sealing", &self.sealing()).field("opening", &opening).finish()
    }
}

/// A key of the text, wiped when it is dropped.
struct Entry<'a> {
    at: String,
    id: &'a str,
    secret: Zeroizing<[u8; KEY_BYTES]>,
}

type Wrong = (String, KeyProblem);

impl<'a> Entry<'a> {
    fn read(at: String, text: &'a str) -> Result<Self, Wrong> {
        match text.split_once(':') {
            None => Err((at, KeyProblem::NoColon)),
            Some((id, _)) if !is_key_id(id.as_bytes()) => Err((at, KeyProblem::Id)),
            Some((id, secret)) => match decode(secret.trim()) {
                Ok(secret) => Ok(Self { at, id, secret }),
                Err(problem) => Err((at, problem)),
            },
        }
    }

    /// Refuses an entry whose id or key an earlier one has.
    fn unlike(self, others: &[Self]) -> Result<Self, Wrong> {
        for Self { at: first, id, secret } in others {
            let first = first.clone();
            if *id == self.id {
                return Err((self.at, KeyProblem::SameId { id: self.id.into(), first }));
            }
            if *secret == self.secret {
                return Err((self.at, KeyProblem::SameKey { first }));
            }
        }
        Ok(self)
    }

    fn into_key(self, place: &str) -> Result<SealKey, KeysError> {
        let Ok(unbound) = UnboundKey::new(&AES_256_GCM_SIV, &*self.secret) else {
            let problem = KeyProblem::Length { bytes: self.secret.len() };
            return Err(KeysError::Key { place: format!("{place}, {}", self.at), problem });
        };
        Ok(SealKey { id: self.id.into(), cipher: LessSafeKey::new(unbound) })
    }
}

/// Returns whether bytes are a valid id of a key, which is safe to show.
pub(super) fn is_key_id(id: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    (1..=KEY_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(allowed)
}

fn decode(text: &str) -> Result<Zeroizing<[u8; KEY_BYTES]>, KeyProblem> {
    // The decoder's own error would show a character of the key.
    let bytes = BASE64.decode(text).map(Zeroizing::new).map_err(|_| KeyProblem::NotBase64)?;
    let mut secret = Zeroizing::new([0; KEY_BYTES]);
    if bytes.len() != KEY_BYTES {
        return Err(KeyProblem::Length { bytes: bytes.len() });
    }
    secret.copy_from_slice(&bytes);
    if secret.iter().all(|byte| *byte == secret[0]) {
        return Err(KeyProblem::Placeholder);
    }
    Ok(secret)
}
