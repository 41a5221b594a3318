//! Fingerprints of claims: the same key with another fingerprint is refused.

use onceward_core::{Difference, Fingerprint, Part};
use onceward_http::{json_differences, json_fingerprint};
use serde_json::value::RawValue;

use crate::api::ApiProblem;

/// Longest fingerprint that a worker may send: enough for any digest with its name.
pub(super) const FINGERPRINT_CHARS_MAX: usize = 255;

/// The part of a claim that identifies the request.
pub(super) enum ClaimFingerprint {
    /// Only the key.
    KeyOnly,
    /// A fingerprint that the worker computed.
    Custom(String),
    /// The payload, compared by its JSON value.
    Payload(Box<RawValue>),
}

impl ClaimFingerprint {
    pub(super) fn parse(
        fingerprint: Option<String>,
        payload: Option<Box<RawValue>>,
    ) -> Result<Self, ApiProblem> {
        match (fingerprint, payload) {
            (Some(_), Some(_)) => {
                Err(ApiProblem::bad_request("send either fingerprint or payload"))
            }
            (Some(name), None) if (1..=FINGERPRINT_CHARS_MAX).contains(&name.chars().count()) => {
                Ok(Self::Custom(name))
            }
            (Some(_), None) => Err(ApiProblem::bad_request(format!(
                "fingerprint must have 1 to {FINGERPRINT_CHARS_MAX} characters; send a digest of a longer one"
            ))),
            (None, Some(payload)) => Ok(Self::Payload(payload)),
            (None, None) => Ok(Self::KeyOnly),
        }
    }

    /// The digest, and the parts that explain a mismatch. Digests of different kinds are never
    /// equal.
    pub(super) fn fingerprint(&self) -> (Fingerprint, Vec<Part>) {
        match self {
            Self::KeyOnly => (Fingerprint::of_parts(&[b"claims v1"]), Vec::new()),
            Self::Custom(name) => {
                (Fingerprint::of_parts(&[b"claims v1", name.as_bytes()]), Vec::new())
            }
            Self::Payload(payload) => json_fingerprint(payload.get().as_bytes()),
        }
    }

    /// The parts that differ, such as `payload:/amount`, never their values.
    pub(super) fn differences(&self, difference: Difference) -> Vec<String> {
        match self {
            Self::KeyOnly | Self::Custom(_) => vec!["fingerprint".into()],
            Self::Payload(payload) => {
                let parts = json_differences(payload.get().as_bytes(), difference);
                parts.into_iter().map(|part| format!("payload:{part}")).collect()
            }
        }
    }
}
