//! Runs the README's commands on every store and compares their output.

use example_walk::{Program, Readme};

#[test]
fn the_readmes_commands_return_what_it_says_on_every_store() {
    let readme = Readme::parse(include_str!("../README.md")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = format!("file:{}", directory.path().join("data").display());
    let postgres = onceward_services::postgres();
    let postgres = postgres.as_ref().map(|server| server.url().to_owned());
    for store in ["memory:".to_owned(), file].into_iter().chain(postgres) {
        let variables = [("PORT", "0"), ("STORE", store.as_str())];
        let service = Program::start(env!("CARGO_BIN_EXE_example-cases"), &variables);
        readme.run(&[("localhost:8085", &service.address())]);
    }
}
