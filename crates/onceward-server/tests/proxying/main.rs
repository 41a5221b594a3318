//! The gateway as a proxy: what passes unchanged, what is held, who is believed, and what
//! ends in time. The gateway runs in this process, before services of the tests.

mod bounds;
mod callers;
mod certificates;
mod drain;
mod front;
mod loops;
mod messages;
mod service;
mod streams;
mod targets;
mod tls;
mod unknown;
mod wire;
