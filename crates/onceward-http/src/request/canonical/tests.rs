use std::iter;
use std::time::{Duration, Instant};

use super::*;

const NONE: &[&str] = &[];

fn form(text: impl AsRef<[u8]>, selection: &Selection) -> Result<Vec<u8>, Unclean> {
    let mut out = Vec::new();
    canonicalize(text.as_ref(), selection, &mut out, None)?;
    Ok(out)
}

fn of(text: impl AsRef<[u8]>) -> Vec<u8> {
    form(text, &Selection::everything()).unwrap()
}

fn unclean(text: impl AsRef<[u8]>) -> Unclean {
    form(text, &Selection::everything()).unwrap_err()
}

fn excluding(text: &str, pointers: &[&str]) -> Vec<u8> {
    form(text, &Selection::new(NONE, pointers).unwrap()).unwrap()
}

fn including(text: &str, pointers: &[&str]) -> Vec<u8> {
    form(text, &Selection::new(pointers, NONE).unwrap()).unwrap()
}

fn parts(text: &str) -> Vec<(String, u64)> {
    selected_parts(text, &Selection::everything())
}

fn selected_parts(text: &str, selection: &Selection) -> Vec<(String, u64)> {
    let (mut out, mut parts) = (Vec::new(), Vec::new());
    canonicalize(text.as_bytes(), selection, &mut out, Some(&mut parts)).unwrap();
    assert_eq!(out, form(text, selection).unwrap(), "parts change the form");
    let names = part_names(text.as_bytes(), selection).unwrap();
    assert_eq!(names.len(), parts.len());
    iter::zip(names, parts.iter().map(|part| part.value)).collect()
}

