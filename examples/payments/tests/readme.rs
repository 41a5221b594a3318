//! Runs the README's commands and compares their output.

use example_walk::{Program, Readme};

#[test]
fn the_readmes_commands_return_what_it_says() {
    let readme = Readme::parse(include_str!("../README.md")).unwrap();
    let ports = [("PORT", "0"), ("PROVIDER_PORT", "0")];
    let program = Program::start(env!("CARGO_BIN_EXE_example-payments"), &ports);
    let (shop, provider) = (program.address(), program.address());
    readme.run(&[("localhost:8084", &shop), ("localhost:8184", &provider)]);
}
