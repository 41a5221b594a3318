//! Whose key it is, and for what: two different business intents never share a record.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use super::key::is_printable;

/// Longest accepted part of a scope, in bytes.
pub const SCOPE_PART_BYTES_MAX: usize = 255;

/// The tenant of what Onceward keeps for itself in a store. Callers cannot be it.
pub const INTERNAL_TENANT: &str = "onceward:internal";

/// Parts never contain control characters, so this one keeps them apart.
pub(crate) const SEPARATOR: u8 = 0x1f;

/// Enough for most scopes, which are then joined without an allocation more.
const JOINED_BYTES: usize = 128;

/// Prefix of a caller that is bound to its key by credentials. See [`Scope::bound`].
const BOUND: &str = "credentials:";

/// The namespace of a key: tenant, caller and operation, and where the operation needs it
/// an API version, a parent resource and a region.
///
/// The same key in two scopes names two intents. Cheap to clone: one shared allocation.
///
/// ```
/// use onceward_core::Scope;
///
/// let scope = Scope::new("tenant-a", "checkout", "payments.create")?.with_api_version("2026-11")?;
/// assert_eq!(scope.operation(), "payments.create");
/// assert_eq!(scope.api_version(), Some("2026-11"));
/// # Ok::<(), onceward_core::InvalidScope>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(Arc<str>);

/// The parts of a [`Scope`], in the order in which they are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScopePart {
    /// Who owns the data.
    Tenant,
    /// Who sent the command: a user, a client, a service.
    Caller,
    /// Which command it is, for example `payments.create`.
    Operation,
    /// The version of the API, where it changes what a request means.
    ApiVersion,
    /// The resource that the command works under, such as an account or a cart.
    Parent,
    /// The region, where each region decides for itself.
    Region,
}

const PARTS: usize = 6;

impl Scope {
    /// A scope of the three parts that every intent has.
    pub fn new(tenant: &str, caller: &str, operation: &str) -> Result<Self, InvalidScope> {
        if caller.starts_with(BOUND) {
            return Err(InvalidScope::Reserved);
        }
        Self::restored(tenant, caller, operation)
    }

    /// A scope as a store reads it back: made by [`Scope::new`] or by [`Scope::bound`].
    pub fn restored(tenant: &str, caller: &str, operation: &str) -> Result<Self, InvalidScope> {
        Ok(Self::joined([
            checked(ScopePart::Tenant, tenant)?,
            checked(ScopePart::Caller, caller)?,
            checked(ScopePart::Operation, operation)?,
            "",
            "",
            "",
        ]))
    }

