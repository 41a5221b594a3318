//! The store of the service, by `ONCEWARD_STORE` and `ONCEWARD_KEY_PREFIX`.

use std::fmt;

use onceward::stores::{Connect, ConnectError, SharedStore, connect};

/// Prefix of the keys in Redis, unless another one is set.
const KEY_PREFIX: &str = "order:idempotency:";

/// A store to open. `Debug` and `Display` do not show its URL, which may contain a password.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreSetting {
    /// With the key prefix as its option, if the store has one.
    url: String,
    scheme: String,
    key_prefix: Option<KeyPrefix>,
}

/// Beginning of all keys of a store, without the colon at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyPrefix(String);

/// Error of the store's settings, or of a store that does not open. Names the variable.
#[derive(Debug, thiserror::Error)]
pub enum InvalidStore {
    /// The URL is invalid, or the store does not open.
    #[error("ONCEWARD_STORE: {0}")]
    Connect(#[source] ConnectError),
    /// This build does not have the store.
    #[error(
        "ONCEWARD_STORE: this build has no `{scheme}:` stores; start the service with \
         `cargo run -p example-production --features {feature}`"
    )]
    MissingFeature {
        /// Scheme of the URL.
        scheme: &'static str,
        /// Feature of this example.
        feature: &'static str,
    },
    /// The URL has the option `prefix`. Two settings for one thing could contradict each other.
    #[error("ONCEWARD_STORE has the option `prefix`; set ONCEWARD_KEY_PREFIX instead")]
    PrefixInUrl,
    /// The store has no keys with a prefix.
    #[error(
        "ONCEWARD_KEY_PREFIX is set, but ONCEWARD_STORE is a `{scheme}:` store, and only Redis has \
         key prefixes. Unset it; PostgreSQL has the option `schema` instead, as in \
         postgres://localhost/orders?schema=order_idempotency"
    )]
    NoKeyPrefix {
        /// Scheme of the URL.
        scheme: String,
    },
    /// The prefix has no characters at all.
    #[error("ONCEWARD_KEY_PREFIX is empty; it must be a prefix such as {KEY_PREFIX}")]
    EmptyKeyPrefix,
    /// The prefix has another character. Only that one is shown, as a URL with a password may have
    /// been set by mistake.
    #[error(
        "ONCEWARD_KEY_PREFIX has the character {character:?}; it must be letters, digits and `:`, \
         `-`, `_` or `.`, as in {KEY_PREFIX}"
    )]
    KeyPrefix {
        /// The first character that is not allowed.
        character: char,
    },
}

impl StoreSetting {
    /// Checks the settings as far as that is possible without opening the store.
    pub fn new(store: &str, key_prefix: Option<&str>) -> Result<Self, InvalidStore> {
        let url = if store == "memory" { "memory:" } else { store };
        Connect::new(url).check().map_err(InvalidStore::of)?;
        let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if !scheme.starts_with("redis") {
            return match key_prefix {
                Some(_) => Err(InvalidStore::NoKeyPrefix { scheme }),
                None => Ok(Self { url: url.to_owned(), scheme, key_prefix: None }),
            };
        }
        let key_prefix = KeyPrefix::parse(key_prefix.unwrap_or(KEY_PREFIX))?;
        let url = key_prefix.add_to(url)?;
        Ok(Self { url, scheme, key_prefix: Some(key_prefix) })
    }

    /// Opens the store. Refuses a server that is unreachable or would lose records.
    pub async fn open(&self) -> Result<SharedStore, InvalidStore> {
        connect(&self.url).await.map_err(InvalidStore::of)
    }
}

impl KeyPrefix {
    /// Accepts only characters that mean nothing in a URL, in a hash tag or in a pattern of SCAN. A
    /// colon at the end is optional, so that a forgotten one does not make another store.
    fn parse(value: &str) -> Result<Self, InvalidStore> {
        let prefix = value.strip_suffix(':').unwrap_or(value);
        if prefix.is_empty() {
            return Err(InvalidStore::EmptyKeyPrefix);
        }
        let is_plain = |it: char| it.is_ascii_alphanumeric() || ":-_.".contains(it);
        match prefix.chars().find(|it| !is_plain(*it)) {
            Some(character) => Err(InvalidStore::KeyPrefix { character }),
            None => Ok(Self(prefix.to_owned())),
        }
    }

