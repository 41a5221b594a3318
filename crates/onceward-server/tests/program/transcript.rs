//! Executes the `console` blocks of a page, and compares the output with the page.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// The commands of a page, with the output that it shows.
///
/// A command is a line that begins with `$ `, with its continuations after a backslash. In the output,
/// `…` stands for any text within a line. A UUID of the page stands for one that the program has
/// drawn: the first output that shows it says which.
pub(crate) struct Transcript {
    steps: Vec<Step>,
}

struct Step {
    command: String,
    output: Vec<String>,
}

const UUID_CHARS: usize = 36;

impl Transcript {
    /// Parses the blocks below a heading, up to the next one of the same level.
    pub(crate) fn below(heading: &str, page: &str) -> Self {
        let section = page.split(&format!("\n{heading}\n")).nth(1).expect("the heading");
        let level = heading.split(' ').next().unwrap();
        let section = section.split(&format!("\n{level} ")).next().unwrap();
        let mut steps: Vec<Step> = Vec::new();
        for block in section.split("```console\n").skip(1) {
            let (block, _) = block.split_once("```").expect("the end of a block");
            let mut continued = false;
            for line in block.lines().filter(|line| !line.is_empty()) {
                match (line.strip_prefix("$ "), steps.last_mut()) {
                    (Some(command), _) => {
                        steps.push(Step { command: command.to_owned(), output: Vec::new() });
                    }
                    (None, Some(step)) if continued => {
                        step.command.push('\n');
                        step.command.push_str(line);
                    }
                    (None, Some(step)) => step.output.push(line.to_owned()),
                    (None, None) => panic!("output before the first command: {line}"),
                }
                continued = line.ends_with('\\');
            }
        }
        assert!(steps.len() > 1, "the section {heading:?} has no commands");
        Self { steps }
    }

    /// Runs the commands in a directory, with these environment variables and with the names of the
    /// page replaced. Returns what was printed, for a reader.
    pub(crate) fn run(
        &self,
        directory: &Path,
        names: &[(&str, &str)],
        variables: &[(&str, &str)],
    ) -> String {
        let mut ids = HashMap::new();
        let mut printed = String::new();
        for Step { command, output } in &self.steps {
            let names = names.iter().map(|(shown, real)| ((*shown).to_owned(), (*real).to_owned()));
            let names: Vec<_> = names.chain(ids.clone()).collect();
            let command =
                names.iter().fold(command.clone(), |text, (shown, real)| text.replace(shown, real));
            let lines = bash(&command, directory, variables);
            printed += &format!("$ {command}\n{}\n\n", lines.join("\n"));
            let expected = output.iter().map(|line| {
                names.iter().fold(line.clone(), |text, (shown, real)| text.replace(shown, real))
            });
            let expected: Vec<_> = expected.collect();
            let same = expected.len() == lines.len()
                && expected.iter().zip(&lines).all(|(line, real)| matches(line, real, &mut ids));
            assert!(same, "expected\n{}\nbut\n{printed}", expected.join("\n"));
        }
        printed
    }
}

/// Runs a command, and returns the lines that are not empty. It must succeed.
fn bash(command: &str, directory: &Path, variables: &[(&str, &str)]) -> Vec<String> {
    let programs = Path::new(env!("CARGO_BIN_EXE_onceward")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", command])
        .current_dir(directory)
        .env("PATH", path)
        .env("NO_PROXY", "*")
        .env("CURL_HOME", directory)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let (out, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n$ {command}\n{out}{errors}", output.status);
    out.lines()
        .chain(errors.lines())
        .map(|line| line.trim_end().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

/// True if a line is the expected one. Binds the UUIDs that it shows for the first time.
fn matches(expected: &str, line: &str, ids: &mut HashMap<String, String>) -> bool {
    let mut rest = line;
    for (index, piece) in expected.split('…').enumerate() {
        let found = match index {
            0 => Some(0),
            _ => (0..=rest.len()).find(|at| {
                rest.is_char_boundary(*at) && after(piece, &rest[*at..], &mut ids.clone()).is_some()
            }),
        };
        match found.and_then(|at| after(piece, &rest[at..], ids)) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty() || expected.ends_with('…')
}

/// Returns the text behind a piece at the beginning of a line.
fn after<'l>(piece: &str, mut line: &'l str, ids: &mut HashMap<String, String>) -> Option<&'l str> {
    let mut piece = piece;
    while let Some(character) = piece.chars().next() {
        if let (Some(shown), Some(real)) = (uuid_at(piece), uuid_at(line)) {
            if ids.get(shown).is_some_and(|bound| bound != real) {
                return None;
            }
            // A name of the page that was replaced already is its own.
            if shown != real {
                ids.insert(shown.to_owned(), real.to_owned());
            }
            (piece, line) = (&piece[UUID_CHARS..], &line[UUID_CHARS..]);
            continue;
        }
        line = line.strip_prefix(character)?;
        piece = &piece[character.len_utf8()..];
    }
    Some(line)
}

/// The UUID at the beginning of a text.
fn uuid_at(text: &str) -> Option<&str> {
    let uuid = text.get(..UUID_CHARS)?;
    let hyphens = [8, 13, 18, 23];
    let fits = uuid.bytes().enumerate().all(|(at, byte)| match hyphens.contains(&at) {
        true => byte == b'-',
        false => byte.is_ascii_hexdigit(),
    });
    fits.then_some(uuid)
}

#[test]
fn a_line_that_differs_is_found() {
    const SHOWN: &str = "01a1e44f-1457-7fc3-b442-fe9da14e8bae";
    const REAL: &str = "01b1e44f-1457-7fc3-b442-fe9da14e8bae";
    const OTHER: &str = "01c1e44f-1457-7fc3-b442-fe9da14e8bae";
    let mut ids = HashMap::new();
    let mut says = |expected: &str, line: &str| matches(expected, line, &mut ids);
    assert!(says("a … c", "a b c") && says("a …", "a b c") && says("a", "a"));
    assert!(!says("a … d", "a b c") && !says("a", "ab") && !says("ab", "a"));
    assert!(says(&format!("id {SHOWN} x"), &format!("id {REAL} x")));
    assert!(says(&format!("… {SHOWN}"), &format!("the {REAL}")));
    assert!(!says(&format!("id {SHOWN} x"), &format!("id {OTHER} x")), "it is another one");
}
