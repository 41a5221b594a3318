//! Names of topics and subjects, made from an event's aggregate.

use std::fmt::Write as _;

use crate::event::Aggregate;

/// A name with `{aggregate_type}` and `{aggregate_id}` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Template(String);

/// The subject of an event, such as `shop.{aggregate_type}.{aggregate_id}`.
///
/// Characters of types and ids that have a meaning in subjects are percent-encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectTemplate(Template);

/// The topic of an event, such as `{aggregate_type}.events`.
///
/// Characters of types that topics cannot have become `_`, as Debezium does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicTemplate(Template);

/// Why a text is not a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {kind} {text:?} is not valid: {reason}")]
pub struct InvalidTemplate {
    kind: &'static str,
    text: String,
    reason: &'static str,
}

const TYPE: &str = "{aggregate_type}";
const ID: &str = "{aggregate_id}";

impl Template {
    fn parse(
        kind: &'static str,
        text: &str,
        fits: fn(char) -> bool,
    ) -> Result<Self, InvalidTemplate> {
        let invalid = |reason| InvalidTemplate { kind, text: text.to_owned(), reason };
        let rest = text.replace(TYPE, "").replace(ID, "");
        if text.is_empty() {
            return Err(invalid("it is empty"));
        }
        if rest.contains(['{', '}']) {
            return Err(invalid("the placeholders are {aggregate_type} and {aggregate_id}"));
        }
        if !rest.chars().all(fits) {
            return Err(invalid("it has a character that such names cannot have"));
        }
        Ok(Self(text.to_owned()))
    }

    fn fill(&self, aggregate: &Aggregate, encode: fn(&str) -> String) -> String {
        self.0.replace(TYPE, &encode(aggregate.kind())).replace(ID, &encode(aggregate.id()))
    }
}

impl SubjectTemplate {
    /// Reads a template.
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        let fits = |it: char| !it.is_whitespace() && !it.is_control() && it != '*' && it != '>';
        Ok(Self(Template::parse("subject", text, fits)?))
    }

    /// The subject of an aggregate's events.
    pub fn subject(&self, aggregate: &Aggregate) -> String {
        self.0.fill(aggregate, subject_token)
    }
}

impl Default for SubjectTemplate {
    fn default() -> Self {
        Self(Template(format!("{TYPE}.{ID}")))
    }
}

impl TopicTemplate {
    /// Reads a template.
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        let fits = |it: char| it.is_ascii_alphanumeric() || ".-_".contains(it);
        let template = Template::parse("topic", text, fits)?;
        if template.0.contains(ID) {
            let reason = "a topic for each aggregate would be too many: use {aggregate_type}";
            return Err(InvalidTemplate { kind: "topic", text: text.to_owned(), reason });
        }
        Ok(Self(template))
    }

    /// The topic of an aggregate's events.
    pub fn topic(&self, aggregate: &Aggregate) -> String {
        self.0.fill(aggregate, topic_part)
    }
}

impl Default for TopicTemplate {
    fn default() -> Self {
        Self(Template(format!("{TYPE}.events")))
    }
}

fn subject_token(text: &str) -> String {
    let mut token = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'.' | b'*' | b'>' | b'%' | b'$' => {
                let _never_fails_for_a_string = write!(token, "%{byte:02X}");
            }
            b'!'..=b'~' => token.push(char::from(byte)),
            _ => {
                let _never_fails_for_a_string = write!(token, "%{byte:02X}");
            }
        }
    }
    token
}

fn topic_part(text: &str) -> String {
    let fits = |it: char| it.is_ascii_alphanumeric() || ".-_".contains(it);
    text.chars().map(|it| if fits(it) { it } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_and_their_parts_encoded() {
        let aggregate = Aggregate::new("order", "A.1 *>").unwrap();
        let subject = SubjectTemplate::parse("shop.{aggregate_type}.{aggregate_id}").unwrap();
        assert_eq!(subject.subject(&aggregate), "shop.order.A%2E1%20%2A%3E");
        assert_eq!(SubjectTemplate::default().subject(&aggregate), "order.A%2E1%20%2A%3E");
        let aggregate = Aggregate::new("sales order", "1").unwrap();
        assert_eq!(TopicTemplate::default().topic(&aggregate), "sales_order.events");
    }

    #[test]
    fn what_is_no_template_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "empty"),
            ("{type}.events", "placeholders"),
            ("a b", "character"),
            ("{aggregate_id}", "too many"),
        ] {
            let refused = TopicTemplate::parse(text).unwrap_err().to_string();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
        assert!(SubjectTemplate::parse("orders.>").is_err());
    }
}
