//! Everything that is read from a request before the claim: key, scope, fingerprint, reference.
//!
//! Straight functions over values; none of them knows a store.
//!
//! | module | contents |
//! |---|---|
//! | `key` | the idempotency key, in a header or in the body |
//! | `scope` | the scope: tenant, caller, API version, parent resource and region |
//! | `source` | sources of these parts; `credentials`, `jwt` and `host` are some |
//! | `request_view` | the parts of a buffered request that are compared |
//! | `fingerprint` | the digest of a request's meaning |
//! | `canonical` | the canonical form of JSON |
//! | `reference` | the business reference |

pub(crate) mod canonical;
mod credentials;
pub(crate) mod fingerprint;
mod host;
#[cfg(feature = "jwt")]
mod jwt;
mod key;
mod reference;
mod request_view;
mod scope;
mod source;

pub use credentials::{CREDENTIAL_HEADERS, ClientCertificate};
pub(crate) use fingerprint::{Fingerprinter, RawFields};
pub use fingerprint::{json_differences, json_fingerprint};
#[cfg(feature = "jwt")]
pub use jwt::{InvalidJwks, Jwt};
pub use key::HeadKey;
pub(crate) use key::{key_in_body, key_in_headers, parse_key};
pub(crate) use request_view::RequestView;
pub(crate) use scope::{ParentSource, ScopeSources};
pub use source::{Denied, Source};
