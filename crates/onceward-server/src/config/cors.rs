//! `[cors]`: the origins whose pages may read refusals.

use http::HeaderValue;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::{ConfigError, invalid};

/// Origins whose pages may read refusals. The service's responses have their own CORS headers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cors {
    /// Such as `https://shop.example`, or `*` for all.
    pub origins: Vec<Origin>,
    /// Allows pages to send cookies and credentials.
    pub credentials: bool,
}

/// A scheme, a host and, unless it is the scheme's default, a port; or `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(pub HeaderValue);

impl Cors {
    /// Refuses all origins together with credentials, as browsers do.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let all = self.origins.iter().any(|Origin(origin)| origin == "*");
        if all && self.credentials {
            return invalid(
                "cors.origins: \"*\" with cors.credentials = true would let every page read \
                 refusals with its user's cookies; name the origins",
            );
        }
        Ok(())
    }

    /// Returns whether pages of an origin may read refusals.
    pub fn allows(&self, origin: &HeaderValue) -> bool {
        self.origins.iter().any(|Origin(allowed)| allowed == "*" || allowed == origin)
    }
}

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let host = text.split_once("://").map(|(_, host)| host);
        let fits = text == "*"
            || host.is_some_and(|it| !it.is_empty() && !it.contains(['/', ' ', '*', ',']));
        let origin = fits.then(|| HeaderValue::from_str(&text).ok()).flatten().map(Self);
        let refuse = || {
            let form = "scheme, host and port, as in \"https://shop.example\", or \"*\"";
            D::Error::custom(format!("{text:?} is not an origin; write {form}"))
        };
        origin.ok_or_else(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(origin: &str) -> Result<Cors, toml::de::Error> {
        toml::from_str(&format!("origins = [\"{origin}\"]"))
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        for origin in ["https://shop.example", "http://localhost:3000", "*"] {
            assert!(read(origin).is_ok(), "{origin}");
        }
        for wrong in ["shop.example", "https://shop.example/", "https://*.example", "", "://x y"] {
            let told = read(wrong).unwrap_err().to_string();
            assert!(told.contains("https://shop.example\", or"), "{wrong:?} gave {told}");
        }
        let shop = HeaderValue::from_static("https://shop.example");
        assert!(
            read("https://shop.example").unwrap().allows(&shop) && read("*").unwrap().allows(&shop)
        );
        assert!(!read("https://other.example").unwrap().allows(&shop));
    }
}
