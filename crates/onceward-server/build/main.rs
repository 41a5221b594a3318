//! Build script: the commit that `onceward --version` shows.

use std::env;
use std::path::Path;

mod commit;

use commit::Commit;

/// Names the commit if the source tree cannot, as in a container build without `.git`.
const GIVEN: &str = "ONCEWARD_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-env-changed={GIVEN}");
    println!("cargo::rustc-env=ONCEWARD_BUILD={}", build());
}

/// The build as `--version` shows it. A debug build names no commit: cargo would have to compile
/// the whole package again after every commit.
fn build() -> String {
    if let Ok(given) = env::var(GIVEN)
        && !given.is_empty()
    {
        return format!("commit {given}");
    }
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        return "commit unknown, debug build".into();
    }
    let Commit { hash, watched } = Commit::of(Path::new(env!("CARGO_MANIFEST_DIR")));
    for path in watched {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    format!("commit {}", hash.as_deref().unwrap_or("unknown"))
}
