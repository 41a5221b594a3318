//! Scopes: whose key it is, and for which operation.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use super::key::is_printable;

/// Longest part of a scope, in bytes.
pub const SCOPE_PART_BYTES_MAX: usize = 255;

/// Tenant of Onceward's own records. Reserved: it is never a caller's tenant.
pub const INTERNAL_TENANT: &str = "onceward:internal";

/// Separates the parts of a scope, which have no control characters.
pub(crate) const SEPARATOR: u8 = 0x1f;

/// Buffer in which most scopes are joined without another allocation.
const JOINED_BYTES: usize = 128;

/// Prefix of a caller that is known by its credentials. See [`Scope::bound`].
const BOUND: &str = "credentials:";

/// Prefix of the regions that Onceward uses itself, such as that of shadow mode.
const OWN_REGIONS: &str = "onceward:";

/// The namespace of a key: tenant, caller, operation, and optionally an API version, a parent
/// resource and a region.
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
    /// The owner of the data.
    Tenant,
    /// The sender of the command: a user, a client, a service.
    Caller,
    /// The command, for example `payments.create`.
    Operation,
    /// The version of the API, where it changes what a request means.
    ApiVersion,
    /// The resource that contains the command's effect, such as an account or a cart.
    Parent,
    /// The region, where each region decides on its own.
    Region,
}

const PARTS: usize = 6;

impl Scope {
    /// A scope of the three mandatory parts.
    pub fn new(tenant: &str, caller: &str, operation: &str) -> Result<Self, InvalidScope> {
        if caller.starts_with(BOUND) {
            return Err(InvalidScope::Reserved);
        }
        Self::restored(tenant, caller, operation)
    }

    /// A scope read back from a store, made by [`Scope::new`] or [`Scope::bound`].
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

    /// A scope whose caller is known only by a digest of its credentials, and whose keys all
    /// callers share.
    ///
    /// The digest is no part of the record's id: the same key with other credentials has the same
    /// record, and is refused there and not run a second time. For that the digest has to be in
    /// the fingerprint too.
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

    /// The scope of Onceward's own records.
    #[expect(clippy::expect_used, reason = "the parts are constants")]
    pub(crate) fn internal(purpose: &'static str) -> Self {
        Self::new(INTERNAL_TENANT, "onceward", purpose).expect("constant parts are valid")
    }

    /// True for a scope made by [`Scope::bound`].
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
        if region.starts_with(OWN_REGIONS) {
            return Err(InvalidScope::ReservedRegion);
        }
        self.with_restored_region(region)
    }

    /// The same scope in a region that was read back from a store, or that Onceward uses itself:
    /// its name may begin with `onceward:`.
    pub fn with_restored_region(&self, region: &str) -> Result<Self, InvalidScope> {
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

    /// The owner of the data.
    pub fn tenant(&self) -> &str {
        self.parts()[ScopePart::Tenant as usize]
    }

    /// The sender of the command.
    pub fn caller(&self) -> &str {
        self.parts()[ScopePart::Caller as usize]
    }

    /// The command.
    pub fn operation(&self) -> &str {
        self.parts()[ScopePart::Operation as usize]
    }

    /// The version of the API, if set.
    pub fn api_version(&self) -> Option<&str> {
        self.optional(ScopePart::ApiVersion)
    }

    /// The parent resource, if set.
    pub fn parent(&self) -> Option<&str> {
        self.optional(ScopePart::Parent)
    }

    /// The region, if set.
    pub fn region(&self) -> Option<&str> {
        self.optional(ScopePart::Region)
    }

    fn optional(&self, part: ScopePart) -> Option<&str> {
        Some(self.parts()[part as usize]).filter(|text| !text.is_empty())
    }

    /// All six parts in order. Absent parts are empty; present parts never are.
    pub(crate) fn parts(&self) -> [&str; PARTS] {
        let mut parts = [""; PARTS];
        for (slot, part) in parts.iter_mut().zip(self.0.split(char::from(SEPARATOR))) {
            *slot = part;
        }
        parts
    }

    /// The bytes of all six parts in order, without the digest of a bound caller.
    pub(crate) fn identity_parts(&self) -> impl Iterator<Item = &[u8]> {
        let parts = self.as_bytes().split(|byte| *byte == SEPARATOR).enumerate();
        parts.map(|(position, part)| match part.strip_prefix(BOUND.as_bytes()) {
            Some(_digest) if position == ScopePart::Caller as usize => BOUND.as_bytes(),
            _ => part,
        })
    }

    /// All parts in one: equal if and only if the scopes are.
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
        return Ok(text); // the usual case, checked quickly
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
    /// The caller has the prefix of [`Scope::bound`].
    #[error("callers that begin with {BOUND:?} are reserved; use another caller name")]
    Reserved,
    /// The region has the prefix of Onceward's own regions.
    #[error("regions that begin with {OWN_REGIONS:?} are reserved; use another region name")]
    ReservedRegion,
    /// A mandatory part is empty.
    #[error("the scope's {part} is empty")]
    Empty {
        /// The part.
        part: ScopePart,
    },
    /// A part is longer than [`SCOPE_PART_BYTES_MAX`].
    #[error("the scope's {part} has {length} bytes; at most {SCOPE_PART_BYTES_MAX} are allowed")]
    TooLong {
        /// The part.
        part: ScopePart,
        /// Its number of bytes.
        length: usize,
    },
    /// A part has a control character.
    #[error("the scope's {part} has the control character {character:?} at position {position}")]
    Character {
        /// The part.
        part: ScopePart,
        /// The character that is not allowed.
        character: char,
        /// Its position, counted from zero.
        position: usize,
    },
}

impl InvalidScope {
    /// The part that is not valid.
    pub const fn part(&self) -> ScopePart {
        match self {
            Self::Reserved => ScopePart::Caller,
            Self::ReservedRegion => ScopePart::Region,
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
    fn parts_are_returned_unchanged() {
        let scope = Scope::new("acme", "alice", "orders.create").unwrap();
        assert_eq!((scope.tenant(), scope.caller()), ("acme", "alice"));
        assert_eq!((scope.api_version(), scope.parent(), scope.region()), (None, None, None));

        let scope = scope.with_region("eu").unwrap().with_parent("cart-7").unwrap();
        assert_eq!((scope.parent(), scope.region()), (Some("cart-7"), Some("eu")));
        assert_eq!(scope.operation(), "orders.create");
    }

    #[test]
    fn long_parts_are_returned_unchanged() {
        // Around the size of the buffer, in letters of one byte and of two.
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

    /// A client that names its region must not reach the records of shadow mode.
    #[test]
    fn a_region_of_onceward_itself_is_only_restored() {
        let scope = Scope::new("acme", "alice", "pay").unwrap();
        assert_eq!(scope.with_region("onceward:shadow"), Err(InvalidScope::ReservedRegion));
        let own = scope.with_restored_region("onceward:shadow").unwrap();
        assert_eq!(own.region(), Some("onceward:shadow"));
        assert!(scope.with_region("onceward").is_ok());
    }

    #[test]
    fn a_part_that_could_pose_as_two_is_refused() {
        let error = Scope::new("acme\u{1f}alice", "x", "y").unwrap_err();
        assert!(error.to_string().contains("tenant"), "{error}");
        assert!(Scope::new("", "x", "y").is_err());
        assert!(Scope::new(&"t".repeat(256), "x", "y").unwrap_err().to_string().contains("256"));
    }
}
