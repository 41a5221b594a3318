//! The table of error codes.

use http::StatusCode;
use onceward_core::ScopePart;

/// Error code of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The operation requires a key and the request has none.
    MissingKey,
    /// The idempotency key is malformed.
    InvalidKey,
    /// The tenant is missing or malformed.
    InvalidTenant,
    /// The caller is missing or malformed.
    InvalidCaller,
    /// The API version is missing or malformed.
    InvalidApiVersion,
    /// The parent resource is missing or malformed.
    InvalidParent,
    /// The region is missing or malformed.
    InvalidRegion,
    /// The credentials are missing or not valid.
    InvalidCredentials,
    /// The request body did not arrive whole.
    InvalidBody,
    /// The key belongs to another request.
    KeyReused,
    /// The key was used with other credentials.
    OtherCredentials,
    /// The business reference is malformed.
    InvalidReference,
    /// The business reference belongs to another request.
    ReferenceTaken,
    /// The first attempt is still running.
    InProgress,
    /// It is not known whether the operation took place.
    OutcomeUnknown,
    /// The operation was completed, and the source of truth does not know it any more.
    OutcomeContradicted,
    /// The operation was completed, and the source of truth could not confirm it.
    OutcomeUnconfirmed,
    /// The key is past its retention.
    KeyExpired,
    /// The operation was done, and its response was not stored.
    NotReplayable,
    /// A quota is exceeded: of new keys, or of requests with one key.
    QuotaExceeded,
    /// The store is unavailable; nothing was executed.
    StoreUnavailable,
    /// The store has no room for new keys; nothing was executed.
    StoreFull,
    /// The operation failed, and its transaction was rolled back.
    RolledBack,
    /// The request body is larger than allowed.
    RequestTooLarge,
    /// This caller has no such operation.
    OperationNotFound,
}

/// A row of the table of codes.
pub(super) struct Row {
    pub(super) code: &'static str,
    pub(super) status: StatusCode,
    pub(super) other_status: Option<StatusCode>,
    pub(super) title: &'static str,
    pub(super) detail: &'static str,
    pub(super) retryable: bool,
    pub(super) same_key: bool,
}

const fn row(code: &'static str, status: StatusCode, title: &'static str) -> Row {
    Row { code, status, other_status: None, title, detail: "", retryable: false, same_key: false }
}

impl Row {
    const fn detail(self, detail: &'static str) -> Self {
        Self { detail, ..self }
    }

    /// A second status that refusals with this code can have.
    const fn or(self, status: StatusCode) -> Self {
        Self { other_status: Some(status), ..self }
    }

    /// The same request with the same key can succeed later.
    const fn retry(self) -> Self {
        Self { retryable: true, same_key: true, ..self }
    }

    /// The same key is safe, and a new one is not: it could run the request a second time.
    const fn same_key(self) -> Self {
        Self { same_key: true, ..self }
    }
}

impl Code {
    /// All codes, in the order of `docs/errors.md`.
    pub const ALL: [Code; 25] = [
        Self::MissingKey,
        Self::InvalidKey,
        Self::InvalidTenant,
        Self::InvalidCaller,
        Self::InvalidApiVersion,
        Self::InvalidParent,
        Self::InvalidRegion,
        Self::InvalidCredentials,
        Self::InvalidBody,
        Self::KeyReused,
        Self::OtherCredentials,
        Self::InvalidReference,
        Self::ReferenceTaken,
        Self::InProgress,
        Self::OutcomeUnknown,
        Self::OutcomeContradicted,
        Self::OutcomeUnconfirmed,
        Self::KeyExpired,
        Self::NotReplayable,
        Self::QuotaExceeded,
        Self::StoreUnavailable,
        Self::StoreFull,
        Self::RolledBack,
        Self::RequestTooLarge,
        Self::OperationNotFound,
    ];

