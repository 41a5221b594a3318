//! Warnings about a configuration that replaces another one: changes under which a key that was used
//! before is a new key, so that its next request runs again.

use super::lint::Warning;
use super::{Config, Region};

/// All warnings about replacing `before` by `after`.
pub fn changes(before: &Config, after: &Config) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |setting: &str, why: &str| {
        warnings.push(Warning { setting: setting.into(), why: why.into() });
    };
    let (old, new) = (&before.scope, &after.scope);
    for (setting, changed) in [
        ("scope.tenant", old.tenant != new.tenant),
        ("scope.caller", old.caller != new.caller),
        ("scope.api_version", old.api_version != new.api_version),
        ("scope.parent", old.parent != new.parent),
        ("scope.region", old.region != new.region),
        ("scope.single_tenant", old.single_tenant != new.single_tenant),
    ] {
        if changed {
            warn(setting, ANOTHER_SCOPE);
        }
    }
    if after.moves_keys_of(before) {
        warn("region", OTHER_HOMES);
    }
    for (name, url) in before.region.iter().flat_map(|region| &region.gateways) {
        let now = after.region.as_ref().and_then(|region: &Region| region.gateways.get(name));
        if now.is_some_and(|now| now != url) {
            warn(&format!("region.gateways.{}", name.as_str()), ANOTHER_GATEWAY);
        }
    }
    warnings
}

const ANOTHER_SCOPE: &str = "changes, so every key that was used before is a new key, and a retry of such a request runs \
     again; change it while no client retries (docs/gateway.md, \"Changing the scope\")";

const OTHER_HOMES: &str = "changes, so keys that were used before can belong to another region, \
     where their retries run again; docs/regions.md says in which order to change it";

const ANOTHER_GATEWAY: &str =
    "changes; if the gateway at the new address has another store, retries run again there";

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn changed(before: &str, after: &str) -> Vec<String> {
        let parse = |text: &str| Config::parse(text, Path::new("onceward.toml")).unwrap();
        let warnings = changes(&parse(before), &parse(after));
        warnings.into_iter().map(|warning| warning.setting).collect()
    }

    #[test]
    fn changes_that_make_keys_new_are_named_and_no_others() {
        let region = "[region]\nname = \"eu\"\nof_key = { prefix_before = \"_\" }\n";
        let us = |at: &str| format!("{region}[region.gateways]\nus = \"http://{at}\"\n");
        for (before, after, settings) in [
            ("", "[scope]\ncaller = \"each_credential\"", &["scope.caller"][..]),
            ("", "[scope]\nsingle_tenant = true", &["scope.single_tenant"]),
            ("[scope]\ntenant = \"host\"", "", &["scope.tenant"]),
            (
                "",
                "[scope]\napi_version = { fixed = \"1\" }\nregion = \"host\"",
                &["scope.api_version", "scope.region"],
            ),
            ("[scope]\nparent = { header = \"a\" }", "", &["scope.parent"]),
            ("", region, &["region"]),
            (&us("a"), &us("b"), &["region.gateways.us"]),
            (region, &us("b"), &[]),
            ("", "[defaults]\nttl = \"48h\"\n[scope]\ntrusted_peers = [\"10.0.0.1\"]", &[]),
        ] {
            assert_eq!(changed(before, after), settings, "{before} to {after}");
        }
    }
}
