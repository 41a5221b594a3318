//! The commented reference of all settings, and searching it.

/// A file with every setting and its default. A test compares it with the code.
pub const REFERENCE: &str = include_str!("reference.toml");

/// Returns the reference's text about a setting, such as `defaults.ttl`, or about a section. An
/// empty name returns everything.
pub fn explain(asked: &str) -> Option<String> {
    let mut entries = Entries::default();
    REFERENCE.lines().for_each(|line| entries.read(line));
    let inside = |name: &str| {
        let section = name.strip_prefix(asked).is_some_and(|rest| rest.starts_with('.'));
        asked.is_empty() || name == asked || section
    };
    let found: Vec<_> = entries.found.into_iter().filter(|(name, _)| inside(name)).collect();
    let text = found.iter().map(|(name, text)| format!("{name}\n{text}\n"));
    (!found.is_empty()).then(|| text.collect())
}

/// Reads the reference line by line.
#[derive(Default)]
struct Entries {
    section: String,
    comment: String,
    /// A setting followed the comment, so the next line of text begins a new one.
    comment_used: bool,
    found: Vec<(String, String)>,
}

impl Entries {
    fn read(&mut self, line: &str) {
        // A setting that is not set by default is commented out.
        let bare = line.strip_prefix("# ").unwrap_or(line);
        if let Some(section) = section_of(bare) {
            self.section = section.to_owned();
            self.add(section.to_owned(), "");
        } else if let Some(name) = setting_of(bare) {
            let dot = if self.section.is_empty() { "" } else { "." };
            let default = if bare == line { "default" } else { "example" };
            self.add(format!("{}{dot}{name}", self.section), &format!("    {default}: {bare}\n"));
        } else if line.is_empty() {
            self.comment.clear();
        } else {
            if std::mem::take(&mut self.comment_used) {
                self.comment.clear();
            }
            self.comment.push_str(&format!("    {bare}\n"));
        }
    }

    /// Adds a setting. A comment belongs to all settings that directly follow it.
    fn add(&mut self, name: String, default: &str) {
        let text = format!("{}{default}", self.comment);
        self.comment_used = true;
        if default.is_empty() {
            self.comment.clear();
        }
        self.found.push((name, text));
    }
}

fn section_of(line: &str) -> Option<&str> {
    let name = line.strip_prefix('[')?.strip_suffix(']')?;
    Some(name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name))
}

fn setting_of(line: &str) -> Option<&str> {
    let (name, _) = line.split_once(" = ")?;
    name.bytes()
        .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_')
        .then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::path::Path;

    #[test]
    fn a_setting_is_explained_with_its_default() {
        let ttl = explain("defaults.ttl").unwrap();
        assert!(
            ttl.contains("longer than clients retry") && ttl.contains("ttl = \"24h\""),
            "{ttl}"
        );
        assert!(explain("upstream").unwrap().contains("upstream.idle"));
        assert!(explain("scope.jwt").unwrap().contains("scope.jwt.issuer"));
        assert_eq!(explain("defaults.tll"), None);
    }

    #[test]
    fn a_setting_is_explained_by_its_own_comment_only() {
        let lease = explain("defaults.lease").unwrap();
        assert_eq!(
            lease,
            "defaults.lease\n    How long a claim lasts without being renewed.\n    \
             default: lease = \"30s\"\n\n"
        );
        // One comment for two settings.
        let both = "Shortest and longest key.";
        for setting in ["defaults.key_min", "defaults.key_max"] {
            let told = explain(setting).unwrap();
            assert!(told.contains(both) && told.lines().count() == 4, "{told}");
        }
        let address = explain("resolver.http.token_env").unwrap();
        assert!(!address.contains("A row"), "{address}");
    }

    #[test]
    fn the_reference_is_the_default() {
        let read = Config::parse(REFERENCE, Path::new("reference.toml")).unwrap();
        let default = Config::default();
        assert_eq!(read.listeners, default.listeners);
        assert_eq!(read.upstream, default.upstream);
        assert_eq!(read.store, default.store);
        assert_eq!(read.quotas, default.quotas);
        assert_eq!(read.limits, default.limits);
        assert_eq!(read.telemetry, default.telemetry);
        assert_eq!(read.defaults.rules(), {
            let mut rules = default.defaults.rules();
            // The reference states the engine's own defaults.
            rules.ttl = Some(std::time::Duration::from_secs(24 * 3600));
            rules.lease = Some(std::time::Duration::from_secs(30));
            rules.retry_after = Some(std::time::Duration::from_secs(1));
            rules.replay_check = Some(onceward_core::ReplayCheck::Never);
            rules.on_lapse = Some(onceward_core::OnLapse::Unknown);
            rules.expiry = Some(onceward_core::Expiry::Forget);
            rules
        });
        let policy = onceward_core::Policy::default();
        assert_eq!(policy.lease(), std::time::Duration::from_secs(30));
        assert_eq!(policy.retry_after(), std::time::Duration::from_secs(1));
    }

    /// Finds every field of the structs by its name in the reference.
    #[test]
    fn the_reference_names_every_setting() {
        let text: String = REFERENCE
            .lines()
            .map(|line| {
                let bare = line.strip_prefix("# ").unwrap_or(line);
                let kept = section_of(bare).is_some() || setting_of(bare).is_some();
                if kept { format!("{bare}\n") } else { String::new() }
            })
            .collect();
        let parsed: toml::Table = text.parse().unwrap();
        let mut named = std::collections::BTreeSet::new();
        names(&parsed, &mut named);
        for source in [
            include_str!("mod.rs"),
            include_str!("claims.rs"),
            include_str!("cors.rs"),
            include_str!("resolver.rs"),
            include_str!("rules.rs"),
        ] {
            let fields = source.split("#[cfg(test)]").next().unwrap_or_default().lines();
            let fields = fields.filter_map(|line| {
                let field = line.trim().strip_prefix("pub ").or_else(|| in_switches(line))?;
                let (name, kind) = field.split_once(": ")?;
                kind.ends_with(',').then_some(name)
            });
            for field in fields.filter(|it| !["path", "source"].contains(it)) {
                assert!(named.contains(field), "{field} is not in reference.toml");
            }
        }
    }

    fn in_switches(line: &str) -> Option<&str> {
        let field = line.strip_prefix("    ")?;
        field.starts_with(|first: char| first.is_ascii_lowercase()).then_some(field)
    }

    fn names(table: &toml::Table, found: &mut std::collections::BTreeSet<String>) {
        for (name, value) in table {
            found.insert(name.clone());
            match value {
                toml::Value::Table(inner) => names(inner, found),
                toml::Value::Array(items) => {
                    items.iter().filter_map(toml::Value::as_table).for_each(|it| names(it, found));
                }
                _ => {}
            }
        }
    }
}
