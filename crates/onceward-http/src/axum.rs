//! Extractors and response parts for axum handlers.
//!
//! ```
//! use axum::response::IntoResponse;
//! use onceward_http::{Execution, Fate};
//!
//! async fn pay(execution: Execution) -> impl IntoResponse {
//!     let key = execution.downstream_key(); // for the payment provider
//!     match call_provider(key.as_str()).await {
//!         Ok(receipt) => (http::StatusCode::CREATED, receipt).into_response(),
//!         // The provider was not reached, so a retry may run again.
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

#[cfg(feature = "postgres")]
use crate::exchange::PgTransaction;
use crate::handler::{Execution, Sensitive};
use crate::rules::Fate;

/// The request did not pass the layer, or has no key and needs none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this request is not protected; put the layer on its route, or take Option<Execution>")]
pub struct NotProtected;

impl IntoResponse for NotProtected {
    fn into_response(self) -> Response {
        not_run(&self)
    }
}

/// The layer has no transactions.
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

/// The response to a mistake in the set-up, found before the handler ran. The key is released, so a
/// retry runs once the mistake is fixed. The cause goes to the log, not to the client.
fn not_run(mistake: &dyn std::error::Error) -> Response {
    tracing::error!("{mistake}");
    (Fate::NothingHappened, StatusCode::INTERNAL_SERVER_ERROR).into_response()
}

impl<S: Sync> FromRequestParts<S> for Execution {
    type Rejection = NotProtected;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, NotProtected> {
        Self::of(&parts.extensions).cloned().ok_or(NotProtected)
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
            type Rejection = NotProtected;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NotProtected> {
                let $execution = Execution::of(&parts.extensions).ok_or(NotProtected)?;
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
    /// The id of the operation.
    OperationId = execution => execution.operation()
}
extractor! {
    /// The fence, for conditional writes: refuse writes with a lower one.
    Fence = execution => execution.fence()
}
extractor! {
    /// The idempotency key for the next system, the same on every attempt.
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
