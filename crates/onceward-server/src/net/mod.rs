//! Sockets and what runs on them, without a word of the protocol.
//!
//! | file | contents |
//! |---|---|
//! | `address` | addresses that this process alone listens on |
//! | `client` | the HTTP client: one send for one request, and whether it was sent |
//! | `connection_limit` | how many connections clients may have open |
//! | `file_limit` | the limit of open files |
//! | `timeout_body` | bodies with timeouts |
//! | `tls` | certificates and keys |
//! | `upstream_health` | whether the upstream answers |
//! | `write_timeout` | connections whose client does not read |

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
