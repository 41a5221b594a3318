//! An expected line of a command that is not curl.

/// A line `# → …` of a README. In it `…` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintedLine(String);

const ANY: char = '…';

impl PrintedLine {
    /// Parses the text after the arrow. Any line would match `…` alone, so that is an error.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim_matches(ANY).is_empty() {
            return Err(format!("cannot parse the expectation {text:?}: it matches every line"));
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns true if an output has exactly these lines, in this order.
    pub(crate) fn all_match(lines: &[Self], output: &str) -> bool {
        output.lines().count() == lines.len()
            && lines.iter().zip(output.lines()).all(|(expected, line)| expected.matches(line))
    }

    fn matches(&self, line: &str) -> bool {
        let line = line.trim_end();
        let Some((first, rest)) = self.0.split_once(ANY) else { return line == self.0 };
        let (middle, last) = rest.rsplit_once(ANY).unwrap_or(("", rest));
        let inside = line.strip_prefix(first).and_then(|line| line.strip_suffix(last));
        inside.is_some_and(|inside| {
            let mut parts = middle.split(ANY);
            parts.try_fold(inside, |line, part| Some(line.split_once(part)?.1)).is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(expected: &str, line: &str) -> bool {
        PrintedLine::parse(expected).unwrap().matches(line)
    }

    #[test]
    fn an_ellipsis_stands_for_any_text() {
        for (expected, line, matched) in [
            ("25 h", "25 h", true),
            ("25 h", "25 h  ", true),
            ("25 h", "125 h", false),
            ("25 h", "25 h more", false),
            ("order:{…}:…", "order:{0fa}:12ab", true),
            ("order:{…}:…", "order:{0fa}12ab", false),
            ("order:{…}:…", "my order:{0fa}:12ab", false),
            ("…:mark", "a:mark", true),
            ("…:mark", "a:mark:b", false),
            ("a…b…c…d", "a-b-c-d", true),
            ("a…b…c…d", "a-c-b-d", false),
            ("ab…ba", "aba", false),
        ] {
            assert_eq!(matches(expected, line), matched, "{expected} {line}");
        }
    }

    #[test]
    fn a_line_that_matches_everything_is_an_error() {
        for text in ["", "…", "……"] {
            assert!(PrintedLine::parse(text).is_err(), "{text:?}");
        }
    }
}
