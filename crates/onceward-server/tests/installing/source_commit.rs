//! The commit that the build script finds, for every way to get the source.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../build/commit.rs"]
mod commit;

use commit::Commit;

const HASH: &str = "0123456789abcdef0123456789abcdef01234567";

/// A source tree with this package in it.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(tree.package()).unwrap();
        fs::create_dir_all(tree.0.path().join("packaging")).unwrap();
        tree.write("packaging/commit", include_str!("../../../../packaging/commit"));
        tree
    }

    fn package(&self) -> PathBuf {
        self.0.path().join("crates/onceward-server")
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.path().join(file), text).unwrap();
    }

    fn commit(&self) -> String {
        git(self.0.path(), &["add", "."]);
        git(self.0.path(), &["commit", "--quiet", "--allow-empty", "--message", "a commit"]);
        git(self.0.path(), &["rev-parse", "HEAD"])
    }
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
    git.args(["-c", "user.name=Onceward", "-c", "user.email=onceward@localhost"]);
    let output = git.arg("-C").arg(directory).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn contents(files: &[PathBuf]) -> Vec<Vec<u8>> {
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

#[test]
fn a_checkout_names_its_commit_and_watches_files_that_change_with_it() {
    let tree = Tree::new();
    git(tree.0.path(), &["init", "--quiet"]);
    for step in ["first", "second"] {
        let hash = tree.commit();
        let Commit { hash: found, watched } = Commit::of(&tree.package());
        assert_eq!(found, Some(hash), "{step}");
        let before = contents(&watched);
        tree.commit();
        assert_ne!(contents(&watched), before, "{step}");
        // A branch that exists only in `packed-refs` has no file.
        git(tree.0.path(), &["pack-refs", "--all"]);
    }
}

#[test]
fn a_worktree_names_its_own_commit() {
    let tree = Tree::new();
    git(tree.0.path(), &["init", "--quiet"]);
    let first = tree.commit();
    let worktree = tempfile::tempdir().unwrap();
    let path = worktree.path().join("tree");
    git(tree.0.path(), &["worktree", "add", "--quiet", "--detach", path.to_str().unwrap()]);
    tree.commit();
    fs::create_dir_all(path.join("crates/onceward-server")).unwrap();
    let found = Commit::of(&path.join("crates/onceward-server"));
    assert_eq!(found.hash, Some(first));
    assert!(!found.watched.is_empty());
}

#[test]
fn an_archive_carries_its_commit() {
    let tree = Tree::new();
    git(tree.0.path(), &["init", "--quiet"]);
    tree.write(".gitattributes", include_str!("../../../../.gitattributes"));
    let hash = tree.commit();
    let archive = tempfile::tempdir().unwrap();
    let tar = archive.path().join("source.tar");
    git(tree.0.path(), &["archive", "--output", tar.to_str().unwrap(), "HEAD"]);
    let mut unpack = Command::new("tar");
    unpack.arg("-xf").arg(&tar).arg("-C").arg(archive.path());
    assert!(unpack.status().unwrap().success());
    let package = archive.path().join("crates/onceward-server");
    fs::create_dir_all(&package).unwrap();
    assert_eq!(Commit::of(&package).hash, Some(hash));
}

#[test]
fn a_published_package_names_the_commit_that_cargo_wrote_down() {
    let tree = Tree::new();
    let info = format!("{{\n  \"git\": {{\n    \"sha1\": \"{HASH}\"\n  }}\n}}");
    tree.write("crates/onceward-server/.cargo_vcs_info.json", &info);
    assert_eq!(Commit::of(&tree.package()).hash.as_deref(), Some(HASH));
}

#[test]
fn a_tree_without_git_has_no_commit_and_watches_nothing() {
    assert_eq!(Commit::of(&Tree::new().package()), Commit::default());
}

#[test]
fn a_tree_inside_another_repository_does_not_show_that_ones_commit() {
    let other = tempfile::tempdir().unwrap();
    git(other.path(), &["init", "--quiet"]);
    git(other.path(), &["commit", "--quiet", "--allow-empty", "--message", "another project"]);
    let package = other.path().join("vendor/onceward/crates/onceward-server");
    fs::create_dir_all(&package).unwrap();
    assert_eq!(Commit::of(&package), Commit::default());
}
