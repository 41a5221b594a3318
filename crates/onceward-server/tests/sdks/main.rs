//! Real client libraries call a payment provider through the gateway while answers get lost: each
//! intent has one effect, and an outcome that its caller understands.
//!
//! `cargo test -p onceward-server --test sdks -- --nocapture` prints a table: library, case, effects,
//! requests that the library sent, what its caller sees.
//!
//! ```text
//! client library → network (loses answers) → gateway → provider (counts effects, loses answers)
//! ```

mod client;
mod message;
mod network;
mod packages;
mod provider;
mod scenario;

use client::Client;
use scenario::Scenario;

#[test]
fn stripe_for_python_pays_once() {
    Scenario::of_stripe("stripe-python 16.1.0").run(Client::python("pay_stripe.py"));
}

#[test]
fn stripe_for_node_pays_once() {
    Scenario::of_stripe("stripe-node 23.1.0").run(Client::node("pay_stripe.mjs"));
}

#[test]
fn stripe_for_go_pays_once() {
    // It does not retry a request that was answered with 409 and an `error` member.
    let defaults = "in_progress = \"wait\"\nwait_max = \"20s\"";
    let stripe = Scenario { defaults, ..Scenario::of_stripe("stripe-go 85.0.0") };
    stripe.run(Client::stripe_go());
}

#[test]
fn stripe_for_java_pays_once() {
    Scenario::of_stripe("stripe-java 33.3.0").run(Client::stripe_java());
}

#[test]
fn adyen_for_python_pays_once() {
    let scope = "caller = { header_digest = \"x-api-key\" }";
    Scenario { scope, ..Scenario::of("adyen-python 16.0.0") }.run(Client::python("pay_adyen.py"));
}

#[test]
fn square_for_python_pays_once() {
    let defaults = "key = \"square\"";
    let square = Scenario { defaults, ..Scenario::of("square-python 46.0.0") };
    square.run(Client::python("pay_square.py"));
}

#[test]
fn requests_with_retry_pays_once() {
    Scenario::of("requests 2.34.2 + Retry").run(Client::python("pay_requests.py"));
}

#[test]
fn axios_with_axios_retry_pays_once() {
    Scenario::of("axios 1.21.1 + axios-retry").run(Client::node("pay_axios.mjs"));
}
