//! The home regions of keys, in the clients' words.

use serde::Serialize;

use crate::config::{HomeSource, Others, Region, Unnamed};

/// The regions of an API: each key belongs to one, and is executed there only.
#[derive(Debug, Serialize)]
pub(super) struct Regions {
    /// The names. The first one is that of this gateway.
    pub(super) names: Vec<String>,
    /// The characters between the region and the rest of a key. `None` if the API finds the region
    /// of a key by itself.
    pub(super) separator: Option<String>,
    /// True if any region takes a request, and executes it in the key's own.
    pub(super) forwards: bool,
    pub(super) unnamed: UnnamedKeys,
}

/// Keys that name no region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum UnnamedKeys {
    /// They are refused.
    Refused,
    /// They belong to this region.
    BelongTo(String),
    /// They are executed in each region that they reach.
    ExecutedAnywhere,
}

impl Regions {
    pub(super) fn of(region: &Region) -> Self {
        let Region {
            name: _,
            of_key,
            others,
            unnamed,
            connect_timeout: _,
            response_timeout: _,
            ca: _,
            gateways: _,
        } = region;
        Self {
            names: region.names().map(str::to_owned).collect(),
            separator: match of_key {
                HomeSource::PrefixBefore(separator) => Some(separator.as_str().to_owned()),
                // A proxy sets it; clients do not know its name.
                HomeSource::Header(_) => None,
            },
            forwards: *others == Others::Forward,
            unnamed: match unnamed {
                Unnamed::Refuse => UnnamedKeys::Refused,
                Unnamed::Home(home) => UnnamedKeys::BelongTo(home.as_str().to_owned()),
                Unnamed::Here => UnnamedKeys::ExecutedAnywhere,
            },
        }
    }

    /// Returns the beginning of a key, for an example.
    pub(super) fn prefix(&self) -> String {
        let name = self.names.first().map_or("", String::as_str);
        self.separator.as_ref().map_or(String::new(), |separator| format!("{name}{separator}"))
    }
}
