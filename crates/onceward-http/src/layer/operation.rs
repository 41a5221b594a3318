//! Protected operations.

use http::Method;

use crate::rules::Rules;

/// A protected operation: a method and a route.
#[derive(Debug, Clone)]
#[must_use]
pub struct Operation {
    pub(super) method: Method,
    pub(super) route: String,
    pub(super) name: Option<String>,
    pub(super) rules: Rules,
}

impl Operation {
    /// An operation at a route template such as `/orders/{id}`. It requires a key.
    pub fn new(method: Method, route: impl Into<String>) -> Self {
        let rules = Rules { required: true, ..Rules::default() };
        Self { method, route: route.into(), name: None, rules }
    }

    /// A POST.
    pub fn post(route: impl Into<String>) -> Self {
        Self::new(Method::POST, route)
    }

    /// A PATCH.
    pub fn patch(route: impl Into<String>) -> Self {
        Self::new(Method::PATCH, route)
    }

    /// Sets the name (method and route). With a name, the route can change.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Returns whether the route has a parameter, `{name}` or `{*name}`.
    pub fn has_path_parameter(&self, name: &str) -> bool {
        [format!("{{{name}}}"), format!("{{*{name}}}")].iter().any(|it| self.route.contains(it))
    }

    /// Sets the rules.
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Changes some of the rules.
    pub fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(&mut self.rules);
        self
    }
}