fn names(text: &str) -> Vec<String> {
    parts(text).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn the_form_is_the_documented_one() {
    let text = r#" {"b": [1, -20.50, 0, "x"], "a": {"n": null, "f": false, "t": true}} "#;
    let form: &[u8] = b"{s\x01a{s\x01ffs\x01nzs\x01tt}s\x01b[+1;-205e-1;0s\x01x]}";
    assert_eq!(of(text), form);
}

#[test]
fn a_long_string_has_its_length_in_two_bytes() {
    let lengths: [(usize, &[u8]); 5] = [
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (255, b"\xff\x01"),
        (256, b"\x80\x02"),
        (16_384, b"\x80\x80\x01"),
    ];
    for (length, bytes) in lengths {
        let text = "x".repeat(length);
        assert_eq!(of(format!("\"{text}\"")), [b"s", bytes, text.as_bytes()].concat());
    }
}

#[test]
fn numbers_are_equal_by_their_value() {
    for (one, others) in [
        ("100", &["1e2", "100.0", "1E+2", "1E2", "10e1", "0.1e3", "1000e-1", "100.000e0"][..]),
        ("0", &["-0", "0.0", "-0.0e5", "0e99", "0E-99999999999999999999999"]),
        ("0.1", &["0.10", "1e-1", "0.01e1", "1E-01", "10e-2"]),
        ("-12.5", &["-125e-1", "-0.125e2", "-12.50"]),
        ("1e1000000000000000000000", &["10e999999999999999999999", "0.1e1000000000000000000001"]),
        (
            "1e999999999999999999999",
            &["10e999999999999999999998", "0.01E+0001000000000000000000001"],
        ),
        // Around the largest exponent that fits into an i64 here.
        ("1e999999999999999999", &["0.1e1000000000000000000", "0.00001e1000000000000000004"]),
        ("1e-1000000000000000000", &["10e-1000000000000000001", "0.1e-999999999999999999"]),
        ("100e-1000000000000000000", &["1e-999999999999999998"]),
    ] {
        for other in others {
            assert_eq!(of(one), of(other), "{one} and {other}");
        }
    }
}

#[test]
fn numbers_differ_in_the_last_digit() {
    for (one, other) in [
        ("9007199254740993", "9007199254740992"),
        ("1000000000000000.01", "1000000000000000.02"),
        ("1", "-1"),
        ("1", "10"),
        ("0.1", "0.01"),
        ("1e999999999999999999999", "1e999999999999999999998"),
        ("1e999999999999999999999", "1e-999999999999999999999"),
        ("1e400", "1e401"),
    ] {
        assert_ne!(of(one), of(other), "{one} and {other}");
    }
}

#[test]
fn types_order_and_absence_count() {
    for (one, other) in [
        ("1", "\"1\""),
        ("null", "\"null\""),
        ("[1,2]", "[2,1]"),
        ("[[1],2]", "[1,[2]]"),
        ("{\"a\":null}", "{}"),
        ("[]", "{}"),
        ("[null]", "[]"),
        ("{\"a\":{},\"b\":1}", "{\"a\":{\"b\":1}}"),
        // No Unicode normalisation.
        ("\"\u{e9}\"", "\"e\u{301}\""),
    ] {
        assert_ne!(of(one), of(other), "{one} and {other}");
    }
}

#[test]
fn member_order_blanks_and_escapes_do_not_count() {
    for (one, other) in [
        (r#"{"a":1,"b":2}"#, "\t{ \"b\" : 2 ,\r\n\"a\":1 }"),
        (r#""\u0041\u00e9""#, "\"Aé\""),
        (r#""\ud83d\ude00""#, "\"😀\""),
        (r#""\uD83D\uDE00!""#, "\"😀!\""),
        (r#""\"\\\/\b\f\n\r\t""#, r#""\u0022\u005C/\u0008\u000c\u000A\u000d\u0009""#),
        (r#"{"\u0061":1,"b":2}"#, r#"{"b":2,"a":1}"#),
        ("[ ]", "[]"),
        ("{ }", "{}"),
    ] {
        assert_eq!(of(one), of(other), "{one} and {other}");
    }
}

#[test]
fn names_are_sorted_beyond_their_first_bytes() {
    let one = r#"{"":0,"a":1,"a\u0000":2,"abcdefgh":3,"abcdefghi":4,"abcdefghj":5,"é":6}"#;
    let other = r#"{"é":6,"abcdefghj":5,"abcdefghi":4,"abcdefgh":3,"a\u0000":2,"a":1,"":0}"#;
    assert_eq!(of(one), of(other));
}

#[test]
fn duplicate_members_are_unclean() {
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"b":2,"\u0061":3}"#,
        r#"[{"x":{"longer than eight":1,"longer than eight":2}}]"#,
        r#"{"":1,"":2}"#,
    ] {
        assert_eq!(unclean(text), Unclean::DuplicateMember, "{text}");
    }
    of(r#"[{"a":{"a":1}},{"a":1}]"#);
}

#[test]
fn lone_surrogates_are_unclean() {
    for text in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800x""#,
        r#""\ud800\ud800""#,
        r#""\ud800\u0041""#,
        r#""\udc00\ud800""#,
        r#"{"\ud83d":1}"#,
    ] {
        assert_eq!(unclean(text), Unclean::LoneSurrogate, "{text}");
    }
}

#[test]
fn text_outside_the_grammar_is_unclean() {
    let texts = [
        "",
        " ",
        "{",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "{,}",
        "{1:1}",
        "'a'",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\u+123\"",
        "\"\n\"",
        "\"\0\"",
        "01",
        "-",
        "-a",
        "+1",
        ".5",
        "1.",
        "1.e1",
        "1e",
        "1e+",
        "1e1.5",
        "0x1",
        "--1",
        "1_000",
        "NaN",
        "Infinity",
        "tru",
        "truex",
        "nul",
        "True",
        "1 2",
        "{} {}",
        "[]]",
        "// a\n1",
        "1//",
        "\u{a0}1",
        "\u{c}1",
        "\"\\ud800\\u\"",
    ];
    for text in texts {
        assert!(matches!(unclean(text), Unclean::Syntax { .. }), "{text:?}: {}", unclean(text));
    }
    assert_eq!(unclean("[1,x]"), Unclean::Syntax { at: 3 });
}

#[test]
fn control_characters_must_be_escaped_everywhere() {
    for control in '\0'..' ' {
        for place in 1..=20 {
            let mut text = format!("\"{}\"", "x".repeat(19));
            text.insert(place, control);
            assert!(matches!(unclean(&text), Unclean::Syntax { .. }), "{text:?}");
        }
    }
    of("\"\u{7f}\u{80}\u{9f}\u{a0}\"");
}

#[test]
fn text_that_is_not_plain_utf8_is_unclean() {
    assert_eq!(unclean("\u{feff}{}"), Unclean::ByteOrderMark);
    assert!(matches!(unclean("{}\u{feff}"), Unclean::Syntax { .. }));
    for text in [&b"\"\xff\""[..], b"\"\xc0\xaf\"", b"\"\xed\xa0\x80\"", b"{\"\xc3\":1}", b"1\xfe"]
    {
        assert_eq!(unclean(text), Unclean::InvalidUtf8);
    }
    // In UTF-16, as some clients send it.
    assert_eq!(unclean(b"\xff\xfe{\0}\0"), Unclean::InvalidUtf8);
}

#[test]
fn nesting_is_limited() {
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    of(nested(DEPTH_MAX));
    assert_eq!(unclean(nested(DEPTH_MAX + 1)), Unclean::TooDeep);
    let objects = |depth| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    of(objects(DEPTH_MAX));
    assert_eq!(unclean(objects(DEPTH_MAX + 1)), Unclean::TooDeep);
    // Side by side is not nested.
    of(format!("[{}]", vec!["[[]]"; 1000].join(",")));
}

#[test]
fn an_unclean_text_appends_nothing() {
    let (mut out, mut parts) = (b"before".to_vec(), Vec::new());
    let everything = Selection::everything();
    let result = canonicalize(b"[1,2", &everything, &mut out, Some(&mut parts));
    assert_eq!(result, Err(Unclean::Syntax { at: 4 }));
    assert_eq!((&out[..], parts.len()), (&b"before"[..], 0));
    canonicalize(b"1", &everything, &mut out, None).unwrap();
    assert_eq!(out, b"before+1;");
}

/// A second is some hundred times what these take; quadratic work would take minutes.
#[test]
fn hostile_texts_take_linear_time() {
    const MIB: usize = 1 << 20;
    let many = |member: &dyn Fn(usize) -> String| {
        let members: Vec<_> = (0..MIB / 16).map(member).collect();
        format!("{{{}}}", members.join(","))
    };
    let deep =
        "{\"b\":0,\"a\":".repeat(127) + "[" + &"1,".repeat(MIB / 2) + "1]" + &"}".repeat(127);
    let long_prefix = |n| format!("\"{}{n}\":1", "x".repeat(100));
    let texts = [
        ("open arrays", "[".repeat(MIB)),
        ("open objects", "{\"a\":".repeat(MIB / 5)),
        ("half escapes", "\"\\u".repeat(MIB / 3)),
        ("escapes", format!("\"{}\"", "\\u0041".repeat(MIB / 6))),
        ("digits", "1".repeat(MIB)),
        ("zeros", format!("1{}", "0".repeat(MIB))),
        ("fraction", format!("0.{}1", "0".repeat(MIB))),
        ("exponent", format!("1.5e{}", "9".repeat(MIB))),
        ("borrow", format!("1.5e1{}", "0".repeat(MIB))),
        ("huge value", "1e999999999999999999999".to_owned()),
        ("numbers", format!("[{}1]", "1,".repeat(MIB / 2))),
        ("exponents", format!("[{}1]", "1e99999999999999999999,".repeat(MIB / 24))),
        ("same names", many(&|_| "\"a\":1".to_owned())),
        ("falling names", many(&|n| format!("\"{:08}\":1", MIB - n))),
        ("long common prefix", many(&long_prefix)),
        ("deep and unsorted", deep),
        ("blanks", " ".repeat(MIB)),
    ];
    for (name, text) in texts {
        let begun = Instant::now();
        let (mut out, mut parts) = (Vec::new(), Vec::new());
        let everything = Selection::everything();
        let _ = canonicalize(text.as_bytes(), &everything, &mut out, Some(&mut parts));
        assert!(begun.elapsed() < Duration::from_secs(5), "{name}: {:?}", begun.elapsed());
        assert!(out.len() < 2 * text.len(), "{name}");
    }
}

#[test]
fn excluded_members_count_as_absent() {
    let text = r#"{"a":{"b":1,"c":2},"d":3,"e~/f":4}"#;
    assert_eq!(excluding(text, &["/a/b"]), of(r#"{"a":{"c":2},"d":3,"e~/f":4}"#));
    assert_eq!(excluding(text, &["/a", "/e~0~1f"]), of(r#"{"d":3}"#));
    assert_eq!(excluding(text, &["/a/b", "/a/c"]), of(r#"{"a":{},"d":3,"e~/f":4}"#));
    assert_eq!(excluding(text, &["/a", "/a/b"]), excluding(text, &["/a"]));
    assert_eq!(excluding(text, &["/x", "/d/0", "/a/b/c", "/a/0"]), of(text));
    assert_eq!(excluding(text, &[""]), b"_");
}

#[test]
fn an_excluded_item_leaves_a_gap() {
    let exclude = |text| excluding(text, &["/0", "/2/a"]);
    assert_eq!(exclude("[1,2,{\"a\":3}]"), exclude("[9,2,{}]"));
    assert_ne!(exclude("[1,2]"), exclude("[2]"));
    assert_ne!(exclude("[1,2]"), exclude("[1,1]"));
    assert_ne!(exclude("[1]"), exclude("[]"));
    // Only a whole number without leading zeros is an index, but any is a name.
    assert_eq!(excluding("[1,2]", &["/00", "/-", "/+1", "/-1", "/"]), of("[1,2]"));
    assert_eq!(excluding(r#"{"00":1,"-":2,"":3,"0":4}"#, &["/00", "/-", "/", "/0"]), of("{}"));
    assert_eq!(excluding("[1]", &["/99999999999999999999999"]), of("[1]"));
}

#[test]
fn only_included_members_count() {
    let text = r#"{"a":{"b":1,"c":[5,6]},"d":3}"#;
    assert_eq!(including(text, &["/a/b"]), of("1"));
    assert_eq!(including(text, &["/a/c/1"]), of("6"));
    assert_eq!(including(text, &["/d", "/a"]), [of(r#"{"b":1,"c":[5,6]}"#), of("3")].concat());
    assert_eq!(including(text, &["/a", "/a/b", "/a"]), including(text, &["/a"]));
    assert_eq!(including(text, &[""]), of(text));
    assert_eq!(including(text, NONE), of(text));
}

#[test]
fn values_around_included_ones_do_not_count() {
    let include = |text| including(text, &["/a/b", "/x"]);
    for text in ["{}", "[]", "1", r#"{"a":{}}"#, r#"{"a":5}"#, r#"{"a":[1],"y":2}"#] {
        assert_eq!(include(text), b"__", "{text}");
    }
    assert_ne!(include(r#"{"a":{"b":null}}"#), include(r#"{"a":{}}"#));
    // Values do not move from one included pointer to another.
    assert_ne!(include(r#"{"a":{"b":1}}"#), include(r#"{"x":1}"#));
}

#[test]
fn exclude_applies_within_include() {
    let selection = |include: &[&str], exclude: &[&str]| Selection::new(include, exclude).unwrap();
    let text = r#"{"a":{"b":1,"c":2},"d":3}"#;
    let select = |include, exclude| form(text, &selection(include, exclude)).unwrap();
    assert_eq!(select(&["/a"], &["/a/b", "/d"]), of(r#"{"c":2}"#));
    assert_eq!(select(&["/a/b", "/d"], &["/a"]), [b"_".to_vec(), of("3")].concat());
    assert_eq!(select(&["/a/b"], &["/a/b"]), b"_");
    assert_eq!(select(&["/a"], &[""]), b"_");
}

#[test]
fn excluded_text_must_be_clean_too() {
    let selection = Selection::new(&["/a"], NONE).unwrap();
    let result = form(r#"{"a":1,"b":{"c":1,"c":2}}"#, &selection);
    assert_eq!(result, Err(Unclean::DuplicateMember));
}

#[test]
fn an_invalid_pointer_is_named() {
    for pointer in ["a", "a/b", "/~", "/a~2", "/~a/b", "#/a", " "] {
        let error = Selection::new(&["/fine"], &[pointer]).unwrap_err();
        assert_eq!(error.pointer, pointer);
        assert!(error.to_string().contains(&format!("`{pointer}`")), "{error}");
        Selection::new(&[pointer], NONE).unwrap_err();
    }
    Selection::new(NONE, &["/a".repeat(DEPTH_MAX + 1)]).unwrap_err();
    Selection::new(NONE, &["", "/", "//", "/a b", "/é", "/~01"]).unwrap();
}

#[test]
fn every_leaf_is_a_part() {
    let text = r#"{"b":[1,{"x/y":2}],"a":{"n":null},"e":[],"o":{}}"#;
    assert_eq!(names(text), ["/a/n", "/b/0", "/b/1/x~1y", "/e", "/o"]);
    assert_eq!(names("5"), [""]);
    assert_eq!(names("[]"), [""]);
}

#[test]
fn a_part_differs_where_the_texts_do() {
    let first = parts(r#"{"amount":100,"to":{"iban":"DE1","name":"A"}}"#);
    let other = parts(r#"{ "to":{"name":"A","iban":"DE2"}, "amount":1e2}"#);
    let changed: Vec<_> = iter::zip(&first, &other).filter(|(one, other)| one != other).collect();
    assert_eq!(first.len(), other.len());
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0].0.0, "/to/iban");
}

#[test]
fn hashes_of_parts_are_the_same_in_every_release() {
    let (mut out, mut parts) = (Vec::new(), Vec::new());
    canonicalize(br#"{"a":1}"#, &Selection::everything(), &mut out, Some(&mut parts)).unwrap();
    // XXH3 of `a`, with that of the empty pointer as its seed, and of `+1;`, by Python's xxhash.
    assert_eq!(parts, [Part { name: 0x795c_8372_8c2a_36e1, value: 0x7493_1f6b_f578_cb73 }]);
}

#[test]
fn long_arrays_and_deep_containers_are_one_part() {
    assert_eq!(names("[1,2,3,4,5,6,7,8]").len(), 8);
    assert_eq!(names("[1,2,3,4,5,6,7,8,9]"), [""]);
    assert_eq!(names(r#"{"a":[1,2,3,4,5,6,7,8,9]}"#), ["/a"]);
    assert_eq!(names(r#"{"a":{"b":{"c":{"d":{"e":{"f":1}}}}}}"#), ["/a/b/c/d"]);
}

#[test]
fn members_beyond_the_limit_are_one_part_of_their_object() {
    let object = |members: usize| {
        let members: Vec<_> = (0..members).map(|n| format!("\"m{n:03}\":{n}")).collect();
        format!("{{{}}}", members.join(","))
    };
    assert_eq!(names(&object(32)).len(), 32);
    let many = names(&object(33));
    assert_eq!((many.len(), many[30].as_str(), many[31].as_str()), (32, "/m030", ""));
    assert_eq!(names(&object(10_000)), many);
    assert_ne!(parts(&object(10_000))[31], parts(&object(10_001))[31]);
    assert_eq!(parts(&object(10_000))[..31], parts(&object(10_001))[..31]);
    // Neighbours of a large object are still parts of their own.
    let text = format!(r#"{{"a":{},"b":{{"c":1}},"d":2}}"#, object(100));
    let nested = names(&text);
    assert_eq!(nested.len(), 32);
    assert_eq!(nested[28..], ["/a/m028", "/a", "/b/c", "/d"]);
}

#[test]
fn parts_follow_the_selection() {
    let text = r#"{"a":{"b":1,"c":2},"d":[3,4],"e":5}"#;
    let names = |include: &[&str], exclude: &[&str]| -> Vec<String> {
        let selection = Selection::new(include, exclude).unwrap();
        selected_parts(text, &selection).into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(&[], &["/a/b", "/d/0"]), ["/a/c", "/d/1", "/e"]);
    assert_eq!(names(&["/e", "/a", "/x"], &[]), ["/a/b", "/a/c", "/e"]);
    assert_eq!(names(&["/a"], &["/a/b"]), ["/a/c"]);
    assert_eq!(names(&["/a"], &["/a/b", "/a/c"]), ["/a"]);
    assert_eq!(names(&[], &[""]), [""; 0]);
    let many: Vec<_> = (0..40).map(|n| format!("/m{n:02}")).collect();
    let members: Vec<_> = (0..40).map(|n| format!("\"m{n:02}\":{{}}")).collect();
    let text = format!("{{{}}}", members.join(","));
    let parts = selected_parts(&text, &Selection::new(&many, NONE).unwrap());
    assert_eq!((parts.len(), parts[30].0.as_str(), parts[31].0.as_str()), (32, "/m30", ""));
}

#[test]
fn errors_and_parts_never_show_a_value() {
    let text = r#"{"pin":"4711","pin":"4711"}"#;
    assert!(!format!("{:?} {}", unclean(text), unclean(text)).contains("4711"));
    assert!(!names(r#"{"pin":"4711"}"#).concat().contains("4711"));
}
