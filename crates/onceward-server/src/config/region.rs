//! `[region]`: the home regions of keys, and the gateways of other regions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use onceward_http::{KeyFormat, KeyFrom};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::rule_check::RuleSection;
use super::rules::RuleSettings;
use super::values::{HeaderNameSetting, Seconds, UpstreamUrl, text};
use super::{Config, ConfigError, Upstream, invalid};

/// Home regions: the gateway executes only the requests whose keys belong to its own region.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// This gateway's region.
    pub name: RegionName,
    /// The source of a key's home region.
    pub of_key: HomeSource,
    /// Rule for requests whose key belongs to another region.
    #[serde(default)]
    pub others: Others,
    /// Rule for requests whose key names no region.
    #[serde(default)]
    pub unnamed: Unnamed,
    /// Timeout of connecting to another region's gateway, TLS handshake included.
    #[serde(default = "Region::connect_timeout")]
    pub connect_timeout: Seconds,
    /// Timeout from forwarding a request to the head of its response. Longer than the other
    /// gateway's own `upstream.response_timeout`.
    #[serde(default = "Region::response_timeout")]
    pub response_timeout: Seconds,
    /// Authorities (PEM) trusted for the other gateways instead of the system's.
    pub ca: Option<PathBuf>,
    /// The gateways of the other regions, by the names of their regions.
    #[serde(default)]
    pub gateways: BTreeMap<RegionName, UpstreamUrl>,
}

/// The name of a region: lower-case letters, digits and hyphens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegionName(Box<str>);

/// The source of a key's home region.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HomeSource {
    /// The key's text before the first separator: `eu` of `eu_8e03…`. It cannot change between
    /// attempts, because the key cannot.
    PrefixBefore(Separator),
    /// A header that a trusted peer sets.
    Header(HeaderNameSetting),
}

/// Characters between the region and the rest of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Separator(Box<str>);

/// Rule for requests whose key belongs to another region.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Others {
    /// They are forwarded to that region's gateway.
    Forward,
    /// They are refused.
    #[default]
    Refuse,
}

/// Rule for requests whose key names no region.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unnamed {
    /// They are refused: another gateway would execute the same key again.
    #[default]
    Refuse,
    /// They are executed here. **Unsafe** if a retry can reach another region.
    Here,
    /// This region is the home of all of them.
    Home(RegionName),
}

impl RegionName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Separator {
    /// The characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Longest name of a region.
const NAME_BYTES_MAX: usize = 63;

impl<'de> Deserialize<'de> for RegionName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let fits = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
        if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits) {
            return Ok(Self(name.into()));
        }
        Err(D::Error::custom(format!(
            "{name:?} is not the name of a region: use 1 to {NAME_BYTES_MAX} lower-case letters, \
             digits and hyphens, as in \"eu\" or \"eu-west-1\""
        )))
    }
}

impl<'de> Deserialize<'de> for Separator {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, "characters such as \"_\"", |text| {
            let fits = |it: u8| it.is_ascii_punctuation() && !b",\"".contains(&it);
            match !text.is_empty() && text.bytes().all(fits) {
                true => Ok(Self(text.into())),
                false => Err(format!(
                    "{text:?} cannot separate a region from the rest of a key: use punctuation \
                     other than commas and quotes, such as \"_\""
                )),
            }
        })
    }
}

impl Region {
    const fn connect_timeout() -> Seconds {
        Seconds::new(3)
    }

    const fn response_timeout() -> Seconds {
        Seconds::new(30)
    }

    /// The settings of the connections to another region's gateway.
    pub(crate) fn gateway(&self, url: &UpstreamUrl) -> Upstream {
        Upstream {
            url: url.clone(),
            connect_timeout: self.connect_timeout,
            response_timeout: self.response_timeout,
            body_timeout: self.response_timeout,
            ca: self.ca.clone(),
            ..Upstream::default()
        }
    }

