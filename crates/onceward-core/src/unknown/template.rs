//! Texts with places for what is known about an operation: the addresses and queries of
//! resolvers.

use std::fmt;

use crate::intent::{DownstreamKey, Identity, OperationId};
use crate::record::Record;

/// A text such as `/payments?operation={operation}`.
///
/// ```
/// use onceward_core::{About, Template};
///
/// let template: Template = "/payments/{reference}?by={tenant}".parse()?;
/// let filled = template.fill(|about| match about {
///     About::Reference => Some("RF18".to_owned()),
///     _ => Some("acme".to_owned()),
/// });
/// assert_eq!(filled.as_deref(), Some("/payments/RF18?by=acme"));
/// assert!("{amount}".parse::<Template>().is_err());
/// # Ok::<(), onceward_core::InvalidTemplate>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    About(About),
}

/// What is known about an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum About {
    /// `{operation}`: its id.
    Operation,
    /// `{downstream_key}`: the key that it hands to the next system.
    DownstreamKey,
    /// `{reference}`: what the business calls it, if it does.
    Reference,
    /// `{tenant}`: who owns the data.
    Tenant,
    /// `{caller}`: who sent the command.
    Caller,
    /// `{operation_name}`: which command it is.
    OperationName,
}

impl About {
    const ALL: [(&'static str, Self); 6] = [
        ("operation", Self::Operation),
        ("downstream_key", Self::DownstreamKey),
        ("reference", Self::Reference),
        ("tenant", Self::Tenant),
        ("caller", Self::Caller),
        ("operation_name", Self::OperationName),
    ];

    /// What a record says; `None` for a reference that it does not have.
    pub fn of(self, record: &Record, identity: &Identity) -> Option<String> {
        Some(match self {
            Self::Operation => record.operation.to_string(),
            Self::DownstreamKey => DownstreamKey::of(&record.operation).to_string(),
            Self::Reference => identity.reference_of(record)?.to_owned(),
            Self::Tenant => record.scope.tenant().to_owned(),
            Self::Caller => record.scope.caller().to_owned(),
            Self::OperationName => record.scope.operation().to_owned(),
        })
    }
}

impl About {
    /// The value for an operation that has no record, to try an address or a query with.
    pub fn of_no_record(self, operation: &OperationId) -> String {
        // A UUID, because tenants and callers are often cast to one.
        const NIL: &str = "00000000-0000-0000-0000-000000000000";
        match self {
            Self::Operation => operation.to_string(),
            Self::DownstreamKey => DownstreamKey::of(operation).to_string(),
            Self::Reference => format!("onceward-probe-{operation}"),
            Self::Tenant | Self::Caller => NIL.to_owned(),
            Self::OperationName => "onceward.probe".to_owned(),
        }
    }

    /// Whether it names one operation among all others.
    const fn names_one(self) -> bool {
        match self {
            Self::Operation | Self::DownstreamKey | Self::Reference => true,
            Self::Tenant | Self::Caller | Self::OperationName => false,
        }
    }
}

/// A place in a template that nothing is known for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{place} is not known; there are {{operation}}, {{downstream_key}}, {{reference}}, {{tenant}}, \
     {{caller}} and {{operation_name}}"
)]
pub struct InvalidTemplate {
    place: String,
}

impl Template {
    /// The text with its places filled; `None` if one has nothing to be filled with.
    pub fn fill(&self, mut value: impl FnMut(About) -> Option<String>) -> Option<String> {
        let filled = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => Some(text.clone()),
            Piece::About(about) => value(*about),
        });
        filled.collect()
    }

    /// Whether it has `{operation}`, `{downstream_key}` or `{reference}`. Without one of them it asks
    /// the same about every operation.
    pub fn names_operation(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::About(about) if about.names_one()))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl std::str::FromStr for Template {
    type Err = InvalidTemplate;

    fn from_str(text: &str) -> Result<Self, InvalidTemplate> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').unwrap_or((after, ""));
            let known = About::ALL.iter().find(|(known, _)| *known == name);
            let place = || InvalidTemplate { place: format!("{{{name}}}") };
            let (_, about) = known.ok_or_else(place)?;
            pieces.extend([Piece::Text(before.to_owned()), Piece::About(*about)]);
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Self { text: text.to_owned(), pieces })
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({:?})", self.text)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
