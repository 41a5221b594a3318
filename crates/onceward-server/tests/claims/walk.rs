//! Runs the commands of docs/claims.md and compares the responses.

use example_walk::Readme;

use crate::server::{Server, WORKER};

#[test]
fn the_walk_of_the_docs_comes_out_as_they_say() {
    let (server, directory) = Server::embedded();
    let saved = directory.path().join("claim.txt");
    let readme = Readme::parse(include_str!("../../../../docs/claims.md")).unwrap();
    readme.run(&[
        ("localhost:8090", &server.address),
        ("$TOKEN", WORKER),
        ("claim.txt", saved.to_str().unwrap()),
    ]);
}
