//! Two texts have equal canonical forms exactly if they have the same meaning.
//!
//! The oracle never parses JSON: documents are generated as trees, whose equality is the definition of
//! "the same meaning", and written as text in one of very many ways.
//!
//! `ONCEWARD_CASES` sets the number of cases of each property.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;

use onceward_core::Part;
use onceward_http::testing::{PARTS_MAX, Selection, canonicalize, part_names};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const CASES: u32 = 20_000;

fn config() -> ProptestConfig {
    let cases = env::var("ONCEWARD_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    ProptestConfig::with_cases(cases)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn spelling_does_not_count_and_every_leaf_does(
        tree in trees(),
        leaf in leaves(),
        dice: u64,
    ) {
        let mut dice = Dice(dice);
        let first = form(&write(&tree, &mut dice));
        prop_assert_eq!(&first, &form(&write(&tree, &mut dice)));
        let mutated = mutate(&tree, leaf, &mut dice);
        prop_assert_eq!(tree == mutated, first == form(&write(&mutated, &mut dice)));
    }

    #[test]
    fn forms_of_small_documents_are_equal_exactly_if_these_are(
        one in small_trees(),
        other in small_trees(),
        dice: u64,
    ) {
        let mut dice = Dice(dice);
        let (one_form, other_form) = (form(&write(&one, &mut dice)), form(&write(&other, &mut dice)));
        prop_assert_eq!(one == other, one_form == other_form);
        // Prefix-free: bytes behind a form never belong to it.
        prop_assert!(one == other || !one_form.starts_with(&other_form));
    }

    #[test]
    fn a_small_document_has_the_form_of_any_other(tree in trees(), dice: u64) {
        // Takes the longer way and excludes nothing.
        let nothing = Selection::new(&[] as &[&str], &[NOWHERE]).unwrap();
        let text = write(&tree, &mut Dice(dice));
        prop_assert_eq!(selected(&text, &Selection::everything()), selected(&text, &nothing));
    }

    #[test]
    fn an_excluded_member_counts_as_absent(tree in trees(), dice: u64) {
        let mut dice = Dice(dice);
        let path = member_path(&tree, &mut dice);
        let without = remove(&tree, &path);
        let selection = Selection::new(&[] as &[&str], &[pointer(&path)]).unwrap();
        let cut = selected(&write(&tree, &mut dice), &selection).0;
        prop_assert_eq!(cut, without.map_or(b"_".to_vec(), |tree| form(&write(&tree, &mut dice))));
    }

    #[test]
    fn only_included_members_count(tree in trees(), dice: u64) {
        let mut dice = Dice(dice);
        let path = member_path(&tree, &mut dice);
        let found = path.iter().try_fold(&tree, |tree, name| match tree {
            Tree::Object(members) => members.get(name),
            _ => None,
        });
        let selection = Selection::new(&[pointer(&path)], &[] as &[&str]).unwrap();
        let picked = selected(&write(&tree, &mut dice), &selection).0;
        prop_assert_eq!(picked, found.map_or(b"_".to_vec(), |tree| form(&write(tree, &mut dice))));
    }

    #[test]
    fn a_changed_leaf_is_in_a_part_with_a_name(
        tree in trees(),
        leaf in leaves(),
        dice: u64,
    ) {
        let mut dice = Dice(dice);
        let everything = Selection::everything();
        let text = write(&tree, &mut dice);
        let (plain, parts) = selected(&text, &everything);
        prop_assert_eq!(plain, form(&text));
        prop_assert!(parts.len() <= PARTS_MAX);
        prop_assert_eq!(&selected(&write(&tree, &mut dice), &everything).1, &parts);

        let names = part_names(text.as_bytes(), &everything).unwrap();
        let hashes: Vec<_> = names.iter().map(|name| hash(&tree, name)).collect();
        prop_assert_eq!(hashes, parts.iter().map(|part| part.name).collect::<Vec<_>>());

        let mutated = mutate(&tree, leaf, &mut dice);
        let others = selected(&write(&mutated, &mut dice), &everything).1;
        prop_assert_eq!(tree == mutated, parts == others);
    }
}

/// Longer than any name of a member here.
const NOWHERE: &str = "/there is no such member";

fn form(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    canonicalize(text.as_bytes(), &Selection::everything(), &mut out, None).expect(text);
    out
}

fn selected(text: &str, selection: &Selection) -> (Vec<u8>, Vec<Part>) {
    let (mut out, mut parts) = (Vec::new(), Vec::new());
    canonicalize(text.as_bytes(), selection, &mut out, Some(&mut parts)).expect(text);
    (out, parts)
}

/// The hash of a pointer into a tree, segment by segment.
fn hash(tree: &Tree, pointer: &str) -> u64 {
    let mut at = tree;
    pointer.split('/').skip(1).fold(xxh3_64(b""), |parent, segment| match at {
        Tree::Array(items) => {
            let index: usize = segment.parse().unwrap();
            at = &items[index];
            xxh3_64_with_seed(&(index as u64).to_le_bytes(), parent)
        }
        Tree::Object(members) => {
            let name = segment.replace("~1", "/").replace("~0", "~");
            at = &members[&name];
            xxh3_64_with_seed(name.as_bytes(), parent)
        }
        _ => panic!("{pointer} leads into a scalar"),
    })
}

