//! Runs the README's commands and compares their output.

use example_walk::{Program, Readme};

#[test]
fn the_readmes_commands_return_what_it_says() {
    let readme = Readme::parse(include_str!("../README.md")).unwrap();
    let service = Program::start(env!("CARGO_BIN_EXE_example-cases"), &[("PORT", "0")]);
    readme.run(&[("localhost:8085", &service.address())]);
}
