//! Retention of outcomes that operators store.

use std::collections::HashMap;
use std::time::Duration;

use onceward_core::{Expiry, Policy, Retention, Scope};

use crate::config::{Config, RuleSettings};

/// The retention of every operation. An outcome that an operator stores is kept as long as the
/// service's own response would be.
#[derive(Debug, Clone)]
pub(crate) struct RetentionRules {
    by_operation: HashMap<String, Retention>,
    default: Retention,
}

impl RetentionRules {
    /// The retention that a configuration sets.
    pub(crate) fn of(config: &Config) -> Self {
        let by_operation = config.operations.iter().map(|operation| {
            let unnamed = || format!("{} {}", operation.method.0, operation.route);
            let name = operation.name.clone().unwrap_or_else(unnamed);
            (name, retention(&operation.settings(&config.defaults)))
        });
        Self { by_operation: by_operation.collect(), default: retention(&config.defaults) }
    }

    /// One retention for all operations.
    pub(crate) fn uniform(retention: Retention) -> Self {
        Self { by_operation: HashMap::new(), default: retention }
    }

    /// Retention of an outcome in this scope; `keep` overrides its length.
    pub(crate) fn retention(&self, scope: &Scope, keep: Option<Duration>) -> Retention {
        let configured = self.by_operation.get(scope.operation()).copied().unwrap_or(self.default);
        Retention { keep: keep.unwrap_or(configured.keep), ..configured }
    }
}

fn retention(settings: &RuleSettings) -> Retention {
    let (rules, policy) = (settings.rules(), Policy::default().retention());
    let tombstone = match rules.expiry {
        Some(Expiry::Tombstone(tombstone)) => tombstone,
        Some(Expiry::Forget) | None => policy.tombstone,
    };
    Retention { keep: rules.ttl.unwrap_or(policy.keep), tombstone }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn an_operation_is_kept_by_its_own_ttl_or_the_default() {
        let text = "[defaults]\nttl = \"48h\"\n[[operations]]\nroute = \"/a\"\nttl = \"7d\"\n\
                    [[operations]]\nroute = \"/b\"\nname = \"b\"\nexpiry = \"tombstone\"\ntombstone = \"1h\"";
        let rules = RetentionRules::of(&Config::parse(text, Path::new("onceward.toml")).unwrap());
        let of = |operation: &str, keep| {
            rules.retention(&Scope::new("t", "c", operation).unwrap(), keep)
        };
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert_eq!(of("POST /a", None).keep, hours(7 * 24));
        assert_eq!(of("b", None), Retention { keep: hours(48), tombstone: hours(1) });
        assert_eq!(of("else", None).keep, hours(48));
        assert_eq!(of("b", Some(hours(2))).keep, hours(2));
    }
}
