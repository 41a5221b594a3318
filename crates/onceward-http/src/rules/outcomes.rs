//! Outcome policies: which responses are stored.

use std::collections::BTreeMap;

use http::StatusCode;
use onceward_core::Disposition;

use super::Fate;

/// Which responses are stored and replayed, which release the key, and which leave the outcome
/// unknown. A handler's own [`Fate`] takes precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcomes {
    /// 2xx, 3xx and deterministic 4xx are stored, a domain's 409 and 422 included.
    ///
    /// - 401, 403, 405, 407, 408, 413, 414, 415, 421, 425, 429 and 431 release the key: they mean
    ///   that the request was refused before it had an effect.
    /// - A 5xx leaves the outcome unknown: it proves neither that the effect took place nor that it
    ///   did not.
    Careful,
    /// Like Stripe's v1: 400, 401, 403, 409 and 429 release the key, all others are stored.
    StripeV1,
    /// 1xx to 3xx are stored, every error releases the key. Only where an error means that nothing
    /// happened.
    SuccessOnly,
    /// By status or class of statuses, and careful for the rest.
    Custom(OutcomeMap),
}

/// Fates by status and by class of statuses. A [`Disposition`] is a fate too.
///
/// ```
/// use onceward_http::{Fate, OutcomeMap};
///
/// // The service answers 503 before it does anything, and a 201 has a card number.
/// let map = OutcomeMap::default()
///     .status(503, Fate::NothingHappened)
///     .status(201, Fate::FinalHead);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutcomeMap {
    statuses: BTreeMap<u16, Fate>,
    classes: BTreeMap<u16, Fate>,
}

impl OutcomeMap {
    /// Sets the fate of responses with one status.
    #[must_use]
    pub fn status(mut self, status: u16, fate: impl Into<Fate>) -> Self {
        self.statuses.insert(status, fate.into());
        self
    }

    /// Sets the fate of responses of a class of statuses: 4 for all 4xx.
    #[must_use]
    pub fn class(mut self, class: u16, fate: impl Into<Fate>) -> Self {
        self.classes.insert(class, fate.into());
        self
    }
}

impl Outcomes {
    /// Returns the disposition of a response with this status.
    pub fn disposition(&self, status: StatusCode) -> Disposition {
        self.fate(status).into()
    }

    /// Returns the fate of a response with this status.
    pub fn fate(&self, status: StatusCode) -> Fate {
        let code = status.as_u16();
        match self {
            Self::Careful => careful(code).into(),
            Self::StripeV1 => release_if(matches!(code, 400 | 401 | 403 | 409 | 429)).into(),
            Self::SuccessOnly => release_if(code >= 400).into(),
            Self::Custom(map) => map
                .statuses
                .get(&code)
                .or_else(|| map.classes.get(&(code / 100)))
                .copied()
                .unwrap_or_else(|| careful(code).into()),
        }
    }
}

fn careful(code: u16) -> Disposition {
    match code {
        401 | 403 | 405 | 407 | 408 | 413 | 414 | 415 | 421 | 425 | 429 | 431 => {
            Disposition::Release
        }
        500.. => Disposition::Unknown,
        _ => Disposition::Keep,
    }
}

fn release_if(nothing_happened: bool) -> Disposition {
    if nothing_happened { Disposition::Release } else { Disposition::Keep }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Disposition::{Keep, Release, Unknown};

    fn of(outcomes: &Outcomes, code: u16) -> Disposition {
        outcomes.disposition(StatusCode::from_u16(code).unwrap())
    }

    #[test]
    fn each_policy_keeps_what_it_says() {
        for (code, careful, stripe, success) in [
            (201, Keep, Keep, Keep),
            (303, Keep, Keep, Keep),
            (400, Keep, Release, Release),
            (402, Keep, Keep, Release),
            (409, Keep, Release, Release),
            (422, Keep, Keep, Release),
            (429, Release, Release, Release),
            (500, Unknown, Keep, Release),
            (503, Unknown, Keep, Release),
        ] {
            assert_eq!(of(&Outcomes::Careful, code), careful, "careful {code}");
            assert_eq!(of(&Outcomes::StripeV1, code), stripe, "stripe {code}");
            assert_eq!(of(&Outcomes::SuccessOnly, code), success, "success-only {code}");
        }
    }

    #[test]
    fn a_status_goes_before_its_class_and_the_rest_is_careful() {
        let map = OutcomeMap::default().class(5, Keep).status(503, Release);
        let outcomes = Outcomes::Custom(map);
        assert_eq!(of(&outcomes, 500), Keep);
        assert_eq!(of(&outcomes, 503), Release);
        assert_eq!(of(&outcomes, 429), Release);
        assert_eq!(of(&outcomes, 201), Keep);
        assert_eq!(of(&Outcomes::Custom(OutcomeMap::default()), 500), Unknown);
    }
}
