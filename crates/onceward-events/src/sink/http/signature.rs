//! Signatures by Standard Webhooks.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A secret of a webhook: `whsec_` and 24 to 64 bytes in base64. `Debug` shows nothing of it.
#[derive(Clone)]
pub struct WebhookSecret(Vec<u8>);

/// Why a text is not a [`WebhookSecret`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a webhook secret is `whsec_` and 24 to 64 bytes in base64: create one with `echo whsec_$(openssl rand -base64 32)`"
)]
pub struct InvalidSecret;

impl WebhookSecret {
    /// Reads a secret.
    pub fn parse(text: &str) -> Result<Self, InvalidSecret> {
        let text = text.trim();
        let encoded = text.strip_prefix("whsec_").ok_or(InvalidSecret)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| InvalidSecret)?;
        if (24..=64).contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(InvalidSecret) }
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(…)")
    }
}

/// The value of `webhook-signature`: one signature for each secret.
pub(super) fn sign(secrets: &[WebhookSecret], id: &str, timestamp: &str, payload: &[u8]) -> String {
    let signed = secrets.iter().filter_map(|secret| {
        let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).ok()?;
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", payload] {
            mac.update(part);
        }
        Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    });
    signed.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification.
    #[test]
    fn a_signature_is_that_of_the_specification() {
        let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let payload = br#"{"test": 2432232314}"#;
        let signed = sign(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", payload);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        for text in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_!"]
        {
            assert!(WebhookSecret::parse(text).is_err(), "{text}");
        }
        let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        assert_eq!(format!("{secret:?}"), "WebhookSecret(…)");
    }
}
