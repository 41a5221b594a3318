//! Runs the black-box suite against the program.

use example_walk::Program;
use onceward_testkit::http::{Target, run};

#[tokio::test(flavor = "multi_thread")]
async fn the_program_passes_the_black_box_suite() {
    let program = Program::start(env!("CARGO_BIN_EXE_example-mature"), &[("PORT", "0")]);
    let report = run(&Target::orders_mature(format!("http://{}", program.address())), None).await;
    println!("{report}");
    assert!(report.is_clean(), "{report}");
}
