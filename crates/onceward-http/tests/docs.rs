//! `docs/errors.md` explains every error code.

use onceward_http::Code;

#[test]
fn every_code_is_explained_under_the_anchor_that_its_type_names() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");
    let docs = std::fs::read_to_string(path).unwrap();
    // The first chapter has the layer's own codes.
    let docs = docs.split("\n# ").next().unwrap();
    let explained: Vec<&str> = docs.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(explained, codes);
    for code in Code::ALL {
        let section = docs.split(&format!("## {}\n\n", code.as_str())).nth(1).unwrap();
        let status = code.status().as_u16().to_string();
        assert!(section.starts_with(&status), "{code:?} begins with its status");
    }
}
