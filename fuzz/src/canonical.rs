//! The canonical form of JSON, against serde_json and against itself.

use std::collections::BTreeSet;
use std::fmt;

use onceward_http::testing::{DEPTH_MAX, PARTS_MAX, Selection, Unclean, canonicalize, part_names};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

pub(crate) const SEEDS: &[&[u8]] = &[
    br#"{"amount":100,"currency":"EUR","to":{"iban":"DE12","name":"A"},"items":[1,2.50,-3e-7]}"#,
    br#"[null,true,false,0,-0.0,1E+2,"",[],{}]"#,
    br#"{"a":1,"b":2,"\u0061":3}"#,
    br#"{"z":{"y":{"x":{"w":{"v":[[[["deep"]]]]}}}},"longer than eight":1,"longer than nine":2}"#,
    br#""\ud83d\ude00\u00e9\"\\\/\b\f\n\r\t""#,
    "{\"é\":\"\u{1F600}\",\"e\u{301}\":\"\u{feff}\"}".as_bytes(),
    b"  [ 1e999999999999999999 , 0.1e1000000000000000000 , 1e-99999999999999999999999 ]\r\n",
    b"[9007199254740993,1000000000000000.01,0.000001000]",
    b"{\"a\":{\"a\":{\"a\":{}}},\"\":[{\"\":0},{\"\":1}]}",
];

pub(crate) const WORDS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b"\\u",
    b"\\ud800",
    b"\\udc00",
    b"\\u0000",
    b"\"a\":",
    b"\"\":0",
    b"{\"a\":",
    b"[[[[[[[[",
    b"]]]]]]]]",
    b"null",
    b"true",
    b"false",
    b"0",
    b"-",
    b"+",
    b".",
    b"e",
    b"E-",
    b"e+0",
    b"1e999999999999999999",
    b"00",
    b"9999999999",
    b" ",
    b"\n",
    b"\0",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xed\xa0\x80",
    b"/",
    b"~",
    b"~1",
];

/// A text is clean exactly when serde_json finds it so; its form says what it says, whichever
/// way that is written; and its parts have names.
pub fn canonical_json(text: &[u8]) {
    let form = form(text, &Selection::everything());
    compare(text, &form);
    check_ways(text);
    if let Ok(form) = form {
        check_form(text, &form);
        check_parts(text, &form);
    }
}

/// A small document is written while it is read, and comes to what the longer way comes to, which
/// a selection takes, even one that takes nothing out.
fn check_ways(text: &[u8]) {
    let [short, long] = [&[] as &[&str], &["/\u{1}\u{2}\u{3}\u{4}"]].map(|exclude| {
        let selection = Selection::new(&[] as &[&str], exclude).unwrap();
        let (mut out, mut parts) = (vec![1], Vec::new());
        let written = canonicalize(text, &selection, &mut out, Some(&mut parts));
        (written, out, parts)
    });
    // Such a member may be there, in one text of very many.
    assert!(short == long || text.windows(6).any(|window| window == b"\\u0001"));
}

fn form(text: &[u8], selection: &Selection) -> Result<Vec<u8>, Unclean> {
    let mut out = Vec::new();
    canonicalize(text, selection, &mut out, None).map(|()| out)
}

// Against serde_json: which texts are clean.

fn compare(text: &[u8], form: &Result<Vec<u8>, Unclean>) {
    let Ok(utf8) = str::from_utf8(text) else {
        return assert_eq!(*form, Err(Unclean::InvalidUtf8));
    };
    if utf8.starts_with('\u{feff}') {
        return assert_eq!(*form, Err(Unclean::ByteOrderMark));
    }
    if serde_json::from_str::<IgnoredAny>(utf8).is_err() {
        return assert!(form.is_err(), "serde_json refuses it");
    }
    let ambiguous = matches!(form, Err(Unclean::DuplicateMember | Unclean::LoneSurrogate));
    if depth(text) > DEPTH_MAX {
        return assert!(ambiguous || *form == Err(Unclean::TooDeep));
    }
    assert!(form.is_ok() || ambiguous, "serde_json knows no {form:?} here");
    match judge(utf8) {
        Judgement::Clean => assert!(form.is_ok(), "serde_json knows no {form:?} here"),
        Judgement::Duplicate => assert_eq!(*form, Err(Unclean::DuplicateMember)),
        Judgement::Surrogate => assert!(ambiguous, "serde_json knows a lone surrogate"),
        Judgement::Beyond => {}
    }
}

/// serde_json's judgement of a text that has the right grammar.
enum Judgement {
    Clean,
    Duplicate,
    Surrogate,
    /// It is too deep, or a number too large, for serde_json.
    Beyond,
}

fn judge(text: &str) -> Judgement {
    match serde_json::from_str::<Names>(text) {
        Ok(Names::Distinct) => Judgement::Clean,
        Ok(Names::Repeated) => Judgement::Duplicate,
        Err(error) => {
            let reason = error.to_string();
            let beyond = ["number out of range", "recursion limit"];
            if beyond.iter().any(|beyond| reason.starts_with(beyond)) {
                Judgement::Beyond
            } else {
                Judgement::Surrogate
            }
        }
    }
}

/// True if the members of each object in a value have different names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Distinct,
    Repeated,
}

impl Names {
    fn and(self, other: Self) -> Self {
        if self == Self::Distinct { other } else { self }
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NamesVisitor)
    }
}

struct NamesVisitor;

