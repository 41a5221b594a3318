//! The black-box suite against the real program.

use example_walk::Program;
use onceward_testkit::http::{Target, run};

#[tokio::test(flavor = "multi_thread")]
async fn the_program_keeps_what_its_level_promises() {
    let program = Program::start(env!("CARGO_BIN_EXE_example-easy"), &[("PORT", "0")]);
    let report = run(&Target::orders_easy(format!("http://{}", program.address())), None).await;
    println!("{report}");
    assert!(report.is_clean(), "{report}");
}
