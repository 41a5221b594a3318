//! The README's code is the example's, which is compiled, linted and run.

#[test]
fn the_readme_shows_the_example_as_it_is() {
    let readme = include_str!("../../../README.md");
    let example = include_str!("../examples/pay_once.rs");
    let shown = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(shown, Some(example));
    assert!(example.lines().count() < 40);
}
