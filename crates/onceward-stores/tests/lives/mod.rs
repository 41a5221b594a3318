//! Processes that work on a store until they are killed, and a ledger of what they reported.

mod ledger;
mod worker;

use onceward_core::StoreAdmin;
use onceward_testkit::killed_process::CollectOutput;

use self::ledger::after_life;
use crate::calls::id;

pub(crate) use self::ledger::Ledger;
pub(crate) use self::worker::work;
pub(crate) use onceward_testkit::killed_process::KilledProcess;

impl CollectOutput for Ledger {
    fn line(&mut self, line: &str) {
        Ledger::hear(self, line);
    }
}

/// Compares the store with everything that was reported.
pub(crate) async fn look(store: &impl StoreAdmin, life: u32, ledger: &mut Ledger) {
    let keys: Vec<_> = ledger.keys().cloned().collect();
    for key in keys {
        let found = store.get(&id(&key)).await.unwrap();
        ledger.look(&key, found, after_life(life.into()));
    }
}

/// Judges the ledger, after enough kills hit running work.
pub(crate) fn assert_held(ledger: &Ledger, kills: u32) {
    let violations = ledger.judge(after_life(kills.into()));
    assert!(violations.is_empty(), "{} violations, {:#?}", violations.len(), &violations[0]);
    let (keys, completed, unknown) = (ledger.keys().count(), ledger.completed(), ledger.unknown());
    println!("{kills} kills, {keys} keys, {completed} completed, {unknown} unknown");
    assert!(completed > 0 && unknown > 0, "the kills hit nothing");
}
