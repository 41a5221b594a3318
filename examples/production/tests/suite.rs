//! Runs the black-box suite against the program, on each store.

use example_walk::Program;
use onceward_testkit::http::{Target, run};

async fn passes_the_suite(store: &str) {
    let variables = [("PORT", "0"), ("ONCEWARD_STORE", store)];
    let program = Program::start(env!("CARGO_BIN_EXE_example-production"), &variables);
    let report = run(&Target::orders(format!("http://{}", program.address())), None).await;
    println!("{report}");
    assert!(report.is_clean(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_passes_the_black_box_suite_in_memory() {
    passes_the_suite("memory").await;
}

#[cfg(feature = "embedded")]
#[tokio::test(flavor = "multi_thread")]
async fn the_program_passes_the_black_box_suite_in_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    passes_the_suite(&format!("file:{}/store", directory.path().display())).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn the_program_passes_the_black_box_suite_on_redis() {
    let Some(redis) = onceward_services::redis() else { return };
    passes_the_suite(redis.url()).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn the_program_passes_the_black_box_suite_on_postgres() {
    let Some(postgres) = onceward_services::postgres() else { return };
    passes_the_suite(postgres.url()).await;
}
