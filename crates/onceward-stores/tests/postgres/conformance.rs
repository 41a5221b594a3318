//! The conformance suite on a clock that the test moves: directly, through PgBouncer, sealed, and
//! with one call in each statement. And on the server's own clock.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::FullStore;
use onceward_services::{MovedDatabase, Server, or_skip};
use onceward_stores::postgres::{PostgresStore, Settings};
use onceward_testkit::conformance::{Harness, Traits};
use onceward_testkit::model;
use proptest::prelude::ProptestConfig;
use proptest::test_runner::TestRunner;

use super::common::{fresh_name, long, plain, shared, small};

/// Stores with their own clock.
pub(crate) struct Moved {
    url: String,
    name: String,
    /// The first time of the clock, in SQL.
    start: &'static str,
    /// True for a store that purges what is due at once, not a little late.
    exact: bool,
    settings: fn(Settings) -> Settings,
}

/// The database whose time the test moves.
fn moved_database() -> Option<&'static Server> {
    static READY: OnceLock<()> = OnceLock::new();
    let server = shared()?;
    READY.get_or_init(|| {
        MovedDatabase::create(server).unwrap();
    });
    Some(server)
}

fn moved(port: u16) -> Moved {
    let name = fresh_name("clock");
    let url = MovedDatabase::url(port, &name);
    let start = "'2026-11-16'";
    Moved { url, name, start, exact: false, settings: |it| it }
}

pub(crate) fn directly() -> Option<Moved> {
    Some(moved(moved_database()?.port()))
}

/// A store that purges what is due at once, like the truth table.
pub(crate) fn exactly() -> Option<Moved> {
    Some(Moved { exact: true, ..directly()? })
}

/// The same, with another first time of the clock.
pub(crate) fn moved_from(start: &'static str) -> Option<Moved> {
    Some(Moved { start, ..exactly()? })
}

/// One call in each statement, and no predicted purge times.
fn one_by_one() -> Option<Moved> {
    let settings = |it| Settings { batch_calls_max: 1, ..it };
    Some(Moved { settings, ..exactly()? })
}

fn through_pgbouncer() -> Option<Moved> {
    static BOUNCER: OnceLock<Option<Server>> = OnceLock::new();
    let server = moved_database()?;
    let bouncer = || or_skip(onceward_services::PgBouncer::before(server).start());
    let bouncer = BOUNCER.get_or_init(bouncer).as_ref()?;
    let settings = |it| Settings { pgbouncer: true, ..it };
    Some(Moved { settings, ..moved(bouncer.port()) })
}

#[async_trait]
impl Harness for Moved {
    fn traits(&self) -> Traits {
        Traits { lease: Duration::from_secs(10), fences_outlive_records: true }
    }

    async fn open(&self) -> Arc<dyn FullStore> {
        Arc::new(self.store().await)
    }

    async fn pass(&self, duration: Duration) {
        let clock = plain(&self.url).await;
        clock.batch_execute(&MovedDatabase::pass_sql(&self.name, duration)).await.unwrap();
    }
}

impl Moved {
    /// A store whose clock stands still until it is moved.
    pub(crate) async fn store(&self) -> PostgresStore {
        let clock = plain(&self.url).await;
        clock.batch_execute(&MovedDatabase::begin_sql(&self.name, self.start)).await.unwrap();
        let mut settings = (self.settings)(small());
        if self.exact {
            settings.purge_slack_max = Duration::ZERO;
        }
        PostgresStore::open(&self.url, settings).await.unwrap()
    }
}

/// Compares the store with the truth table on random sequences. The store must purge exactly.
pub(crate) fn answers_as_the_truth_table_does<H: Harness>(
    harness: impl Fn() -> Option<H>,
    cases: u32,
) {
    if harness().is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cases = if long() { cases * 20 } else { cases };
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases));
    let compared = runner.run(&model::sequences(60), |steps| {
        let harness = harness().expect("it was there");
        let compared = runtime.block_on(model::compare(&harness, &steps));
        proptest::prop_assert!(compared.is_ok(), "{}", compared.unwrap_err());
        Ok(())
    });
    compared.unwrap();
}

mod on_a_clock_that_is_moved {
    use super::*;

    onceward_testkit::store_conformance!(or_skip directly());
}

mod one_call_a_statement {
    use super::*;

    onceward_testkit::store_conformance!(or_skip one_by_one());

    #[test]
    fn answers_as_the_truth_table_does() {
        super::answers_as_the_truth_table_does(one_by_one, 40);
    }
}

mod pgbouncer {
    use super::*;

    onceward_testkit::store_conformance!(or_skip through_pgbouncer());

    #[test]
    fn answers_as_the_truth_table_does() {
        let exact = || Some(Moved { exact: true, ..through_pgbouncer()? });
        super::answers_as_the_truth_table_does(exact, 15);
    }
}

mod sealed {
    use super::*;
    use crate::sealed::common::SealedOver;

    onceward_testkit::store_conformance!(or_skip directly().map(SealedOver));
}