    /// Adds it as an option of a Redis URL.
    fn add_to(&self, url: &str) -> Result<String, InvalidStore> {
        let options = url.split_once('?').map(|(_, options)| options);
        let mut each = options.into_iter().flat_map(|options| options.split('&'));
        if each.any(|option| option.split('=').next() == Some("prefix")) {
            return Err(InvalidStore::PrefixInUrl);
        }
        let separator = if options.is_some() { '&' } else { '?' };
        Ok(format!("{url}{separator}prefix={}", self.0))
    }
}

impl InvalidStore {
    fn of(error: ConnectError) -> Self {
        match error {
            ConnectError::MissingFeature { scheme, feature } => {
                Self::MissingFeature { scheme, feature }
            }
            other => Self::Connect(other),
        }
    }
}

impl Default for StoreSetting {
    fn default() -> Self {
        let (url, scheme) = ("memory:".to_owned(), "memory".to_owned());
        Self { url, scheme, key_prefix: None }
    }
}

impl fmt::Display for StoreSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {}: store", self.scheme)?;
        match &self.key_prefix {
            Some(KeyPrefix(prefix)) => write!(f, " (keys {prefix}:*)"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for StoreSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreSetting({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(store: &str, key_prefix: Option<&str>) -> String {
        StoreSetting::new(store, key_prefix).unwrap_err().to_string()
    }

    #[test]
    fn the_default_is_memory() {
        for memory in ["memory", "memory:"] {
            assert_eq!(StoreSetting::new(memory, None).unwrap(), StoreSetting::default());
        }
        assert_eq!(StoreSetting::default().to_string(), "a memory: store");
    }

    #[test]
    fn a_key_prefix_for_a_store_without_one_is_refused() {
        let error = refused("memory", Some("order:"));
        assert!(error.starts_with("ONCEWARD_KEY_PREFIX is set, but ONCEWARD_STORE is a `memory:`"));
    }

    #[test]
    fn a_wrong_url_is_refused_with_the_name_of_the_variable() {
        for (store, why) in [
            ("", "must begin with a scheme"),
            ("mysql://root:secret@localhost", "`mysql:` is unknown"),
            ("memory:?records=7", "no option `records`"),
        ] {
            let error = refused(store, None);
            assert!(error.starts_with("ONCEWARD_STORE: ") && error.contains(why), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[cfg(not(feature = "redis"))]
    #[test]
    fn a_store_that_was_left_out_names_its_feature() {
        let error = refused("redis://localhost", None);
        assert!(error.ends_with("`cargo run -p example-production --features redis`"), "{error}");
    }

    #[cfg(feature = "redis")]
    mod redis {
        use super::*;

        fn url(store: &str, key_prefix: Option<&str>) -> String {
            StoreSetting::new(store, key_prefix).unwrap().url
        }

        #[test]
        fn the_key_prefix_is_an_option_of_the_url() {
            let plain = url("redis://localhost", None);
            assert_eq!(plain, "redis://localhost?prefix=order:idempotency");
            let other = url("REDISS://:pw@host?timeout=1s", Some("a.b-c_1:"));
            assert_eq!(other, "REDISS://:pw@host?timeout=1s&prefix=a.b-c_1");
        }

        #[test]
        fn a_colon_at_the_end_of_the_prefix_makes_no_difference() {
            assert_eq!(url("redis://a", Some("order")), url("redis://a", Some("order:")));
        }

        #[test]
        fn a_prefix_that_could_mean_something_else_is_refused() {
            for (prefix, named) in [
                ("", "is empty"),
                (":", "is empty"),
                ("a b", "has the character ' '"),
                ("a&empty=begin", "has the character '&'"),
                ("a#", "has the character '#'"),
                ("{a}:", "has the character '{'"),
                ("a*", "has the character '*'"),
                ("ä", "has the character 'ä'"),
                ("redis://:secret@localhost", "has the character '/'"),
            ] {
                let error = refused("redis://localhost", Some(prefix));
                assert!(error.starts_with(&format!("ONCEWARD_KEY_PREFIX {named}; ")), "{error}");
                assert!(!error.contains("secret"), "{error}");
            }
        }

        #[test]
        fn a_prefix_in_the_url_is_refused() {
            for store in ["redis://a?prefix=b", "redis://a?timeout=1s&prefix=b", "redis://a?prefix"]
            {
                for key_prefix in [None, Some("b")] {
                    assert!(refused(store, key_prefix).contains("set ONCEWARD_KEY_PREFIX instead"));
                }
            }
        }

        #[test]
        fn neither_text_form_shows_the_password() {
            let setting = StoreSetting::new("redis://:secret@localhost", None).unwrap();
            let shown = format!("{setting} {setting:?}");
            assert!(shown.contains("order:idempotency:*") && !shown.contains("secret"), "{shown}");
        }
    }
}