    /// The code in the JSON body, for programs.
    pub const fn as_str(self) -> &'static str {
        self.row().code
    }

    /// The HTTP status, unless a setting changes it.
    pub const fn status(self) -> StatusCode {
        self.row().status
    }

    /// A second status, for a special case that `docs/errors.md` describes.
    pub const fn other_status(self) -> Option<StatusCode> {
        self.row().other_status
    }

    /// A summary of the code.
    pub const fn title(self) -> &'static str {
        self.row().title
    }

    /// The fix, if that is the same for every request; else empty.
    pub const fn detail(self) -> &'static str {
        self.row().detail
    }

    /// True if the same request with the same key can succeed later.
    pub const fn is_retryable(self) -> bool {
        self.row().retryable
    }

    /// The code of a part of a scope that is missing or malformed. Operations have none: their
    /// names come from the configuration.
    pub const fn of_scope_part(part: ScopePart) -> Self {
        match part {
            ScopePart::Tenant => Self::InvalidTenant,
            ScopePart::ApiVersion => Self::InvalidApiVersion,
            ScopePart::Parent => Self::InvalidParent,
            ScopePart::Region => Self::InvalidRegion,
            _ => Self::InvalidCaller,
        }
    }

    pub(super) const fn row(self) -> Row {
        match self {
            Self::MissingKey => row(
                "MISSING_IDEMPOTENCY_KEY",
                StatusCode::BAD_REQUEST,
                "This operation requires an idempotency key",
            )
            .detail("Send a unique value, such as a UUID, and the same one with every retry."),
            Self::InvalidKey => row(
                "INVALID_IDEMPOTENCY_KEY",
                StatusCode::BAD_REQUEST,
                "The idempotency key is not valid",
            ),
            Self::InvalidTenant => {
                row("INVALID_TENANT", StatusCode::BAD_REQUEST, "The tenant is missing or not valid")
            }
            Self::InvalidCaller => {
                row("INVALID_CALLER", StatusCode::BAD_REQUEST, "The caller is missing or not valid")
            }
            Self::InvalidApiVersion => row(
                "INVALID_API_VERSION",
                StatusCode::BAD_REQUEST,
                "The API version is missing or not valid",
            ),
            Self::InvalidParent => row(
                "INVALID_PARENT",
                StatusCode::BAD_REQUEST,
                "The parent resource is missing or not valid",
            ),
            Self::InvalidRegion => {
                row("INVALID_REGION", StatusCode::BAD_REQUEST, "The region is missing or not valid")
            }
            Self::InvalidCredentials => row(
                "INVALID_CREDENTIALS",
                StatusCode::UNAUTHORIZED,
                "The credentials are missing or not valid",
            )
            .or(StatusCode::FORBIDDEN),
            Self::InvalidBody => row(
                "INVALID_REQUEST_BODY",
                StatusCode::BAD_REQUEST,
                "The request body did not arrive whole",
            )
            .or(StatusCode::REQUEST_TIMEOUT)
            .detail("Nothing was executed. Send the request again with the same key.")
            .retry(),
            Self::KeyReused => row(
                "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The idempotency key was used for a different request",
            )
            .detail("A new request needs a new key; a retry must repeat the request unchanged."),
            Self::OtherCredentials => row(
                "IDEMPOTENCY_KEY_USED_WITH_OTHER_CREDENTIALS",
                StatusCode::FORBIDDEN,
                "The idempotency key was used with other credentials",
            )
            .or(StatusCode::UNAUTHORIZED)
            .detail(
                "Nothing was executed. Retry with the credentials of the first request; a new key \
                 would run it a second time. If credentials change between attempts, the operator \
                 of this API has to identify callers by something that stays the same \
                 (scope.caller).",
            )
            .same_key(),
            Self::InvalidReference => row(
                "INVALID_BUSINESS_REFERENCE",
                StatusCode::BAD_REQUEST,
                "The business reference is not valid",
            ),
            Self::ReferenceTaken => row(
                "BUSINESS_REFERENCE_TAKEN",
                StatusCode::CONFLICT,
                "The business reference belongs to another request",
            )
            .detail("It will not be executed again. Look at the operation that it belongs to."),
            Self::InProgress => row(
                "IDEMPOTENCY_REQUEST_IN_PROGRESS",
                StatusCode::CONFLICT,
                "A request with this idempotency key is in progress",
            )
            .detail("Send the same request with the same key again, after the delay.")
            .retry(),
            Self::OutcomeUnknown => row(
                "IDEMPOTENCY_OUTCOME_UNKNOWN",
                StatusCode::CONFLICT,
                "It is not known whether the operation took place",
            )
            .or(StatusCode::INTERNAL_SERVER_ERROR)
            .detail(
                "Keep this key: the same request with it never runs a second time, and one with a \
                 new key could. Look at the operation, or look its resource up.",
            )
            .same_key(),
            Self::OutcomeContradicted => row(
                "IDEMPOTENCY_OUTCOME_CONTRADICTED",
                StatusCode::CONFLICT,
                "The operation was completed, and its source of truth does not know it any more",
            )
            .detail(
                "Keep this key: the same request with it does not run again, and one with a new \
                 key would. An operator decides whether the operation stands.",
            )
            .same_key(),
            Self::OutcomeUnconfirmed => row(
                "IDEMPOTENCY_OUTCOME_UNCONFIRMED",
                StatusCode::SERVICE_UNAVAILABLE,
                "The operation was completed, and this cannot be confirmed at the moment",
            )
            .detail(
                "Nothing was executed. Send the same request with the same key again, after the \
                 delay.",
            )
            .retry(),
            Self::KeyExpired => row(
                "IDEMPOTENCY_KEY_EXPIRED",
                StatusCode::CONFLICT,
                "The idempotency key has expired",
            )
            .detail("Look the resource up first; if it is not there, send a new key."),
            Self::NotReplayable => row(
                "IDEMPOTENCY_RESPONSE_NOT_REPLAYABLE",
                StatusCode::CONFLICT,
                "The operation was done, and its response was not kept",
            )
            .detail("It will not be executed again. Look the resource up."),
            Self::QuotaExceeded => row(
                "IDEMPOTENCY_QUOTA_EXCEEDED",
                StatusCode::TOO_MANY_REQUESTS,
                "A quota is exceeded",
            )
            .detail(
                "This request was not executed. Send it again with the same key, after the delay.",
            )
            .retry(),
            Self::StoreUnavailable => row(
                "IDEMPOTENCY_STORE_UNAVAILABLE",
                StatusCode::SERVICE_UNAVAILABLE,
                "Idempotency cannot be guaranteed at the moment",
            )
            .detail("Nothing was executed. Send the same request with the same key again.")
            .retry(),
            Self::StoreFull => row(
                "IDEMPOTENCY_STORE_FULL",
                StatusCode::SERVICE_UNAVAILABLE,
                "There is no room for new idempotency keys",
            )
            .detail("Nothing was executed. Send the same request with the same key again.")
            .retry(),
            Self::RolledBack => row(
                "IDEMPOTENCY_ROLLED_BACK",
                StatusCode::INTERNAL_SERVER_ERROR,
                "The operation failed and was rolled back",
            )
            .or(StatusCode::SERVICE_UNAVAILABLE)
            .detail("Nothing has changed. Send the same request with the same key again.")
            .retry(),
            Self::RequestTooLarge => row(
                "REQUEST_TOO_LARGE",
                StatusCode::PAYLOAD_TOO_LARGE,
                "The request body is too large",
            ),
            Self::OperationNotFound => row(
                "OPERATION_NOT_FOUND",
                StatusCode::NOT_FOUND,
                "There is no such operation",
            )
            .or(StatusCode::METHOD_NOT_ALLOWED)
            .detail("It was never begun, its record has expired, or it belongs to another caller."),
        }
    }
}
