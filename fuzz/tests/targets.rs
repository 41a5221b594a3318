//! Every target, briefly, in the ordinary test run.

use onceward_fuzz::run::{attempt, once};
use onceward_fuzz::{TARGETS, Target};

const EXECUTIONS: u64 = 20_000;

#[test]
fn no_target_fails() {
    for target in TARGETS {
        for number in 0..EXECUTIONS {
            let result = once(target, number);
            assert_eq!(result, Ok(()), "{} with seed {number}", target.name);
        }
    }
}

#[test]
fn no_target_fails_on_its_seeds() {
    for target in TARGETS {
        for seed in target.seeds {
            assert_eq!(attempt(target, seed), Ok(()), "{}: {}", target.name, seed.escape_ascii());
        }
    }
}

#[test]
fn a_failure_is_found_and_shortened() {
    let run = |input: &[u8]| assert!(!input.windows(2).any(|pair| pair == b"{{"), "two at once");
    let target = Target { name: "planted", run, seeds: &[b"some {text} here"], words: &[b"{"] };
    let failure = (0..EXECUTIONS).find_map(|number| once(&target, number).err()).unwrap();
    assert_eq!((&failure.input[..], failure.reason.as_str()), (&b"{{"[..], "two at once"));
}
