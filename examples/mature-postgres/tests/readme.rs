//! Runs the README's commands and compares their output.

use example_walk::{Program, Readme};

#[test]
fn the_readmes_commands_return_what_it_says() {
    let Some(postgres) = onceward_services::postgres() else { return };
    let readme = Readme::parse(include_str!("../README.md")).unwrap();
    let variables = [("PORT", "0"), ("DATABASE_URL", postgres.url())];
    let service = Program::start(env!("CARGO_BIN_EXE_example-mature-postgres"), &variables);
    readme.run(&[("localhost:8086", &service.address())]);
}
