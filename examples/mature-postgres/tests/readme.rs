//! What the README says is so.

use example_walk::{Program, Readme};

#[test]
fn the_walk_of_the_readme_comes_out_as_it_says() {
    let Some(postgres) = onceward_services::postgres() else { return };
    let readme = Readme::read(include_str!("../README.md")).unwrap();
    let variables = [("PORT", "0"), ("DATABASE_URL", postgres.url())];
    let service = Program::start(env!("CARGO_BIN_EXE_example-mature-postgres"), &variables);
    readme.walk(&[("localhost:8086", &service.address())]);
}
