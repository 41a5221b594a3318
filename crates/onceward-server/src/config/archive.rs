//! `store.archive`: where expired records are kept before they are removed.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Treatment of expired records before they are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveSetting {
    /// `"off"`: nothing, although they may have been archived before.
    Off,
    /// `"file:DIRECTORY"`: they are written to files in a directory.
    Directory {
        /// The directory.
        path: PathBuf,
        /// Whether the stored responses are kept, too (`?outcomes=false`).
        outcomes: bool,
    },
}

const EXPECTED: &str = "expected \"file:DIRECTORY\", \"file:DIRECTORY?outcomes=false\" or \"off\"";

impl FromStr for ArchiveSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let rest = text.strip_prefix("file:").ok_or_else(|| format!("{text:?}: {EXPECTED}"))?;
        let (path, options) = rest.split_once('?').map_or((rest, None), |(a, b)| (a, Some(b)));
        let outcomes = match options {
            None | Some("outcomes=true") => true,
            Some("outcomes=false") => false,
            Some(option) => return Err(format!("unknown option {option:?}: {EXPECTED}")),
        };
        // As in a store's URL: file:///var/lib/archive is an absolute path.
        let path = match path.strip_prefix("//") {
            Some(absolute) if absolute.starts_with('/') => absolute,
            Some(host) => return Err(format!("{host:?} would be a host: write file:///DIRECTORY")),
            None => path,
        };
        let path = percent_decode_str(path).decode_utf8().map_err(|_| EXPECTED.to_owned())?;
        if path.is_empty() {
            return Err(format!("it has no directory: {EXPECTED}"));
        }
        Ok(Self::Directory { path: PathBuf::from(&*path), outcomes })
    }
}

impl<'de> Deserialize<'de> for ArchiveSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl fmt::Display for ArchiveSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Directory { path, outcomes: true } => write!(f, "file:{}", path.display()),
            Self::Directory { path, .. } => write!(f, "file:{}?outcomes=false", path.display()),
        }
    }
}

/// Returns whether a path is a directory, or lies within it. Follows links as far as the paths
/// exist.
pub(super) fn is_within(path: &Path, directory: &Path) -> bool {
    place(path).starts_with(place(directory))
}

/// The path from the root, without links and detours.
fn place(path: &Path) -> PathBuf {
    let path = std::env::current_dir().unwrap_or_default().join(path);
    let mut place = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(place.pop()),
            other => place.push(other),
        }
        // A part that does not exist is no link.
        place = place.canonicalize().unwrap_or(place);
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &str, outcomes: bool) -> ArchiveSetting {
        ArchiveSetting::Directory { path: path.into(), outcomes }
    }

    #[test]
    fn an_archive_is_a_directory_with_or_without_responses() {
        for (text, expected) in [
            ("off", ArchiveSetting::Off),
            ("file:./archive", directory("./archive", true)),
            ("file:///var/lib/a%3Fb?outcomes=false", directory("/var/lib/a?b", false)),
            ("file:/archive?outcomes=true", directory("/archive", true)),
        ] {
            assert_eq!(text.parse::<ArchiveSetting>().unwrap(), expected, "{text}");
        }
        for (text, why) in [
            ("s3://bucket", "\"file:DIRECTORY\""),
            ("./archive", "\"file:DIRECTORY\""),
            ("file:", "no directory"),
            ("file://host/archive", "file:///DIRECTORY"),
            ("file:./archive?bodies=false", "unknown option \"bodies=false\""),
        ] {
            let error = text.parse::<ArchiveSetting>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_path_within_a_directory_is_found_whatever_its_spelling() {
        let root = tempfile::tempdir().unwrap();
        let store = root.path().join("store");
        std::fs::create_dir(&store).unwrap();
        std::os::unix::fs::symlink(&store, root.path().join("link")).unwrap();
        for within in ["store", "store/archive", "./x/../store/archive", "link/archive", "link"] {
            assert!(is_within(&root.path().join(within), &store), "{within}");
        }
        for outside in ["archive", "store-archive", "store/../archive"] {
            assert!(!is_within(&root.path().join(outside), &store), "{outside}");
        }
    }
}
