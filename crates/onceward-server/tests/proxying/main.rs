//! The gateway as a proxy: messages, bodies, callers, timeouts. The gateway and the services behind
//! it run in the test process.

mod bounds;
mod callers;
mod certificates;
mod drain;
mod loops;
mod messages;
mod regions;
mod relay;
mod replay_check;
mod scope;
mod service;
mod streams;
mod targets;
mod test_gateway;
mod tls;
mod unknown;
mod wire;
