//! What an axum handler takes and says: extractors, and a response part.
//!
//! ```
//! use axum::response::IntoResponse;
//! use onceward_http::{Execution, Fate};
//!
//! async fn pay(execution: Execution) -> impl IntoResponse {
//!     let key = execution.downstream_key(); // hand it to the payment provider
//!     match call_provider(key.as_str()).await {
//!         Ok(receipt) => (http::StatusCode::CREATED, receipt).into_response(),
//!         // It never got there, so a retry may run again.
//!         Err(_) => (Fate::NothingHappened, http::StatusCode::BAD_GATEWAY).into_response(),
//!     }
//! }
//! # async fn call_provider(_: &str) -> Result<String, ()> { Ok(String::new()) }
//! ```

use std::convert::Infallible;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use http::StatusCode;
use http::request::Parts;

use crate::speak::{Execution, Fate, Sensitive};
#[cfg(feature = "postgres")]
use crate::transaction::PgTransaction;

/// The request did not come through the layer, or had no key and did not need one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this request is not guarded; put the layer on its route, or take Option<Execution>")]
pub struct NotGuarded;

impl IntoResponse for NotGuarded {
    fn into_response(self) -> Response {
        not_run(&self)
    }
}

/// The layer has no transactions, so there is none to take.
#[cfg(feature = "postgres")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this request has no transaction; give the layer `.transactions(&store)`")]
pub struct NoTransaction;

#[cfg(feature = "postgres")]
impl IntoResponse for NoTransaction {
    fn into_response(self) -> Response {
        not_run(&self)
    }
}

/// The answer to a mistake in the set-up, found before the handler ran: so the key stays free, and
/// a retry runs once the mistake is mended. Its reason is for the log and not for the client.
fn not_run(mistake: &dyn std::error::Error) -> Response {
    tracing::error!("{mistake}");
    (Fate::NothingHappened, StatusCode::INTERNAL_SERVER_ERROR).into_response()
}

impl<S: Sync> FromRequestParts<S> for Execution {
    type Rejection = NotGuarded;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, NotGuarded> {
        Self::of(&parts.extensions).cloned().ok_or(NotGuarded)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Execution {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::of(&parts.extensions).cloned())
    }
}

macro_rules! extractor {
    ($(#[$doc:meta])* $name:ident = $execution:ident => $value:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name(pub onceward_core::$name);

        impl<S: Sync> FromRequestParts<S> for $name {
            type Rejection = NotGuarded;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NotGuarded> {
                let $execution = Execution::of(&parts.extensions).ok_or(NotGuarded)?;
                Ok(Self($value))
            }
        }
    };
}

extractor! {
    /// The client's key.
    Key = execution => execution.key().clone()
}
extractor! {
    /// The operation's public name.
    OperationId = execution => execution.operation()
}
extractor! {
    /// The fence, for conditional writes: refuse any that carry a lower one.
    Fence = execution => execution.fence()
}
extractor! {
    /// The idempotency key to hand to the next system; the same on every attempt.
    DownstreamKey = execution => execution.downstream_key()
}

impl IntoResponseParts for Fate {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}

impl IntoResponseParts for Sensitive {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}

#[cfg(feature = "postgres")]
impl<S: Sync> FromRequestParts<S> for PgTransaction {
    type Rejection = NoTransaction;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, NoTransaction> {
        Self::of(&parts.extensions).cloned().ok_or(NoTransaction)
    }
}