    /// The names of all regions.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        [&self.name].into_iter().chain(self.gateways.keys()).map(RegionName::as_str)
    }

    /// The settings that decide about the home of a key.
    fn homes(&self) -> (&RegionName, &HomeSource, &Unnamed) {
        (&self.name, &self.of_key, &self.unnamed)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let own = self.name.as_str();
        if self.gateways.contains_key(&self.name) {
            return invalid(format!(
                "region.gateways.{own}: {own} is this gateway's own region (region.name); name the \
                 other regions only"
            ));
        }
        if self.others == Others::Forward && self.gateways.is_empty() {
            return invalid(
                "region.others: \"forward\" needs the gateways of the other regions; name them in \
                 [region.gateways], as in us = \"https://gateway.us.example\"",
            );
        }
        if let Unnamed::Home(home) = &self.unnamed
            && home != &self.name
            && !self.gateways.contains_key(home)
        {
            let home = home.as_str();
            return invalid(format!(
                "region.unnamed: {home:?} is neither region.name nor in [region.gateways]"
            ));
        }
        self.check_addresses()?;
        self.check_separator()
    }

    /// Refuses one address for two regions: a gateway belongs to one.
    fn check_addresses(&self) -> Result<(), ConfigError> {
        let mut seen = BTreeMap::new();
        for (name, url) in &self.gateways {
            if let Some(first) = seen.insert(url.to_string(), name) {
                let (first, second) = (first.as_str(), name.as_str());
                return invalid(format!(
                    "region.gateways.{second}: {url} is already the gateway of {first}, and a \
                     gateway belongs to one region"
                ));
            }
        }
        Ok(())
    }

    fn check_separator(&self) -> Result<(), ConfigError> {
        let HomeSource::PrefixBefore(separator) = &self.of_key else { return Ok(()) };
        let separator = separator.as_str();
        match self.names().find(|name| name.contains(separator)) {
            Some(name) => invalid(format!(
                "region.of_key: the region {name:?} contains the separator {separator:?}, so no \
                 key could name it; use another separator, such as \"_\""
            )),
            None => Ok(()),
        }
    }
}

impl Config {
    /// True if the same key can have another home region than by another configuration.
    pub(crate) fn moves_keys_of(&self, other: &Self) -> bool {
        self.region.as_ref().map(Region::homes) != other.region.as_ref().map(Region::homes)
    }

    /// Refuses settings that contradict `[region]`.
    pub(super) fn check_region(&self) -> Result<(), ConfigError> {
        let Some(region) = &self.region else { return Ok(()) };
        region.check()?;
        let mutual = self
            .listeners
            .iter()
            .position(|listener| listener.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()));
        if let (Some(number), Others::Forward) = (mutual, region.others) {
            return invalid(format!(
                "region.others: \"forward\" with listeners[{number}].tls.client_ca: a forwarded \
                 request does not have the client's certificate, so its caller would be another \
                 one; use \"refuse\""
            ));
        }
        match &region.of_key {
            HomeSource::PrefixBefore(_) => self.check_keys(region),
            HomeSource::Header(_) => self.check_header(region),
        }
    }

    /// Refuses operations whose keys cannot begin with a region that is known from the head.
    fn check_keys(&self, region: &Region) -> Result<(), ConfigError> {
        let defaults = (RuleSection::Defaults, self.defaults.clone());
        let operations = self.operations.iter().enumerate().map(|(number, operation)| {
            (RuleSection::Operation(number, operation), operation.settings(&self.defaults))
        });
        let defaults = self.protect_others.then_some(defaults).into_iter();
        for (section, rules) in defaults.chain(operations) {
            if let Some((setting, why)) = unknown_home(region, &rules) {
                return invalid(format!("{}: {why}", section.setting(setting)));
            }
        }
        Ok(())
    }

    fn check_header(&self, region: &Region) -> Result<(), ConfigError> {
        if self.scope.trusted_peers.0.is_empty() {
            return invalid(
                "region.of_key: a header with the home region counts only from \
                 scope.trusted_peers, which is empty; name the peers that set it, the gateways of \
                 the other regions among them",
            );
        }
        if region.unnamed != Unnamed::Refuse {
            return invalid(
                "region.unnamed: with a header as region.of_key, one attempt can have the header and \
                 the next one not, and both would be executed, in two regions; use \"refuse\"",
            );
        }
        Ok(())
    }
}