impl<'de> Visitor<'de> for NamesVisitor {
    type Value = Names;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Names, E> {
        Ok(Names::Distinct)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Names, E> {
        Ok(Names::Distinct)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Names, E> {
        Ok(Names::Distinct)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Names, E> {
        Ok(Names::Distinct)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Names, E> {
        Ok(Names::Distinct)
    }

    fn visit_str<E>(self, _: &str) -> Result<Names, E> {
        Ok(Names::Distinct)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Names, A::Error> {
        let mut names = Names::Distinct;
        while let Some(inner) = items.next_element()? {
            names = names.and(inner);
        }
        Ok(names)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Names, A::Error> {
        let mut names = Names::Distinct;
        let mut seen = BTreeSet::new();
        while let Some((name, inner)) = members.next_entry::<String, Names>()? {
            let new = if seen.insert(name) { Names::Distinct } else { Names::Repeated };
            names = names.and(inner).and(new);
        }
        Ok(names)
    }
}

/// How deep the containers of a text go that has the right grammar.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn skip_string<'t>(bytes: &mut impl Iterator<Item = &'t u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => return,
            _ => {}
        }
    }
}

// Against itself: what the form says.

/// Reads the form back into a text: serde_json finds the same in it, and it has the same form.
fn check_form(text: &[u8], form: &[u8]) {
    let mut rest = form;
    let back = read_value(&mut rest);
    assert!(rest.is_empty(), "something follows the form");
    assert_eq!(self::form(back.as_bytes(), &Selection::everything()).as_deref(), Ok(form));
    let values = (serde_json::from_slice(text), serde_json::from_str(&back));
    if let (Ok(one), Ok(other)) = values {
        assert!(alike(&one, &other), "the form says {back}");
    }
}

/// Numbers only nearly: serde_json rounds them, and not always the same way.
fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let (one, other) = (one.as_f64().unwrap_or(0.0), other.as_f64().unwrap_or(0.0));
            (one - other).abs() <= one.abs() * 1e-12 + f64::MIN_POSITIVE
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let in_other = |(name, one)| other.get(name).is_some_and(|other| alike(one, other));
            one.len() == other.len() && one.iter().all(in_other)
        }
        _ => one == other,
    }
}

/// A JSON text of what stands first in a form, with members in the opposite order.
fn read_value(form: &mut &[u8]) -> String {
    match take(form) {
        b'z' => "null".to_owned(),
        b'f' => "false".to_owned(),
        b't' => "true".to_owned(),
        b'0' => "-0.0e1".to_owned(),
        b'+' => read_number(form),
        b'-' => format!("-{}", read_number(form)),
        b's' => read_string(form),
        b'[' => format!("[{}]", read_until(b']', form, read_value).join(" ,\n")),
        b'{' => {
            let mut members = read_until(b'}', form, |form| {
                assert_eq!(take(form), b's');
                format!("{} : {}", read_string(form), read_value(form))
            });
            members.reverse();
            format!("{{{}}}", members.join("\t, "))
        }
        other => panic!("{other:#x} begins no value"),
    }
}

fn read_until(
    end: u8,
    form: &mut &[u8],
    mut read: impl FnMut(&mut &[u8]) -> String,
) -> Vec<String> {
    let mut texts = Vec::new();
    while form.first() != Some(&end) {
        texts.push(read(form));
    }
    take(form);
    texts
}

/// A form says it with an exponent; the text says it with one zero more.
fn read_number(form: &mut &[u8]) -> String {
    let mut text = String::new();
    loop {
        match take(form) {
            b';' if text.contains('e') => return text,
            b';' => return text + ".0",
            b'e' => text.push_str(".0e"),
            byte => text.push(char::from(byte)),
        }
    }
}

fn read_string(form: &mut &[u8]) -> String {
    let mut length = 0;
    for shift in (0..).step_by(7) {
        let byte = take(form);
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let (text, rest) = form.split_at(length);
    *form = rest;
    let text = str::from_utf8(text).expect("strings are UTF-8");
    let mut escaped = String::from("\"");
    for unit in text.encode_utf16() {
        escaped.push_str(&format!("\\u{unit:04X}"));
    }
    escaped + "\""
}

fn take(form: &mut &[u8]) -> u8 {
    let (first, rest) = form.split_first().expect("the form goes on");
    *form = rest;
    *first
}

// Parts and selections.

fn check_parts(text: &[u8], form: &[u8]) {
    let everything = Selection::everything();
    let (mut out, mut parts) = (Vec::new(), Vec::new());
    canonicalize(text, &everything, &mut out, Some(&mut parts)).expect("it was clean");
    assert_eq!(out, form);
    assert!((1..=PARTS_MAX).contains(&parts.len()));
    let names = part_names(text, &everything).expect("it was clean");
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "two parts, one name");
    // That the n-th hash is that of the n-th name, the property tests of `canonical` show.
    let hashes: BTreeSet<_> = parts.iter().map(|part| part.name).collect();
    assert_eq!((parts.len(), hashes.len()), (names.len(), names.len()));
    names.iter().take(3).for_each(|name| check_selection(text, name));
}

/// Whatever a pointer leads to is either all that counts, or nothing of what counts.
fn check_selection(text: &[u8], pointer: &str) {
    let include = Selection::new(&[pointer], &[] as &[&str]).expect("it is a pointer");
    let exclude = Selection::new(&[] as &[&str], &[pointer]).expect("it is a pointer");
    let nothing = Selection::new(&[pointer], &[pointer]).expect("it is a pointer");
    assert_ne!(form(text, &include).as_deref(), Ok(&b"_"[..]), "the pointer leads nowhere");
    assert_eq!(form(text, &nothing).as_deref(), Ok(&b"_"[..]));
    assert_ne!(form(text, &exclude), form(text, &Selection::everything()));
}
