//! Target: the key's header.

use onceward_http::testing::read_key;

pub(crate) const SEEDS: &[&[u8]] = &[
    b"8e03978e-40d5-43e8-bc93-6894a57f9324",
    b"\"8e03978e-40d5-43e8-bc93-6894a57f9324\"",
    b"\"a\\\"b\\\\c\"",
    b"\"k\";a=1;b=\"x\"",
    b"\"   \"",
    b"k,k",
];

pub(crate) const WORDS: &[&[u8]] = &[
    b"\"",
    b"\\",
    b"\\\"",
    b";",
    b"=",
    b",",
    b" ",
    b"\t",
    b"\0",
    b"\x7f",
    b"\xc3\xa9",
    b"?1",
    b":",
];

/// A parsed key is valid, and its quoted form is the same key.
pub fn key_header(value: &[u8]) {
    let Ok(key) = read_key(value) else { return };
    let text = key.expose();
    assert!((1..=255).contains(&text.len()));
    assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    assert!(text.trim() != "", "a key is not all blanks");
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    let quoted = format!("\"{escaped}\"");
    assert_eq!(read_key(quoted.as_bytes()).as_ref(), Ok(&key));
}
