//! Text forms of the rules, for configuration files.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use http::HeaderName;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Fate, OutcomeMap, Outcomes};

/// Parses the name of a header.
pub(super) fn header_name<'de, D: Deserializer<'de>>(text: D) -> Result<HeaderName, D::Error> {
    struct Name;
    impl Visitor<'_> for Name {
        type Value = HeaderName;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a header name")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<HeaderName, E> {
            HeaderName::from_str(text)
                .map_err(|_| E::custom(format_args!("{text:?} is not a header name")))
        }
    }
    text.deserialize_str(Name)
}

/// Text form of [`super::KeyFrom`]: a provider's convention by its name, a header, or a member of
/// the body.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KeyFrom {
    Standard,
    Paypal,
    Square,
    Header(#[serde(deserialize_with = "header_name")] HeaderName),
    Body(String),
}

impl From<KeyFrom> for super::KeyFrom {
    fn from(text: KeyFrom) -> Self {
        match text {
            KeyFrom::Standard => Self::standard(),
            KeyFrom::Paypal => Self::paypal(),
            KeyFrom::Square => Self::square(),
            KeyFrom::Header(name) => Self::Header(name),
            KeyFrom::Body(pointer) => Self::Body(pointer),
        }
    }
}

/// A policy by its name, or fates by status and class: `{ "5xx" = "keep", "404" = "release" }`.
impl<'de> Deserialize<'de> for Outcomes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Text {
            Named(String),
            Each(BTreeMap<String, String>),
        }
        match Text::deserialize(deserializer)? {
            Text::Named(name) => match name.as_str() {
                "careful" => Ok(Self::Careful),
                "stripe-v1" => Ok(Self::StripeV1),
                "success-only" => Ok(Self::SuccessOnly),
                _ => Err(D::Error::custom(format_args!(
                    "{name:?} is none of \"careful\", \"stripe-v1\", \"success-only\""
                ))),
            },
            Text::Each(each) => {
                let map = each.iter().try_fold(OutcomeMap::default(), |map, (status, word)| {
                    with(map, status, fate(word)?)
                });
                map.map(Self::Custom).map_err(D::Error::custom)
            }
        }
    }
}

/// Adds a status, such as `404`, or a class, such as `5xx`.
fn with(map: OutcomeMap, status: &str, fate: Fate) -> Result<OutcomeMap, String> {
    let class = status.strip_suffix("xx").and_then(|class| class.parse().ok());
    let one = status.parse().ok().filter(|code| (100..600).contains(code));
    match (class.filter(|class| (1..6).contains(class)), one) {
        (Some(class), _) => Ok(map.class(class, fate)),
        (None, Some(code)) => Ok(map.status(code, fate)),
        (None, None) => Err(format!("{status:?} is not a status; write \"404\" or \"4xx\"")),
    }
}

fn fate(word: &str) -> Result<Fate, String> {
    let unknown =
        || format!("{word:?} is none of \"keep\", \"keep-head\", \"release\", \"unknown\"");
    Fate::of_word(word.as_bytes()).ok_or_else(unknown)
}