// The oracle.

#[derive(Debug, Clone, PartialEq)]
enum Tree {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(String),
    Array(Vec<Tree>),
    Object(BTreeMap<String, Tree>),
}

/// `digits` times ten to the `power`, normalised: no zeros at either end of the digits, and none for
/// zero.
#[derive(Debug, Clone, PartialEq)]
struct Decimal {
    negative: bool,
    digits: String,
    power: i128,
}

impl Decimal {
    fn new(negative: bool, digits: &str, power: i128) -> Self {
        let whole = digits.trim_start_matches('0');
        let digits = whole.trim_end_matches('0');
        if digits.is_empty() {
            return Self { negative: false, digits: String::new(), power: 0 };
        }
        let zeros = (whole.len() - digits.len()) as i128;
        Self { negative, digits: digits.to_owned(), power: power + zeros }
    }
}

fn trees() -> impl Strategy<Value = Tree> {
    leaves().prop_recursive(6, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..10).prop_map(Tree::Array),
            btree_map(names(), inner, 0..12).prop_map(Tree::Object),
        ]
    })
}

/// Few distinct trees, so that equal ones are frequent.
fn small_trees() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Null),
        (any::<bool>(), 0..3_u8, -1..2_i128)
            .prop_map(|(sign, digit, power)| Decimal::new(sign, &digit.to_string(), power))
            .prop_map(Tree::Number),
        select(vec!["", "0", "1", "a", "[]", "z"]).prop_map(|text| Tree::Text(text.to_owned())),
    ];
    let names = select(vec!["", "a", "b"]).prop_map(str::to_owned);
    leaf.prop_recursive(2, 4, 2, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Tree::Array),
            btree_map(names.clone(), inner, 0..3).prop_map(Tree::Object),
        ]
    })
}

fn leaves() -> impl Strategy<Value = Tree> {
    prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::Bool),
        numbers().prop_map(Tree::Number),
        names().prop_map(Tree::Text),
        Just(Tree::Array(Vec::new())),
        Just(Tree::Object(BTreeMap::new())),
    ]
}

fn numbers() -> impl Strategy<Value = Decimal> {
    let digits = prop_oneof![
        any::<u8>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        Just("9007199254740993".to_owned()),
        vec(select(vec!['0', '1', '9']), 1..40).prop_map(String::from_iter),
    ];
    let powers = prop_oneof![
        -3..4_i128,
        any::<i16>().prop_map(i128::from),
        any::<i64>().prop_map(i128::from),
        // Around the limits of the fast path and of i64, and far beyond.
        (select(vec![18, 19, 30]), -20..20_i128).prop_map(|(ten, near)| 10_i128.pow(ten) + near),
        (select(vec![18, 19, 30]), -20..20_i128).prop_map(|(ten, near)| near - 10_i128.pow(ten)),
        (-20..20_i128).prop_map(|near| i128::from(i64::MAX) + near),
        (-20..20_i128).prop_map(|near| i128::from(i64::MIN) + near),
    ];
    (any::<bool>(), digits, powers)
        .prop_map(|(negative, digits, power)| Decimal::new(negative, &digits, power))
}

fn names() -> impl Strategy<Value = String> {
    let chars = prop_oneof![
        8 => proptest::char::range('a', 'c'),
        1 => select(vec!['"', '\\', '/', '~', '\0', '\n', '\u{1f}', '\u{7f}', '0', 'é', '\u{301}']),
        1 => select(vec!['\u{d7ff}', '\u{e000}', '\u{feff}', '\u{ffff}', '😀', '\u{10ffff}']),
        1 => any::<char>(),
    ];
    vec(chars, 0..14).prop_map(String::from_iter)
}

// Changing documents.

/// The document with one leaf replaced.
fn mutate(tree: &Tree, leaf: Tree, dice: &mut Dice) -> Tree {
    match tree {
        Tree::Array(items) if !items.is_empty() => {
            let mut items = items.clone();
            let chosen = dice.below(items.len());
            items[chosen] = mutate(&items[chosen], leaf, dice);
            Tree::Array(items)
        }
        Tree::Object(members) if !members.is_empty() => {
            let mut members = members.clone();
            let place = dice.below(members.len());
            let chosen = members.values_mut().nth(place).unwrap();
            *chosen = mutate(chosen, leaf, dice);
            Tree::Object(members)
        }
        _ => leaf,
    }
}

/// A path through objects only, sometimes one step too long.
fn member_path(tree: &Tree, dice: &mut Dice) -> Vec<String> {
    let mut path = Vec::new();
    let mut place = tree;
    while let Tree::Object(members) = place
        && !members.is_empty()
        && dice.below(4) > 0
    {
        let (name, member) = members.iter().nth(dice.below(members.len())).unwrap();
        path.push(name.clone());
        place = member;
    }
    if dice.below(8) == 0 && !matches!(place, Tree::Array(_)) {
        path.push("another".to_owned());
    }
    path
}

