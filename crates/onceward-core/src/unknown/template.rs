//! Templates of addresses and queries, with placeholders for an operation.

use std::fmt;

use crate::intent::{DownstreamKey, Identity, OperationId};
use crate::record::Record;

/// A text such as `/payments?operation={operation}`.
///
/// ```
/// use onceward_core::{Placeholder, Template};
///
/// let template: Template = "/payments/{reference}?by={tenant}".parse()?;
/// let filled = template.fill(|about| match about {
///     Placeholder::Reference => Some("RF18".to_owned()),
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
    Placeholder(Placeholder),
}

/// A placeholder, which stands for a value of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placeholder {
    /// `{operation}`: its id.
    Operation,
    /// `{downstream_key}`: its key for the next system.
    DownstreamKey,
    /// `{reference}`: its business reference, if it has one.
    Reference,
    /// `{tenant}`: the owner of the data.
    Tenant,
    /// `{caller}`: the sender of the command.
    Caller,
    /// `{operation_name}`: the command.
    OperationName,
}

impl Placeholder {
    const ALL: [(&'static str, Self); 6] = [
        ("operation", Self::Operation),
        ("downstream_key", Self::DownstreamKey),
        ("reference", Self::Reference),
        ("tenant", Self::Tenant),
        ("caller", Self::Caller),
        ("operation_name", Self::OperationName),
    ];

    /// Returns the value of a record. `None` for a reference that it does not have.
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

    /// Returns a value of an operation without a record, to probe an address or a query.
    pub fn of_no_record(self, operation: &OperationId) -> String {
        // A UUID, because queries often cast tenants and callers to one.
        const NIL: &str = "00000000-0000-0000-0000-000000000000";
        match self {
            Self::Operation => operation.to_string(),
            Self::DownstreamKey => DownstreamKey::of(operation).to_string(),
            Self::Reference => format!("onceward-probe-{operation}"),
            Self::Tenant | Self::Caller => NIL.to_owned(),
            Self::OperationName => "onceward.probe".to_owned(),
        }
    }

    /// True if its value is unique to one operation.
    const fn names_one(self) -> bool {
        match self {
            Self::Operation | Self::DownstreamKey | Self::Reference => true,
            Self::Tenant | Self::Caller | Self::OperationName => false,
        }
    }
}

/// A template has an unknown placeholder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the placeholder {placeholder} is unknown; use {{operation}}, {{downstream_key}}, \
     {{reference}}, {{tenant}}, {{caller}} or {{operation_name}}"
)]
pub struct InvalidTemplate {
    placeholder: String,
}

impl Template {
    /// Returns the text with its placeholders replaced. `None` if one has no value.
    pub fn fill(&self, mut value: impl FnMut(Placeholder) -> Option<String>) -> Option<String> {
        let filled = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => Some(text.clone()),
            Piece::Placeholder(about) => value(*about),
        });
        filled.collect()
    }

    /// True if it has `{operation}`, `{downstream_key}` or `{reference}`. Without one of them it
    /// asks the same about every operation.
    pub fn names_operation(&self) -> bool {
        self.pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Placeholder(about) if about.names_one()))
    }

    /// The text as it was written.
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
            let known = Placeholder::ALL.iter().find(|(known, _)| *known == name);
            let unknown = || InvalidTemplate { placeholder: format!("{{{name}}}") };
            let (_, about) = known.ok_or_else(unknown)?;
            pieces.extend([Piece::Text(before.to_owned()), Piece::Placeholder(*about)]);
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
