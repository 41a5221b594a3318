//! The path of a request, for operators.

use std::fmt;
use std::sync::Arc;

/// Longest stored path, in bytes. Longer ones are cut: they are shown to people and never compared.
const BYTES_MAX: usize = 512;

/// The path that a request was sent to, without its query. It tells an operator which resource an
/// operation is about, and has no part in any decision.
///
/// One pointer wide: requests carry it through their futures. A path longer than 512 bytes ends in `…`, and control characters become `?`.
///
/// ```
/// use onceward_core::RequestPath;
///
/// assert_eq!(RequestPath::new("/orders/42/pay").to_string(), "/orders/42/pay");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestPath(Arc<Box<str>>);

impl RequestPath {
    /// A path.
    pub fn new(path: &str) -> Self {
        let fits = path.len() <= BYTES_MAX && !path.contains(char::is_control);
        let path = if fits { path.into() } else { cut(path).into() };
        Self(Arc::new(path))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.len() + size_of::<Box<str>>() + 2 * size_of::<usize>()
    }
}

/// Cuts a path, and replaces its control characters.
fn cut(path: &str) -> String {
    const MARK: char = '…';
    let plain = |it: char| if it.is_control() { '?' } else { it };
    if path.len() <= BYTES_MAX {
        return path.chars().map(plain).collect();
    }
    let end = path.floor_char_boundary(BYTES_MAX - MARK.len_utf8());
    path[..end].chars().map(plain).chain([MARK]).collect()
}

impl fmt::Display for RequestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RequestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestPath({:?})", &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_is_cut_and_a_stored_one_reads_back_as_it_is() {
        let long = RequestPath::new(&format!("/{}", "é".repeat(600)));
        assert!(long.as_str().len() <= BYTES_MAX && long.as_str().ends_with('…'), "{long}");
        for path in [long.as_str(), "/orders/42", "", "/a?b"] {
            assert_eq!(RequestPath::new(path).as_str(), path);
        }
        assert_eq!(RequestPath::new("/a\u{0}b\n").as_str(), "/a?b?");
    }
}
