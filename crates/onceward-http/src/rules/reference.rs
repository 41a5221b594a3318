//! The business reference of a request: where it is, and how long it is remembered.

use std::time::Duration;

use http::header::HeaderName;
use onceward_core::KnownReference;

/// The name of a request's intent in the business, such as the payment reference on a bank
/// statement. It is remembered longer than any key, and found under every key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceRules {
    /// Where the reference is. A request without one has only its key.
    pub from: ReferenceFrom,
    /// Answer to another key with a known reference (the first response).
    pub known: KnownReference,
    /// How long the reference is remembered (the engine's policy: a year).
    pub ttl: Option<Duration>,
}

impl ReferenceRules {
    /// A reference in a header.
    pub fn header(name: HeaderName) -> Self {
        Self { from: ReferenceFrom::Header(name), known: KnownReference::Replay, ttl: None }
    }

    /// A reference in a JSON body, at a pointer such as `/payment/reference`.
    pub fn body(pointer: impl Into<String>) -> Self {
        Self { from: ReferenceFrom::Body(pointer.into()), known: KnownReference::Replay, ttl: None }
    }
}

/// Where the business reference is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum ReferenceFrom {
    /// In this header.
    Header(
        #[cfg_attr(feature = "serde", serde(deserialize_with = "super::text::header_name"))]
        HeaderName,
    ),
    /// In the JSON body, a text or a number at this pointer.
    Body(String),
}
