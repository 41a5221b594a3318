//! The key: its place, its syntax and its format.

use http::header::HeaderName;

/// Where the key is, and which texts are keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRules {
    /// Where the key is (the header `Idempotency-Key`).
    pub from: KeyFrom,
    /// Syntax of the header (lenient).
    pub syntax: KeySyntax,
    /// Shortest key, in characters (1).
    pub min: usize,
    /// Longest key, in characters (255).
    pub max: usize,
    /// Format of keys (any).
    pub format: KeyFormat,
}

impl Default for KeyRules {
    fn default() -> Self {
        Self {
            from: KeyFrom::standard(),
            syntax: KeySyntax::Lenient,
            min: 1,
            max: onceward_core::KEY_CHARS_MAX,
            format: KeyFormat::Any,
        }
    }
}

/// Where the key is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(from = "super::text::KeyFrom"))]
pub enum KeyFrom {
    /// In this header.
    Header(HeaderName),
    /// In the JSON body, a text at this pointer. Every request of the operation is then buffered,
    /// because only its body tells whether it has a key.
    Body(String),
}

impl KeyFrom {
    /// The header `Idempotency-Key`, like the IETF draft, Stripe and Adyen.
    pub fn standard() -> Self {
        Self::Header(HeaderName::from_static("idempotency-key"))
    }

    /// The header `PayPal-Request-Id`.
    pub fn paypal() -> Self {
        Self::Header(HeaderName::from_static("paypal-request-id"))
    }

    /// The member `idempotency_key` of the JSON body, like Square.
    pub fn square() -> Self {
        Self::Body("/idempotency_key".into())
    }
}

/// Syntax of the key's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum KeySyntax {
    /// A value that begins with a quote is a structured-field string, any other is a bare key;
    /// `"k"` and `k` name the same key.
    Lenient,
    /// Only a structured-field string, as the IETF draft has it.
    SfString,
    /// Only the bare characters, as Stripe has it.
    Bare,
}

/// Format of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum KeyFormat {
    /// Any text of the allowed length.
    Any,
    /// Only UUIDs.
    Uuid,
}
