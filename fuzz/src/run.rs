//! Runs a target many times.

use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use crate::{Target, mutation};

/// A single input may take this long: a thousand times what it should, and less than what is
/// not linear takes.
const INPUT_TIME_MAX: Duration = Duration::from_secs(2);

/// An input that breaks a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The panic's message.
    pub reason: String,
    /// The input, shortened as far as it still fails.
    pub input: Vec<u8>,
}

/// Runs a target once, on the input of a number.
pub fn once(target: &Target, number: u64) -> Result<(), Failure> {
    let input = mutation::input(target, number);
    match attempt(target, &input) {
        Ok(()) => Ok(()),
        Err(_) => Err(shortest(target, input)),
    }
}

/// Runs a target on one input. Returns the panic's message if it fails.
pub fn attempt(target: &Target, input: &[u8]) -> Result<(), String> {
    let begun = Instant::now();
    let result = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let reason = |panic: Box<dyn std::any::Any + Send>| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
    };
    result.map_err(reason)?;
    if begun.elapsed() > INPUT_TIME_MAX {
        return Err(format!("it took {:?}", begun.elapsed()));
    }
    Ok(())
}

/// Leaves pieces out as long as it still fails, ever smaller ones.
fn shortest(target: &Target, mut input: Vec<u8>) -> Failure {
    let mut piece = input.len().div_ceil(2);
    while piece > 0 {
        let mut place = 0;
        while place < input.len() {
            let mut shorter = input.clone();
            shorter.drain(place..input.len().min(place + piece));
            match attempt(target, &shorter) {
                Ok(()) => place += piece,
                Err(_) => input = shorter,
            }
        }
        piece /= 2;
    }
    let reason = attempt(target, &input).err().unwrap_or_else(|| "it failed only once".into());
    Failure { reason, input }
}
