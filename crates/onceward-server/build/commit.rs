//! The commit of a source tree: a git checkout, an archive, or a published package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file that `git archive` fills in, relative to the package (`.gitattributes`).
const ARCHIVED: &str = "../../packaging/commit";

/// The file that `cargo package` adds to a published package.
const PUBLISHED: &str = ".cargo_vcs_info.json";

/// Commit of a package's source tree.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Commit {
    /// `None` if the tree does not tell.
    pub(crate) hash: Option<String>,
    /// Files that change with the commit. Each exists: cargo repeats a build script every time if
    /// it watches a missing file.
    pub(crate) watched: Vec<PathBuf>,
}

impl Commit {
    /// Finds the commit of the package in a directory.
    pub(crate) fn of(package: &Path) -> Self {
        let written = [PUBLISHED, ARCHIVED].map(|file| package.join(file));
        let known = written.into_iter().find_map(|file| Some((written_in(&file)?, file)));
        match known {
            Some((hash, file)) => Self { hash: Some(hash), watched: vec![file] },
            None => Self::of_checkout(package).unwrap_or_default(),
        }
    }

    /// Asks git, if the tree is the root of a checkout. A tree unpacked inside another repository
    /// must not show that repository's commit.
    fn of_checkout(package: &Path) -> Option<Self> {
        let root = package.join("../..").canonicalize().ok()?;
        let top = git(&root, &["rev-parse", "--show-toplevel"])?;
        if Path::new(&top).canonicalize().ok()? != root {
            return None;
        }
        let hash = git(&root, &["rev-parse", "HEAD"]).filter(|hash| is_hash(hash))?;
        let branch = git(&root, &["symbolic-ref", "--quiet", "HEAD"]);
        let names = ["HEAD", "logs/HEAD", "packed-refs"].map(str::to_owned);
        let watched = names.into_iter().chain(branch).filter_map(|name| {
            let path = root.join(git(&root, &["rev-parse", "--git-path", &name])?);
            path.exists().then_some(path)
        });
        Some(Self { hash: Some(hash), watched: watched.collect() })
    }
}

/// The first word of a file that looks like a commit.
fn written_in(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let mut words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.find(|word| is_hash(word)).map(str::to_owned)
}

fn is_hash(word: &str) -> bool {
    word.len() >= 40 && word.bytes().all(|letter| letter.is_ascii_hexdigit())
}

/// One line of git's output. The removed variables, which git hooks set, would lead to another
/// repository.
fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
    let output = git.arg("-C").arg(directory).args(arguments).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
