//! Runs the README's commands and compares their output. Also checks that a wrong README fails.

use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use example_walk::{Program, Readme, RequiredTools};

const README: &str = include_str!("../README.md");

fn start() -> Program {
    Program::start(env!("CARGO_BIN_EXE_example-easy"), &[("PORT", "0")])
}

#[test]
fn the_readmes_commands_return_what_it_says() {
    let service = start();
    Readme::parse(README).unwrap().run(&[("localhost:8081", &service.address())]);
}

/// One wrong expectation of each kind, checked against the service.
#[test]
fn a_wrong_readme_fails() {
    if RequiredTools::check(&Readme::parse(README).unwrap()) != RequiredTools::Available {
        return; // the test above reports the missing tool
    }
    for (right, wrong) in [
        ("# → 201 Created", "# → 200 OK"),
        ("# → Idempotent-Replayed: true", "# → Idempotent-Replayed: yes"),
        ("# → no Idempotent-Replayed", "# → no Content-Type"),
        ("# → the same body", "# → another body"),
        (r#"{"amount":5}"#, r#"{"amount":5000}"#),
        (r#"[{"amount":99.99},{"amount":5}]"#, r#"[{"amount":99.99}]"#),
    ] {
        let changed = README.replacen(right, wrong, 1);
        assert_ne!(changed, README, "{right}");
        let (readme, service) = (Readme::parse(&changed).unwrap(), start());
        let address = service.address();
        let run = AssertUnwindSafe(|| readme.run(&[("localhost:8081", &address)]));
        assert!(catch_unwind(run).is_err(), "not noticed: {wrong}");
    }
}

#[test]
fn a_panic_of_the_test_ends_the_program() {
    let mut address = String::new();
    let test = AssertUnwindSafe(|| {
        let service = start();
        address = service.address();
        TcpStream::connect(&address).unwrap();
        panic!("as a failed assertion does");
    });
    assert!(catch_unwind(test).is_err());
    assert!(TcpStream::connect(&address).is_err(), "it still listens on {address}");
}
