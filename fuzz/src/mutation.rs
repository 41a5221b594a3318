//! Makes an input from a target's seeds.

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::Target;

/// Mutations of one input at most.
const STEPS_MAX: usize = 12;
/// Longer inputs find nothing that these do not, only slower.
const INPUT_BYTES_MAX: usize = 16 * 1024;

/// The input that belongs to a number: always the same, so a failure can be repeated.
pub fn input(target: &Target, number: u64) -> Vec<u8> {
    let mut dice = StdRng::seed_from_u64(number);
    let mut input = pick(target.seeds, &mut dice).to_vec();
    // Few more often than many: after many, hardly an input gets beyond the first check.
    let most = dice.random_range(0..=STEPS_MAX);
    for _ in 0..dice.random_range(0..=most) {
        mutate(&mut input, target, &mut dice);
        input.truncate(INPUT_BYTES_MAX);
    }
    input
}

fn mutate(input: &mut Vec<u8>, target: &Target, dice: &mut StdRng) {
    let range = some_range(input, dice);
    match dice.random_range(0..10) {
        0 => flip_bit(input, dice),
        1 => fill(&mut input[range], dice),
        2 => drop(input.drain(range)),
        3 => repeat(input, range, dice),
        4 => move_elsewhere(input, range, dice),
        5 => splice(input, range, pick(target.seeds, dice), dice),
        6 => drop(input.splice(range, pick(target.words, dice).iter().copied())),
        7 => insert_many(input, pick(target.words, dice), dice),
        _ => insert(input, pick(target.words, dice), dice),
    }
}

fn pick<'t>(choices: &[&'t [u8]], dice: &mut StdRng) -> &'t [u8] {
    choices[dice.random_range(0..choices.len())]
}

/// A range of an input, mostly a short one.
fn some_range(input: &[u8], dice: &mut StdRng) -> std::ops::Range<usize> {
    let start = dice.random_range(0..=input.len());
    let longest = if dice.random_bool(0.8) { 8 } else { input.len() };
    let length = dice.random_range(0..=longest.min(input.len() - start));
    start..start + length
}

fn flip_bit(input: &mut [u8], dice: &mut StdRng) {
    if !input.is_empty() {
        // Of the seven that keep ASCII what it is.
        input[dice.random_range(0..input.len())] ^= 1 << dice.random_range(0..7);
    }
}

/// With characters mostly: other bytes are soon found not to be UTF-8.
fn fill(bytes: &mut [u8], dice: &mut StdRng) {
    if dice.random_bool(0.1) {
        return dice.fill_bytes(bytes);
    }
    bytes.fill_with(|| dice.random_range(b' '..=b'~'));
}

fn repeat(input: &mut Vec<u8>, range: std::ops::Range<usize>, dice: &mut StdRng) {
    let times = if dice.random_bool(0.8) { 1 } else { dice.random_range(1..200) };
    let copied = input[range.clone()].repeat(times);
    input.splice(range.end..range.end, copied);
}

fn move_elsewhere(input: &mut Vec<u8>, range: std::ops::Range<usize>, dice: &mut StdRng) {
    let moved: Vec<u8> = input.drain(range).collect();
    insert(input, &moved, dice);
}

/// Puts a piece of another seed in the place of a range.
fn splice(input: &mut Vec<u8>, range: std::ops::Range<usize>, seed: &[u8], dice: &mut StdRng) {
    let piece = seed[some_range(seed, dice)].to_vec();
    input.splice(range, piece);
}

fn insert(input: &mut Vec<u8>, word: &[u8], dice: &mut StdRng) {
    let place = dice.random_range(0..=input.len());
    input.splice(place..place, word.iter().copied());
}

fn insert_many(input: &mut Vec<u8>, word: &[u8], dice: &mut StdRng) {
    let many = word.repeat(dice.random_range(2..200));
    insert(input, &many, dice);
}
