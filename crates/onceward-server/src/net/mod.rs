//! Sockets, TLS and HTTP transport. Knows nothing of idempotency.
//!
//! | file | contents |
//! |---|---|
//! | `address` | listening addresses that no other process shares |
//! | `client` | HTTP client: sends each request once, reports whether it was sent |
//! | `connection_limit` | limit of client connections |
//! | `file_limit` | limit of open files |
//! | `timeout_body` | bodies with timeouts |
//! | `tls` | certificates and keys |
//! | `upstream_health` | health check of the upstream |
//! | `write_timeout` | timeout for clients that do not read |

mod address;
mod client;
mod connection_limit;
mod file_limit;
mod timeout_body;
pub(crate) mod tls;
mod upstream_health;
mod write_timeout;

pub(crate) use address::BoundAddress;
pub(crate) use address::ListenError;
pub(crate) use client::{Client, RequestBody, SendError, Sent, connector};
pub(crate) use connection_limit::ConnectionLimit;
pub(crate) use file_limit::raise_file_limit;
pub(crate) use timeout_body::{BrokenRequest, TimeoutBody, TooSlow};
pub(crate) use tls::TlsError;
pub(crate) use upstream_health::UpstreamHealth;
pub(crate) use write_timeout::WriteTimeout;
