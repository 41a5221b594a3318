//! What the README says is so.

use example_walk::{Program, Readme};

#[test]
fn the_walk_of_the_readme_comes_out_as_it_says() {
    let readme = Readme::parse(include_str!("../README.md")).unwrap();
    let ports = [("PORT", "0"), ("PROVIDER_PORT", "0")];
    let program = Program::start(env!("CARGO_BIN_EXE_example-payments"), &ports);
    let (shop, provider) = (program.address(), program.address());
    readme.run(&[("localhost:8084", &shop), ("localhost:8184", &provider)]);
}