/// The setting by which the keys of an operation have no prefix that the head of a request shows.
fn unknown_home(region: &Region, rules: &RuleSettings) -> Option<(&'static str, &'static str)> {
    if let Some(KeyFrom::Body(_)) = &rules.key {
        return Some((
            "key",
            "a key in the body is known only after the whole body was read, and [region] decides \
             before; use a header for the key, or { header = … } as region.of_key",
        ));
    }
    let uuids = rules.key_format == Some(KeyFormat::Uuid);
    (uuids && region.unnamed == Unnamed::Refuse).then_some((
        "key_format",
        "a UUID has no prefix that names its region, so [region] would refuse every key; allow \
         any key, or use { header = … } as region.of_key",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const EU: &str = "[region]\nname = \"eu\"\nof_key = { prefix_before = \"_\" }\n";
    const US: &str = "[region.gateways]\nus = \"http://us.example\"\n";

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("onceward.toml"))
    }

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn the_careful_choices_are_the_defaults() {
        let config = parse(&format!("{EU}{US}")).unwrap();
        let region = config.region.as_ref().unwrap();
        assert_eq!((region.others, &region.unnamed), (Others::Refuse, &Unnamed::Refuse));
        assert_eq!(region.names().collect::<Vec<_>>(), ["eu", "us"]);
    }

    #[test]
    fn only_settings_that_decide_about_homes_move_keys() {
        let config = |text: &str| parse(text).unwrap();
        let now = config(&format!("{EU}{US}"));
        for moved in [
            String::new(),
            format!("{EU}unnamed = {{ home = \"us\" }}\n{US}"),
            format!("{}{US}", EU.replace("eu", "ap")),
            format!("{}{US}", EU.replace("\"_\"", "\"-\"")),
        ] {
            assert!(config(&moved).moves_keys_of(&now), "{moved}");
        }
        let forwarding = format!("{EU}others = \"forward\"\n{US}ap = \"http://ap.example\"");
        assert!(!config(&forwarding).moves_keys_of(&now));
    }

    #[test]
    fn a_wrong_value_is_told_with_its_line() {
        for (text, reason) in [
            ("[region]\nname = \"EU\"", "\"EU\" is not the name of a region"),
            ("[region]\nname = \"\"", "lower-case letters"),
            ("[region]\nof_key = { prefix_before = \"x\" }", "punctuation"),
            ("[region]\nof_key = { prefix_before = \"\" }", "punctuation"),
            ("[region]\nof_key = { key_prefix = \"_\" }", "unknown variant `key_prefix`"),
            ("[region]\nothers = \"run\"", "unknown variant `run`"),
            ("[region.gateways]\nus = \"us.example\"", "http:// or https://"),
            ("[region.gateways]\nUS = \"http://us.example\"", "\"US\" is not the name of a region"),
            ("[region]\nof_key = { header = \"X-Home\" }", "missing field `name`"),
        ] {
            let error = error(text);
            assert!(error.contains("line") && error.contains(reason), "{text} gave {error}");
        }
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused_with_their_names() {
        let header = "[region]\nname = \"eu\"\nof_key = { header = \"X-Home\" }\n";
        let trusted = "[scope]\ntrusted_peers = [\"10.0.0.0/8\"]\n";
        let body = "[[operations]]\nroute = \"/a\"\nkey = \"square\"\n";
        let mutual =
            "[[listeners]]\ntls = { certificate = \"c\", key = \"k\", client_ca = \"a\" }\n";
        for (text, expected) in [
            (
                format!("{EU}[region.gateways]\neu = \"http://eu.example\""),
                "region.gateways.eu: eu is this gateway's own region",
            ),
            (format!("{EU}others = \"forward\""), "region.others: \"forward\" needs the gateways"),
            (format!("{EU}unnamed = {{ home = \"ap\" }}"), "region.unnamed: \"ap\" is neither"),
            (
                format!("{EU}{US}ap = \"http://us.example\""),
                "region.gateways.us: http://us.example/ is already the gateway of ap",
            ),
            (
                EU.replace("eu", "eu-west").replace("\"_\"", "\"-\""),
                "region.of_key: the region \"eu-west\" contains the separator \"-\"",
            ),
            (format!("{EU}{body}"), "operations[0].key (/a): a key in the body"),
            (
                format!("{EU}[defaults]\nkey = \"square\""),
                "defaults.key: a key in the body is known only",
            ),
            (
                format!("{EU}[defaults]\nkey_format = \"uuid\""),
                "defaults.key_format: a UUID has no prefix",
            ),
            (header.into(), "region.of_key: a header with the home region counts only from"),
            (
                format!("{header}unnamed = \"here\"\n{trusted}"),
                "region.unnamed: with a header as region.of_key",
            ),
            (
                format!("{header}unnamed = {{ home = \"eu\" }}\n{trusted}"),
                "region.unnamed: with a header as region.of_key",
            ),
            (
                format!("{EU}others = \"forward\"\n{US}{mutual}"),
                "region.others: \"forward\" with listeners[0].tls.client_ca",
            ),
        ] {
            let error = error(&text);
            assert!(error.starts_with(expected), "{text} gave {error}");
        }
        // The header decides without the key.
        assert!(parse(&format!("{header}{trusted}{body}")).is_ok());
        assert!(parse(&format!("{EU}{US}{mutual}")).is_ok());
        let home = "unnamed = { home = \"eu\" }\n[defaults]\nkey_format = \"uuid\"";
        assert!(parse(&format!("{EU}{home}")).is_ok());
        let only_named = "protect_others = false\n";
        assert!(parse(&format!("{only_named}{EU}[defaults]\nkey = \"square\"")).is_ok());
    }
}
