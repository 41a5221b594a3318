//! What the README says is so.

use example_walk::{Program, Readme};

#[test]
fn the_walk_of_the_readme_comes_out_as_it_says() {
    let readme = Readme::read(include_str!("../README.md")).unwrap();
    let service = Program::start(env!("CARGO_BIN_EXE_example-cases"), &[("PORT", "0")]);
    readme.walk(&[("localhost:8085", &service.address())]);
}
