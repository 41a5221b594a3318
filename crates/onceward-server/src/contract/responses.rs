//! Which responses are stored, by status.

use std::collections::BTreeMap;

use http::StatusCode;
use onceward_http::{Fate, Outcomes, ResponseBody};
use serde::{Serialize, Serializer};

/// The statuses of an outcome policy, by what they do to the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ResponseTerms {
    /// The response is stored, and retries get it.
    pub(super) stored: Statuses,
    /// Status and headers are stored, and the body is not: a retry is told so.
    pub(super) without_body: Statuses,
    /// Nothing happened: a retry is executed.
    pub(super) free: Statuses,
    /// It is not known what happened: a retry is refused.
    pub(super) unknown: Statuses,
}

/// Statuses: classes such as 4xx, and single ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Statuses(Vec<StatusSet>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusSet {
    /// All statuses that begin with this digit.
    Class(u16),
    /// Those of them that are not named elsewhere.
    RestOfClass(u16),
    One(u16),
}

impl ResponseTerms {
    /// Asks the policy about each status, so that there is no second list of them.
    pub(super) fn of(outcomes: &Outcomes, body: ResponseBody) -> Self {
        let [mut stored, mut without_body, mut free, mut unknown] =
            [const { Statuses(Vec::new()) }; 4];
        for class in 2..=5 {
            let by_status = fate_by_status(outcomes, body, class);
            let usual = most_common(&by_status);
            let is_uniform = by_status.values().all(|it| *it == usual);
            let mut add = |fate, set| match fate {
                Fate::Final => stored.0.push(set),
                Fate::FinalHead => without_body.0.push(set),
                Fate::NothingHappened => free.0.push(set),
                Fate::Unknown => unknown.0.push(set),
            };
            let rest = if is_uniform { StatusSet::Class } else { StatusSet::RestOfClass };
            add(usual, rest(class));
            let exceptions = by_status.into_iter().filter(|(_, it)| *it != usual);
            exceptions.for_each(|(code, fate)| add(fate, StatusSet::One(code)));
        }
        Self { stored, without_body, free, unknown }
    }
}

fn fate_by_status(outcomes: &Outcomes, body: ResponseBody, class: u16) -> BTreeMap<u16, Fate> {
    let fate = |status| match (outcomes.fate(status), body) {
        (Fate::Final, ResponseBody::Omit) => Fate::FinalHead,
        (fate, _) => fate,
    };
    let codes = class * 100..(class + 1) * 100;
    let statuses = codes.filter_map(|code| StatusCode::from_u16(code).ok());
    statuses.map(|status| (status.as_u16(), fate(status))).collect()
}

fn most_common(by_status: &BTreeMap<u16, Fate>) -> Fate {
    let all = [Fate::Final, Fate::FinalHead, Fate::NothingHappened, Fate::Unknown];
    let count = |wanted: &Fate| by_status.values().filter(|it| *it == wanted).count();
    all.into_iter().max_by_key(count).unwrap_or(Fate::Unknown)
}

impl Statuses {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether it contains statuses that begin with this digit.
    pub(super) fn has_class(&self, digit: u16) -> bool {
        self.0.iter().any(|set| match set {
            StatusSet::Class(class) | StatusSet::RestOfClass(class) => *class == digit,
            StatusSet::One(code) => code / 100 == digit,
        })
    }

    /// In English, such as `2xx`, `all other 4xx` and `401`.
    pub(super) fn words(&self) -> Vec<String> {
        let word = |set: &StatusSet| match set {
            StatusSet::Class(class) => format!("{class}xx"),
            StatusSet::RestOfClass(class) => format!("all other {class}xx"),
            StatusSet::One(code) => code.to_string(),
        };
        self.0.iter().map(word).collect()
    }
}

/// `"2xx"` for a class, of which other lists may have exceptions, and `"401"` for a status.
impl Serialize for Statuses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|set| match set {
            StatusSet::Class(class) | StatusSet::RestOfClass(class) => format!("{class}xx"),
            StatusSet::One(code) => code.to_string(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceward_http::OutcomeMap;

    fn words(outcomes: &Outcomes) -> [String; 3] {
        let terms = ResponseTerms::of(outcomes, ResponseBody::Store);
        let ResponseTerms { stored, without_body, free, unknown } = terms;
        assert!(without_body.is_empty());
        [stored, free, unknown].map(|statuses| statuses.words().join(" "))
    }

    #[test]
    fn each_policy_is_told_by_classes_and_exceptions() {
        let careful = words(&Outcomes::Careful);
        assert_eq!(careful[0], "2xx 3xx all other 4xx");
        assert_eq!(careful[1], "401 403 405 407 408 413 414 415 421 425 429 431");
        assert_eq!(careful[2], "5xx");
        let stripe = words(&Outcomes::StripeV1);
        assert_eq!(stripe, ["2xx 3xx all other 4xx 5xx", "400 401 403 409 429", ""]);
        assert_eq!(words(&Outcomes::SuccessOnly), ["2xx 3xx", "4xx 5xx", ""]);
        let map = OutcomeMap::default().class(5, Fate::Final);
        let map = map.status(503, Fate::NothingHappened).class(4, Fate::Final);
        let custom = words(&Outcomes::Custom(map));
        assert_eq!(custom, ["2xx 3xx 4xx all other 5xx", "503", ""]);
    }

    #[test]
    fn bodies_that_are_not_stored_are_told() {
        let without = |outcomes: &Outcomes, body| {
            let ResponseTerms { stored, without_body, .. } = ResponseTerms::of(outcomes, body);
            [stored, without_body].map(|statuses| statuses.words().join(" "))
        };
        let omitted = without(&Outcomes::Careful, ResponseBody::Omit);
        assert_eq!(omitted, ["", "2xx 3xx all other 4xx"]);
        let card = Outcomes::Custom(OutcomeMap::default().status(201, Fate::FinalHead));
        let one = without(&card, ResponseBody::Store);
        assert_eq!(one, ["all other 2xx 3xx all other 4xx", "201"]);
    }
}