    /// A scope whose keys all callers share, and whose caller is known by a digest of its
    /// credentials.
    ///
    /// The digest is no part of a record's identity: the same key under other credentials leads
    /// to the same record, where it is refused instead of run a second time. The digest belongs
    /// into the fingerprint too, which is what refuses it.
    ///
    /// ```
    /// use onceward_core::{Identity, Key, Scope};
    ///
    /// let (first, retry) = (Scope::bound("acme", "3f9a", "pay")?, Scope::bound("acme", "77c0", "pay")?);
    /// let (identity, key) = (Identity::unkeyed(), Key::new("order-1")?);
    /// assert_ne!(first, retry);
    /// assert_eq!(identity.record_id(&first, &key), identity.record_id(&retry, &key));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bound(
        tenant: &str,
        credentials_digest: &str,
        operation: &str,
    ) -> Result<Self, InvalidScope> {
        Self::restored(tenant, &format!("{BOUND}{credentials_digest}"), operation)
    }

    /// The scope of what Onceward keeps for itself.
    #[expect(clippy::expect_used, reason = "the parts are constants")]
    pub(crate) fn internal(purpose: &'static str) -> Self {
        Self::new(INTERNAL_TENANT, "onceward", purpose).expect("constant parts are valid")
    }

    /// Whether the caller is known by its credentials alone: see [`Scope::bound`].
    pub fn is_bound(&self) -> bool {
        self.caller().starts_with(BOUND)
    }

    /// The same scope for one version of the API.
    pub fn with_api_version(&self, version: &str) -> Result<Self, InvalidScope> {
        self.with(ScopePart::ApiVersion, version)
    }

    /// The same scope under one parent resource.
    pub fn with_parent(&self, parent: &str) -> Result<Self, InvalidScope> {
        self.with(ScopePart::Parent, parent)
    }

    /// The same scope in one region.
    pub fn with_region(&self, region: &str) -> Result<Self, InvalidScope> {
        self.with(ScopePart::Region, region)
    }

    fn with(&self, part: ScopePart, text: &str) -> Result<Self, InvalidScope> {
        let mut parts = self.parts();
        parts[part as usize] = checked(part, text)?;
        Ok(Self::joined(parts))
    }

    fn joined(parts: [&str; PARTS]) -> Self {
        let mut room = [0; JOINED_BYTES];
        let mut left = &mut room[..];
        let fit = parts.iter().enumerate().all(|(index, part)| {
            (index == 0 || left.write_all(&[SEPARATOR]).is_ok())
                && left.write_all(part.as_bytes()).is_ok()
        });
        let unused = left.len();
        match str::from_utf8(&room[..JOINED_BYTES - unused]) {
            Ok(joined) if fit => Self(joined.into()),
            _ => Self(parts.join("\u{1f}").into()),
        }
    }

    /// Who owns the data.
    pub fn tenant(&self) -> &str {
        self.parts()[ScopePart::Tenant as usize]
    }

    /// Who sent the command.
    pub fn caller(&self) -> &str {
        self.parts()[ScopePart::Caller as usize]
    }

    /// Which command it is.
    pub fn operation(&self) -> &str {
        self.parts()[ScopePart::Operation as usize]
    }

    /// The version of the API, if it is part of the scope.
    pub fn api_version(&self) -> Option<&str> {
        self.optional(ScopePart::ApiVersion)
    }

    /// The parent resource, if it is part of the scope.
    pub fn parent(&self) -> Option<&str> {
        self.optional(ScopePart::Parent)
    }

    /// The region, if it is part of the scope.
    pub fn region(&self) -> Option<&str> {
        self.optional(ScopePart::Region)
    }

    fn optional(&self, part: ScopePart) -> Option<&str> {
        Some(self.parts()[part as usize]).filter(|text| !text.is_empty())
    }

    /// All six parts in order; an absent one is empty, which no present one ever is.
    pub(crate) fn parts(&self) -> [&str; PARTS] {
        let mut parts = [""; PARTS];
        for (slot, part) in parts.iter_mut().zip(self.0.split(char::from(SEPARATOR))) {
            *slot = part;
        }
        parts
    }

    /// The bytes of all six parts in order, as far as they tell two records apart: a bound
    /// caller's digest does not.
    pub(crate) fn identity_parts(&self) -> impl Iterator<Item = &[u8]> {
        let parts = self.as_bytes().split(|byte| *byte == SEPARATOR).enumerate();
        parts.map(|(position, part)| match part.strip_prefix(BOUND.as_bytes()) {
            Some(_digest) if position == ScopePart::Caller as usize => BOUND.as_bytes(),
            _ => part,
        })
    }

    /// All parts in one: equal exactly if the scopes are.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.len() + 2 * size_of::<usize>()
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let present: Vec<_> = self.parts().into_iter().filter(|part| !part.is_empty()).collect();
        write!(f, "Scope({})", present.join("/"))
    }
}

fn checked(part: ScopePart, text: &str) -> Result<&str, InvalidScope> {
    if text.is_empty() {
        return Err(InvalidScope::Empty { part });
    }
    if text.len() > SCOPE_PART_BYTES_MAX {
        return Err(InvalidScope::TooLong { part, length: text.len() });
    }
    if is_printable(text) {
        return Ok(text); // as nearly always, and quickly
    }
    match text.chars().enumerate().find(|(_, c)| c.is_control()) {
        Some((position, character)) => Err(InvalidScope::Character { part, character, position }),
        None => Ok(text),
    }
}

