//! The claims API of the real program, over HTTP, on real stores.

mod access;
mod crash;
mod endpoints;
mod gateway;
mod limits;
mod metrics;
mod pair;
mod resolver;
mod server;
mod walk;
mod workers;
