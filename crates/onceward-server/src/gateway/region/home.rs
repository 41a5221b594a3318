//! The home region of a key.

use http::HeaderMap;
use http::header::HeaderName;
use onceward_http::HeadKey;

use super::{OtherRegion, RegionRouter};
use crate::config::{HomeSource, Unnamed};

/// The home region of a key, among the configured ones.
pub(super) enum Home<'r> {
    /// The gateway's own.
    Own,
    /// Another one.
    Other(&'r OtherRegion),
    /// The key names no region.
    Unnamed,
    /// The key names a region that is not configured.
    Unknown,
}

/// The region that a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named<'k> {
    /// A name, configured or not.
    Region(&'k str),
    /// None.
    Nothing,
    /// Something that is no name: a header with several values, or one that is not text.
    Malformed,
}

/// Returns the region that a request names; `None` if its key is missing or malformed, so that the
/// layer refuses it.
pub(super) fn named<'k>(
    source: &HomeSource,
    key: &'k HeadKey,
    headers: &'k HeaderMap,
) -> Option<Named<'k>> {
    match (source, key) {
        (_, HeadKey::Refused) => None,
        (HomeSource::Header(name), _) => Some(in_header(headers, &name.0)),
        (HomeSource::PrefixBefore(separator), HeadKey::Key(key)) => {
            let prefix = key.expose().split_once(separator.as_str());
            Some(prefix.map_or(Named::Nothing, |(region, _)| Named::Region(region)))
        }
        // The region of a key that is not in the head is not known. `Config::check` refuses that.
        (HomeSource::PrefixBefore(_), _) => Some(Named::Malformed),
    }
}

fn in_header<'k>(headers: &'k HeaderMap, name: &HeaderName) -> Named<'k> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Named::Nothing,
        (Some(value), None) => value.to_str().map_or(Named::Malformed, Named::Region),
        (Some(_), Some(_)) => Named::Malformed,
    }
}

impl RegionRouter {
    /// The home region that a request names, or has by the rule for keys that name none.
    pub(super) fn home_of(&self, named: Named<'_>) -> Home<'_> {
        match (named, &self.unnamed) {
            (Named::Region(name), _) => self.region(name),
            (Named::Malformed, _) => Home::Unknown,
            (Named::Nothing, Unnamed::Refuse) => Home::Unnamed,
            (Named::Nothing, Unnamed::Here) => Home::Own,
            (Named::Nothing, Unnamed::Home(home)) => self.region(home.as_str()),
        }
    }

    fn region(&self, name: &str) -> Home<'_> {
        match self.other(name) {
            _ if *name == *self.own => Home::Own,
            Some(other) => Home::Other(other),
            None => Home::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceward_core::Key;

    fn source(text: &str) -> HomeSource {
        toml::from_str::<toml::Table>(&format!("it = {text}")).unwrap()["it"]
            .clone()
            .try_into()
            .unwrap()
    }

    fn key(text: &str) -> HeadKey {
        HeadKey::Key(Key::new(text).unwrap())
    }

    #[test]
    fn a_key_names_its_region_before_the_first_separator() {
        let (underscore, none) = (source("{ prefix_before = \"_\" }"), HeaderMap::new());
        for (text, expected) in [
            ("eu_8e03", Named::Region("eu")),
            ("eu_8e_03", Named::Region("eu")),
            ("eu_", Named::Region("eu")),
            ("_8e03", Named::Region("")),
            ("EU_8e03", Named::Region("EU")),
            ("8e03978e-40d5", Named::Nothing),
        ] {
            assert_eq!(named(&underscore, &key(text), &none), Some(expected), "{text}");
        }
        assert_eq!(named(&underscore, &HeadKey::Refused, &none), None);
        assert_eq!(named(&underscore, &HeadKey::InBody, &none), Some(Named::Malformed));
        let two = source("{ prefix_before = \"::\" }");
        assert_eq!(named(&two, &key("eu::a:b"), &none), Some(Named::Region("eu")));
    }

    #[test]
    fn a_header_names_the_region_once_and_without_the_key() {
        let header = source("{ header = \"X-Home\" }");
        let with = |values: &[&[u8]]| {
            let value =
                |value: &&[u8]| (HeaderName::from_static("x-home"), (*value).try_into().unwrap());
            values.iter().map(value).collect::<HeaderMap>()
        };
        let (one, two) = (with(&[b"us"]), with(&[b"us", b"us"]));
        assert_eq!(named(&header, &key("eu_1"), &one), Some(Named::Region("us")));
        assert_eq!(named(&header, &HeadKey::InBody, &one), Some(Named::Region("us")));
        assert_eq!(named(&header, &key("eu_1"), &two), Some(Named::Malformed));
        assert_eq!(named(&header, &key("k"), &with(&[b"\xff"])), Some(Named::Malformed));
        assert_eq!(named(&header, &key("k"), &HeaderMap::new()), Some(Named::Nothing));
        assert_eq!(named(&header, &HeadKey::Refused, &one), None);
    }
}
