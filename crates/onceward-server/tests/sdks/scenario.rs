//! Runs one library through all cases.

use std::fmt::Write as _;
use std::path::Path;

use onceward_server::config::Config;
use onceward_server::gateway::Gateway;
use onceward_services::{ServiceError, or_skip};

use crate::client::{Client, Seen};
use crate::network::{self, Attempts};
use crate::provider::Provider;

/// A library and the gateway's configuration for it.
pub(crate) struct Scenario {
    pub(crate) library: &'static str,
    /// Settings before all sections.
    pub(crate) settings: &'static str,
    /// Settings in `[scope]`.
    pub(crate) scope: &'static str,
    /// Settings in `[defaults]`.
    pub(crate) defaults: &'static str,
}

/// A case, as the client programs name it.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    label: &'static str,
    effects: usize,
    expected: Expected,
}

#[derive(Debug, Clone, Copy)]
enum Expected {
    /// The caller gets the only payment.
    Payment,
    /// The caller gets an error, and no payment.
    Refusal,
}

const CASES: [Case; 5] = [
    Case {
        name: "cut",
        label: "answer lost on its way to the client",
        effects: 1,
        expected: Expected::Payment,
    },
    Case {
        name: "timeout",
        label: "client times out while the first runs",
        effects: 1,
        expected: Expected::Payment,
    },
    Case {
        name: "lost",
        label: "answer lost on its way to the gateway",
        effects: 1,
        expected: Expected::Refusal,
    },
    Case {
        name: "changed",
        label: "same key, other amount",
        effects: 1,
        expected: Expected::Refusal,
    },
    Case { name: "badkey", label: "invalid key", effects: 0, expected: Expected::Refusal },
];

impl Scenario {
    /// A library that needs no settings.
    pub(crate) fn of(library: &'static str) -> Self {
        Self { library, settings: "", scope: "", defaults: "" }
    }

    /// A library of Stripe. stripe-node takes any JSON without an `error` member for success,
    /// whatever its status is.
    pub(crate) fn of_stripe(library: &'static str) -> Self {
        Self { settings: "stripe_errors = true", ..Self::of(library) }
    }

    /// Runs a client through all cases, prints a table, and checks it.
    pub(crate) fn run(&self, client: Result<Client, ServiceError>) {
        let Some(client) = or_skip(client) else { return };
        let attempts = Attempts::default();
        let provider = Provider::start(&attempts);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let gateway = runtime.block_on(Gateway::start(self.config(&provider))).unwrap();
        let network = network::start(gateway.addresses()[0], &attempts);
        let seen = client.run(&format!("http://{network}"));
        print!("{}", self.table(&provider, &attempts, &seen));
        for case in CASES {
            let outcome =
                seen.get(case.name).unwrap_or_else(|| panic!("{}: no outcome", case.name));
            case.hold(self.library, &provider.payments(&case.order()), outcome);
        }
        drop(gateway);
    }

    fn config(&self, provider: &Provider) -> Config {
        let (Self { settings, scope, defaults, .. }, upstream) = (self, provider.address);
        let text = format!(
            "{settings}\n[[listeners]]\naddress = \"127.0.0.1:0\"\n[upstream]\nurl = \"http://{upstream}\"\n\
             [store]\nurl = \"memory:\"\n[scope]\n{scope}\n[defaults]\n{defaults}\n"
        );
        Config::parse(&text, Path::new("sdks.toml")).unwrap()
    }

    /// Rows of the table: library, case, effects, requests, what the caller sees.
    fn table(&self, provider: &Provider, attempts: &Attempts, seen: &Seen) -> String {
        let mut table = String::new();
        for case in CASES {
            let effects = provider.payments(&case.order()).len();
            let requests = attempts.requests(&case.order());
            let (library, label) = (self.library, case.label);
            let outcome = seen.get(case.name).map_or_else(String::new, ToString::to_string);
            writeln!(table, "| {library} | {label} | {effects} | {requests} | {outcome} |")
                .unwrap();
        }
        table
    }
}

impl Case {
    fn order(self) -> String {
        format!("order-{}", self.name)
    }

    fn hold(self, library: &str, payments: &[String], outcome: &crate::client::Outcome) {
        use crate::client::Outcome;
        let Self { name, effects, expected, .. } = self;
        assert_eq!(payments.len(), effects, "{library}, {name}: effects; {outcome}");
        match (expected, outcome) {
            (Expected::Payment, Outcome::Result(id)) => {
                assert_eq!(Some(id), payments.first(), "{library}, {name}");
            }
            (Expected::Refusal, Outcome::Result(id)) => {
                panic!("{library}, {name}: a refusal is taken for success, {id}");
            }
            (Expected::Refusal, Outcome::Error(_)) => {}
            (Expected::Payment, Outcome::Error(error)) => panic!("{library}, {name}: {error}"),
        }
    }
}
