//! Rules of outcomes that resolvers and operators store.

use std::collections::HashMap;
use std::time::Duration;

use onceward_core::{Expiry, Policy, Retention, Scope};
use onceward_http::ResponseBody;

use crate::config::{Config, RuleSettings};

/// The rules of every operation. An outcome that an operator or a resolver stores is kept as long as
/// the service's own response would be, and without its body where that would not be stored.
#[derive(Debug, Clone)]
pub(crate) struct OutcomeRules {
    by_operation: HashMap<String, OutcomeRule>,
    default: OutcomeRule,
}

/// The rules of one operation.
#[derive(Debug, Clone, Copy)]
struct OutcomeRule {
    retention: Retention,
    response_body: ResponseBody,
}

impl OutcomeRules {
    /// The rules of a configuration.
    pub(crate) fn of(config: &Config) -> Self {
        let by_operation = config.operations.iter().map(|operation| {
            let unnamed = || format!("{} {}", operation.method.0, operation.route);
            let name = operation.name.clone().unwrap_or_else(unnamed);
            (name, OutcomeRule::of(&operation.settings(&config.defaults)))
        });
        Self { by_operation: by_operation.collect(), default: OutcomeRule::of(&config.defaults) }
    }

    /// The same with one retention for all operations.
    pub(crate) fn with_retention(mut self, retention: Retention) -> Self {
        let rules = self.by_operation.values_mut().chain([&mut self.default]);
        rules.for_each(|rule| rule.retention = retention);
        self
    }

    /// Retention of an outcome in this scope; `keep` overrides its length.
    pub(crate) fn retention(&self, scope: &Scope, keep: Option<Duration>) -> Retention {
        let configured = self.rule(scope).retention;
        Retention { keep: keep.unwrap_or(configured.keep), ..configured }
    }

    /// Whether the body of a response in this scope is stored.
    pub(crate) fn response_body(&self, scope: &Scope) -> ResponseBody {
        self.rule(scope).response_body
    }

    fn rule(&self, scope: &Scope) -> OutcomeRule {
        self.by_operation.get(scope.operation()).copied().unwrap_or(self.default)
    }
}

impl OutcomeRule {
    fn of(settings: &RuleSettings) -> Self {
        let (rules, policy) = (settings.rules(), Policy::default().retention());
        let tombstone = match rules.expiry {
            Some(Expiry::Tombstone(tombstone)) => tombstone,
            Some(Expiry::Forget) | None => policy.tombstone,
        };
        let retention = Retention { keep: rules.ttl.unwrap_or(policy.keep), tombstone };
        Self { retention, response_body: rules.response_body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn rules(text: &str) -> OutcomeRules {
        OutcomeRules::of(&Config::parse(text, Path::new("onceward.toml")).unwrap())
    }

    fn scope(operation: &str) -> Scope {
        Scope::new("t", "c", operation).unwrap()
    }

    #[test]
    fn an_operation_is_kept_by_its_own_ttl_or_the_default() {
        let text = "[defaults]\nttl = \"48h\"\n[[operations]]\nroute = \"/a\"\nttl = \"7d\"\n\
                    [[operations]]\nroute = \"/b\"\nname = \"b\"\nexpiry = \"tombstone\"\ntombstone = \"1h\"";
        let rules = rules(text);
        let of = |operation: &str, keep| rules.retention(&scope(operation), keep);
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert_eq!(of("POST /a", None).keep, hours(7 * 24));
        assert_eq!(of("b", None), Retention { keep: hours(48), tombstone: hours(1) });
        assert_eq!(of("else", None).keep, hours(48));
        assert_eq!(of("b", Some(hours(2))).keep, hours(2));
    }

    #[test]
    fn a_body_is_omitted_by_the_operations_own_setting_or_the_default() {
        let text = "[[operations]]\nroute = \"/a\"\nresponse_body = \"store\"\n\
                    [[operations]]\nroute = \"/b\"\nname = \"b\"";
        let all = rules(&format!("[defaults]\nresponse_body = \"omit\"\n{text}"));
        let bodies = ["POST /a", "b", "else"].map(|it| all.response_body(&scope(it)));
        assert_eq!(bodies, [ResponseBody::Store, ResponseBody::Omit, ResponseBody::Omit]);
        assert_eq!(rules(text).response_body(&scope("b")), ResponseBody::Store);
    }
}