/// Why a text cannot be part of a [`Scope`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidScope {
    /// A caller that looks like one of [`Scope::bound`].
    #[error("callers that begin with {BOUND:?} are reserved; name the caller in another way")]
    Reserved,
    /// A part that must be there is empty.
    #[error("the scope's {part} is empty")]
    Empty {
        /// Which part.
        part: ScopePart,
    },
    /// A part is longer than [`SCOPE_PART_BYTES_MAX`].
    #[error("the scope's {part} has {length} bytes; at most {SCOPE_PART_BYTES_MAX} are allowed")]
    TooLong {
        /// Which part.
        part: ScopePart,
        /// How many bytes it has.
        length: usize,
    },
    /// A part has a control character.
    #[error("the scope's {part} has the control character {character:?} at position {position}")]
    Character {
        /// Which part.
        part: ScopePart,
        /// The character that is not allowed.
        character: char,
        /// Its position, counted from zero.
        position: usize,
    },
}

impl InvalidScope {
    /// Which part it is.
    pub const fn part(&self) -> ScopePart {
        match self {
            Self::Reserved => ScopePart::Caller,
            Self::Empty { part } | Self::TooLong { part, .. } | Self::Character { part, .. } => {
                *part
            }
        }
    }
}

impl fmt::Display for ScopePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tenant => "tenant",
            Self::Caller => "caller",
            Self::Operation => "operation",
            Self::ApiVersion => "API version",
            Self::Parent => "parent resource",
            Self::Region => "region",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_as_they_went_in() {
        let scope = Scope::new("acme", "alice", "orders.create").unwrap();
        assert_eq!((scope.tenant(), scope.caller()), ("acme", "alice"));
        assert_eq!((scope.api_version(), scope.parent(), scope.region()), (None, None, None));

        let scope = scope.with_region("eu").unwrap().with_parent("cart-7").unwrap();
        assert_eq!((scope.parent(), scope.region()), (Some("cart-7"), Some("eu")));
        assert_eq!(scope.operation(), "orders.create");
    }

    #[test]
    fn so_do_long_ones() {
        // Around what is joined without an allocation more, in letters of one byte and of two.
        for letter in ["x", "é"] {
            for length in (40..=64).chain([127]) {
                let (tenant, caller) = (letter.repeat(length), letter.repeat(length / 2));
                let scope = Scope::new(&tenant, &caller, "op").unwrap();
                assert_eq!(scope.parts(), [&*tenant, &*caller, "op", "", "", ""]);
                assert!(scope.identity_parts().eq(scope.parts().map(str::as_bytes)));
            }
        }
    }

    #[test]
    fn a_bound_caller_is_kept_and_names_no_record_and_cannot_be_posed_as() {
        let scope = Scope::bound("acme", "3f9a", "pay").unwrap();
        assert_eq!((scope.caller(), scope.is_bound()), ("credentials:3f9a", true));
        let parts: Vec<_> = scope.identity_parts().collect();
        assert_eq!(parts[..3], [&b"acme"[..], b"credentials:", b"pay"]);
        assert_eq!(Scope::new("acme", "credentials:3f9a", "pay"), Err(InvalidScope::Reserved));
        assert_eq!(Scope::restored("acme", scope.caller(), "pay"), Ok(scope));
        assert!(!Scope::new("credentials:x", "alice", "credentials:y").unwrap().is_bound());
    }

    #[test]
    fn a_part_that_could_pose_as_two_is_refused() {
        let error = Scope::new("acme\u{1f}alice", "x", "y").unwrap_err();
        assert!(error.to_string().contains("tenant"), "{error}");
        assert!(Scope::new("", "x", "y").is_err());
        assert!(Scope::new(&"t".repeat(256), "x", "y").unwrap_err().to_string().contains("256"));
    }
}
