//! Constructors of claims.

use std::time::Duration;

use super::{ClaimRequest, Lapsed, Unpurged};
use crate::clock::Ambient;
use crate::intent::{Fingerprint, Key, OperationId, RecordId, RequestPath, Scope, Sketch};
use crate::record::OwnerToken;

impl ClaimRequest {
    /// A claim by a fresh owner token, which answers unknown where it finds a lapsed lease.
    ///
    /// Stores no key, no sketch and no path.
    pub fn new(
        ambient: &dyn Ambient,
        id: RecordId,
        scope: Scope,
        fingerprint: Fingerprint,
        lease: Duration,
    ) -> Self {
        Self {
            id,
            owner: OwnerToken::draw(ambient),
            operation: OperationId::draw(ambient, &id),
            scope,
            key: None,
            fingerprint,
            sketch: Sketch::default(),
            path: None,
            lease,
            lapsed: Lapsed::Unknown,
            unpurged: Unpurged::Replace,
        }
    }

    /// A claim of one of Onceward's own records. A lapsed lease is taken over: the claims of one
    /// purpose all do the same, and may do it twice.
    pub(crate) fn internal(
        ambient: &dyn Ambient,
        id: RecordId,
        purpose: &'static str,
        lease: Duration,
    ) -> Self {
        let (scope, fingerprint) = (Scope::internal(purpose), Fingerprint::of_parts(&[]));
        Self::new(ambient, id, scope, fingerprint, lease).with_lapsed(Lapsed::Takeover)
    }

    /// Claims with this token instead of a fresh one.
    #[must_use]
    pub fn with_owner(mut self, owner: OwnerToken) -> Self {
        self.owner = owner;
        self
    }

    /// Stores the client's key.
    #[must_use]
    pub fn with_key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// Stores a sketch of the request's parts.
    #[must_use]
    pub fn with_sketch(mut self, sketch: Sketch) -> Self {
        self.sketch = sketch;
        self
    }

    /// Stores the path that the request was sent to.
    #[must_use]
    pub fn with_path(mut self, path: RequestPath) -> Self {
        self.path = Some(path);
        self
    }

    /// Sets what to do about a lapsed lease.
    #[must_use]
    pub fn with_lapsed(mut self, lapsed: Lapsed) -> Self {
        self.lapsed = lapsed;
        self
    }

    /// Sets what to do about a record past its time.
    #[must_use]
    pub fn with_unpurged(mut self, unpurged: Unpurged) -> Self {
        self.unpurged = unpurged;
        self
    }
}
