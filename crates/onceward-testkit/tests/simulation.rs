//! Tests of the simulator: it finds planted bugs, a seed repeats, and the production code holds
//! every invariant. `cargo xtask sim` runs many more seeds.

use onceward_testkit::history::Invariant;
use onceward_testkit::sim::{self, Mutant};

#[test]
fn every_invariant_holds_for_the_first_seeds() {
    for seed in 0..2_000 {
        let report = sim::run(seed, None);
        let violations: Vec<_> = report.violations.iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "cargo xtask sim --seed {seed}: {violations:#?}");
    }
}

#[test]
fn a_seed_repeats_itself() {
    for seed in (0..2_000).step_by(100) {
        let (first, second) = (sim::run(seed, None), sim::run(seed, None));
        assert_eq!(first.digest(), second.digest(), "seed {seed} has two histories");
        assert_ne!(first.digest(), sim::run(seed + 1, None).digest());
    }
}

#[test]
fn every_planted_mutant_is_caught_within_a_thousand_seeds() {
    for mutant in Mutant::ALL {
        let caught = (0..1_000).map(|seed| sim::run(seed, Some(mutant))).find(|report| {
            let wanted = expected(mutant);
            report.violations.iter().any(|violation| wanted.contains(&violation.invariant))
        });
        let report = caught.unwrap_or_else(|| panic!("{} was not caught", mutant.name()));
        println!("{:28} seed {:3}: {}", mutant.name(), report.seed, report.violations[0]);
    }
}

/// The invariant that must catch a mutant, by the harm that it does.
fn expected(mutant: Mutant) -> &'static [Invariant] {
    use onceward_testkit::open_store::StoreMutant;
    match mutant {
        Mutant::Store(StoreMutant::OwnerCheckDropped) => &[Invariant::I5HolderOnly],
        Mutant::Store(StoreMutant::EvidenceFenceIgnored) => &[Invariant::I5HolderOnly],
        Mutant::Store(StoreMutant::StaleRenewalAccepted) => &[Invariant::I5HolderOnly],
        Mutant::Store(StoreMutant::LateRenewalBlocks) => &[Invariant::I12Liveness],
        Mutant::AsksWithoutLease => &[Invariant::I16OneQuestion],
        Mutant::Store(StoreMutant::FingerprintIgnored) => &[Invariant::I3NoForeignReplay],
        Mutant::Store(StoreMutant::MarkerDeletedByTtl | StoreMutant::TakeoverForgotten)
        | Mutant::RunsOnTimedOutClaim
        | Mutant::LookThenLock
        | Mutant::ReleaseOnDrop
        | Mutant::BlindTakeover
        | Mutant::UnknownMeansNo => &[Invariant::I1OneEffect],
    }
}

#[test]
fn the_model_comparison_finds_what_is_wrong_with_a_store() {
    use onceward_testkit::conformance::ManualHarness;
    use onceward_testkit::model;
    use onceward_testkit::open_store::{OpenStore, StoreMutant};
    use proptest::test_runner::{Config, TestRunner};
    use std::sync::Arc;

    for mutant in [
        StoreMutant::OwnerCheckDropped,
        StoreMutant::MarkerDeletedByTtl,
        StoreMutant::StaleRenewalAccepted,
        StoreMutant::FingerprintIgnored,
        StoreMutant::TakeoverForgotten,
        StoreMutant::LateRenewalBlocks,
        StoreMutant::EvidenceFenceIgnored,
    ] {
        let config = Config { cases: 2_000, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new(config);
        let harness = ManualHarness::new(move |clock| Arc::new(OpenStore::mutated(clock, mutant)));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found = runner.run(&model::sequences(60), |steps| {
            let compared = runtime.block_on(model::compare(&harness, &steps));
            proptest::prop_assert!(compared.is_ok(), "{}", compared.unwrap_err());
            Ok(())
        });
        assert!(found.is_err(), "{mutant:?} went unnoticed");
    }
}
