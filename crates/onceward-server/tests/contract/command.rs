//! What the command writes, refuses and keeps to itself.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::{RICH, contract, contract_of, run};

fn error(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The file has a canary in each setting that is internal.
#[test]
fn nothing_internal_is_in_a_contract() {
    let internal = fs::read_to_string(RICH).unwrap().to_lowercase().matches("canary").count();
    assert!(internal > 25, "{internal}");
    for format in ["md", "json"] {
        let text = contract(&[RICH, "--format", format]).to_lowercase();
        for internal in ["canary", "10.77.", "127.0.0.1", "0.0.0.0", "123456789", "123,456,789"] {
            assert!(!text.contains(internal), "{format}: {internal}");
        }
    }
    let fixed =
        "[scope]\ntenant = { fixed = \"canary-shop\" }\ncaller = { fixed = \"canary-web\" }";
    assert!(!contract_of(fixed).contains("canary"));
}

#[test]
fn a_contract_in_shadow_mode_promises_nothing() {
    let all = contract_of("[defaults]\nmode = \"shadow\"\n[[operations]]\nroute = \"/a\"");
    assert!(all.contains("promises nothing about retries"), "{all}");
    assert!(!all.contains("executes it once"), "{all}");
    let one = contract_of("[[operations]]\nroute = \"/a\"\nmode = \"shadow\"");
    assert!(one.contains("| `POST /a` | on trial | nothing is promised |"), "{one}");
    let none = contract_of("protect_others = false");
    assert!(none.contains("promises nothing about retries"), "{none}");
}

#[test]
fn texts_of_the_configuration_stay_in_their_place() {
    let route = "[[operations]]\nroute = \"/a|b`c`\"\nname = \"x\\n# y\"";
    let text = contract_of(route);
    assert!(text.contains("| `` POST /a\\|b`c` `` | required"), "{text}");
    assert!(!text.contains("\n# y"), "{text}");
    let title = contract(&["--title", "a\n# b"]);
    assert!(title.starts_with("# a # b\n"), "{title}");
}

#[test]
fn a_file_is_written_for_everyone_to_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("retries.md");
    let out = path.to_str().unwrap();
    assert_eq!(contract(&["--out", out]), "");
    assert_eq!(fs::read_to_string(&path).unwrap(), contract(&[]));
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o644);
    // The rights of an existing file are its owner's choice.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    contract(&["--out", out]);
    assert_eq!(mode(), 0o640);
}

#[test]
fn mistakes_are_told_with_the_option_or_the_setting() {
    assert!(error(&["missing.toml"]).starts_with("error: missing.toml: "));
    let url = error(&["--base-url", "api.example.com"]);
    assert!(url.contains("--base-url") && url.contains("http:// or https://"), "{url}");
    let out = error(&["--out", "/dev/null/retries.md"]);
    assert!(out.starts_with("error: --out /dev/null/retries.md: "), "{out}");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "[defaults]\nttl = \"10s\"").unwrap();
    let rule = error(&[file.path().to_str().unwrap()]);
    assert!(rule.starts_with("error: defaults.ttl: 10s is shorter than the lease"), "{rule}");
}

/// The files and variables that the configuration names need not exist where it is published.
#[test]
fn no_secret_is_needed_to_write_a_contract() {
    assert!(std::env::var_os("CANARY_IDENTITY").is_none());
    assert!(contract(&[RICH]).contains("POST /payments"));
}
