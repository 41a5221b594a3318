//! What is asked for under a key: the same key with another meaning is refused.

use onceward_core::{Difference, Fingerprint, Part};
use onceward_http::{json_differences, json_fingerprint};
use serde_json::value::RawValue;

use crate::api::ApiProblem;

/// Longest fingerprint of a worker's own making: room for any digest with its name.
pub(super) const FINGERPRINT_CHARS_MAX: usize = 255;

/// What a claim says it is about.
pub(super) enum ClaimFingerprint {
    /// The key says it all.
    KeyOnly,
    /// The worker has made a fingerprint itself.
    Custom(String),
    /// The payload counts, by its exact meaning.
    Payload(Box<RawValue>),
}

impl ClaimFingerprint {
    pub(super) fn parse(
        fingerprint: Option<String>,
        payload: Option<Box<RawValue>>,
    ) -> Result<Self, ApiProblem> {
        match (fingerprint, payload) {
            (Some(_), Some(_)) => {
                Err(ApiProblem::bad_request("send fingerprint or payload, and not both"))
            }
            (Some(name), None) if (1..=FINGERPRINT_CHARS_MAX).contains(&name.chars().count()) => {
                Ok(Self::Custom(name))
            }
            (Some(_), None) => Err(ApiProblem::bad_request(format!(
                "fingerprint has 1 to {FINGERPRINT_CHARS_MAX} characters; make a digest of what is longer"
            ))),
            (None, Some(payload)) => Ok(Self::Payload(payload)),
            (None, None) => Ok(Self::KeyOnly),
        }
    }

    /// Its digest, and the parts by which a mismatch is explained. No two kinds are ever
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

    /// Names the parts that differ, as `payload:/amount`. Never a value.
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
