//! The part of the configuration that the APIs need.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;

use super::outcome_rules::OutcomeRules;
use super::problem::ApiProblem;
use super::tokens::{Caller, Tokens};

/// Tokens and rules of outcomes of one configuration.
pub(crate) struct ApiSettings {
    pub(crate) tokens: Tokens,
    pub(crate) outcome_rules: Arc<OutcomeRules>,
}

/// The settings in force. Clones share them, so a reload reaches every API.
#[derive(Clone)]
pub(crate) struct CurrentApiSettings(Arc<ArcSwap<ApiSettings>>);

impl CurrentApiSettings {
    pub(crate) fn new(settings: ApiSettings) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(settings)))
    }

    /// Replaces the settings, from the next request on.
    pub(crate) fn replace(&self, settings: ApiSettings) {
        self.0.store(Arc::new(settings));
    }

    /// The caller whose token a request has.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Arc<Caller>, ApiProblem> {
        self.0.load().tokens.caller(headers)
    }

    pub(crate) fn outcome_rules(&self) -> Arc<OutcomeRules> {
        Arc::clone(&self.0.load().outcome_rules)
    }
}
