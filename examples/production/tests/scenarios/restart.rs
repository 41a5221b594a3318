//! An instance after another one on its store.

use example_walk::{App, Program};

use crate::instance::{ORDER, TENANT, create};
use crate::test_store::TestStore;

/// The order itself was in the memory of the killed instance, so a second one would get another id.
pub(crate) async fn a_killed_instance_replays_after_its_restart(store: &TestStore) {
    let start = || {
        let variables = [&store.variables()[..], &[("PORT", "0")]].concat();
        let program = Program::start(env!("CARGO_BIN_EXE_example-production"), &variables);
        let app = App::at(&program.address());
        (program, app)
    };
    let (mut program, app) = start();
    let created = create(&app, TENANT, "order-123", ORDER).await;
    assert_eq!(created.status, 201);
    program.kill();
    let (_program, app) = start();
    let replay = create(&app, TENANT, "order-123", ORDER).await;
    assert_eq!((replay.status, replay.replayed(), replay.body), (200, true, created.body));
}
