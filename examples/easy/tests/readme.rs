//! What the README says is so, and if it were not, it would be noticed.

use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use example_walk::{Program, Readme, Tools};

const README: &str = include_str!("../README.md");

fn start() -> Program {
    Program::start(env!("CARGO_BIN_EXE_example-easy"), &[("PORT", "0")])
}

#[test]
fn the_walk_of_the_readme_comes_out_as_it_says() {
    let service = start();
    Readme::read(README).unwrap().walk(&[("localhost:8081", &service.address())]);
}

/// One lie of each kind, told to the real service by the real curl.
#[test]
fn a_readme_that_lies_is_caught() {
    if Tools::look() != Tools::There {
        return; // the walk itself says or fails that
    }
    for (truth, lie) in [
        ("# → 201 Created", "# → 200 OK"),
        ("# → Idempotent-Replayed: true", "# → Idempotent-Replayed: yes"),
        ("# → no Idempotent-Replayed", "# → no Content-Type"),
        ("# → the same body", "# → another body"),
        (r#"{"amount":5}"#, r#"{"amount":5000}"#),
        (r#"[{"amount":99.99},{"amount":5}]"#, r#"[{"amount":99.99}]"#),
    ] {
        let lying = README.replacen(truth, lie, 1);
        assert_ne!(lying, README, "{truth}");
        let (readme, service) = (Readme::read(&lying).unwrap(), start());
        let address = service.address();
        let walk = AssertUnwindSafe(|| readme.walk(&[("localhost:8081", &address)]));
        assert!(catch_unwind(walk).is_err(), "nobody noticed {lie}");
    }
}

#[test]
fn a_program_does_not_outlive_the_test_that_panicked() {
    let mut address = String::new();
    let test = AssertUnwindSafe(|| {
        let service = start();
        address = service.address();
        TcpStream::connect(&address).unwrap();
        panic!("as a test does that fails");
    });
    assert!(catch_unwind(test).is_err());
    assert!(TcpStream::connect(&address).is_err(), "it still listens on {address}");
}