fn pointer(path: &[String]) -> String {
    path.iter().map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect()
}

fn remove(tree: &Tree, path: &[String]) -> Option<Tree> {
    let (name, rest) = path.split_first()?;
    let mut tree = tree.clone();
    if let Tree::Object(members) = &mut tree
        && let Some(member) = members.remove(name)
        && let Some(left) = remove(&member, rest)
    {
        members.insert(name.clone(), left);
    }
    Some(tree)
}

// Writing documents.

/// Small random choices: splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// One of the many texts of a document.
fn write(tree: &Tree, dice: &mut Dice) -> String {
    let mut text = String::new();
    write_blanks(&mut text, dice);
    write_tree(tree, &mut text, dice);
    write_blanks(&mut text, dice);
    text
}

fn write_tree(tree: &Tree, text: &mut String, dice: &mut Dice) {
    match tree {
        Tree::Null => text.push_str("null"),
        Tree::Bool(value) => write!(text, "{value}").unwrap(),
        Tree::Number(number) => write_number(number, text, dice),
        Tree::Text(string) => write_string(string, text, dice),
        Tree::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| (None, item)).collect();
            write_container(['[', ']'], &items, text, dice);
        }
        Tree::Object(members) => {
            let mut members: Vec<_> =
                members.iter().map(|(name, member)| (Some(name), member)).collect();
            for last in (1..members.len()).rev() {
                members.swap(last, dice.below(last + 1));
            }
            write_container(['{', '}'], &members, text, dice);
        }
    }
}

fn write_container(
    [open, close]: [char; 2],
    children: &[(Option<&String>, &Tree)],
    text: &mut String,
    dice: &mut Dice,
) {
    text.push(open);
    write_blanks(text, dice);
    for (position, (name, child)) in children.iter().enumerate() {
        if position > 0 {
            text.push(',');
            write_blanks(text, dice);
        }
        if let Some(name) = name {
            write_string(name, text, dice);
            write_blanks(text, dice);
            text.push(':');
            write_blanks(text, dice);
        }
        write_tree(child, text, dice);
        write_blanks(text, dice);
    }
    text.push(close);
}

fn write_blanks(text: &mut String, dice: &mut Dice) {
    text.push_str(dice.pick(&["", "", "", "", " ", "\t", "\r\n", "   \n"]));
}

fn write_string(string: &str, text: &mut String, dice: &mut Dice) {
    text.push('"');
    for char in string.chars() {
        let must = matches!(char, '"' | '\\' | '\0'..'\u{20}');
        match (must, dice.below(8)) {
            (false, 2..) => text.push(char),
            (_, 0..4) => write_units(char, text, dice),
            _ => write_short_escape(char, text, dice),
        }
    }
    text.push('"');
}

fn write_units(char: char, text: &mut String, dice: &mut Dice) {
    for unit in char.encode_utf16(&mut [0; 2]) {
        match dice.below(2) {
            0 => write!(text, "\\u{unit:04x}").unwrap(),
            _ => write!(text, "\\u{unit:04X}").unwrap(),
        }
    }
}

fn write_short_escape(char: char, text: &mut String, dice: &mut Dice) {
    let short = match char {
        '"' | '\\' | '/' => char,
        '\u{8}' => 'b',
        '\u{c}' => 'f',
        '\n' => 'n',
        '\r' => 'r',
        '\t' => 't',
        _ => return write_units(char, text, dice),
    };
    text.push('\\');
    text.push(short);
}

/// Moves the decimal point to any place, and lets the exponent make up for it.
fn write_number(number: &Decimal, text: &mut String, dice: &mut Dice) {
    if number.digits.is_empty() {
        text.push_str(dice.pick(&["0", "-0", "0.0", "-0.00", "0e7", "0E-99999999999999999999"]));
        return;
    }
    let mut digits = number.digits.clone();
    let mut power = number.power;
    // Without an exponent, if that is not too long.
    let plain = (-30..30).contains(&power) && dice.below(2) == 0;
    let zeros = if plain && power > 0 { power as usize } else { dice.below(4) };
    digits.push_str(&"0".repeat(zeros));
    power -= zeros as i128;
    let places = if plain { -power as usize } else { dice.below(digits.len() + 3) };
    power += places as i128;
    while digits.len() <= places {
        digits.insert(0, '0');
    }
    let (integer, fraction) = digits.split_at(digits.len() - places);
    text.push_str(if number.negative { "-" } else { "" });
    text.push_str(integer);
    if !fraction.is_empty() {
        write!(text, ".{fraction}").unwrap();
    }
    if power != 0 || dice.below(4) == 0 {
        write_exponent(power, text, dice);
    }
}

fn write_exponent(power: i128, text: &mut String, dice: &mut Dice) {
    text.push(dice.pick(&['e', 'E']));
    let plus = dice.pick(&["", "+"]);
    text.push_str(if power < 0 || (power == 0 && dice.below(2) == 0) { "-" } else { plus });
    text.push_str(dice.pick(&["", "", "0", "000"]));
    write!(text, "{}", power.unsigned_abs()).unwrap();
}
