//! Configurations whose requests would come back to the gateway.

use std::fs;

use crate::process::{free_port, run};

#[test]
fn a_gateway_that_is_its_own_upstream_is_refused_at_start_and_by_check() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("onceward.toml");
    let (path, port) = (file.to_str().unwrap(), free_port());
    let admin = "[admin]\naddress = \"127.0.0.1:";
    for (listen, upstream, more, settings) in [
        ("127.0.0.1", "127.0.0.1", "", ["upstream.url", "listeners[0].address"]),
        ("127.0.0.1", "localhost", "", ["upstream.url", "listeners[0].address"]),
        ("0.0.0.0", "127.0.0.1", "", ["upstream.url", "listeners[0].address"]),
        ("0.0.0.0", "127.3.2.1", "", ["upstream.url", "listeners[0].address"]),
        ("[::]", "127.0.0.1", "", ["upstream.url", "listeners[0].address"]),
        ("127.0.0.1", "0.0.0.0", "", ["upstream.url", "listeners[0].address"]),
        ("127.0.0.9", "127.0.0.1", admin, ["upstream.url", "admin.address"]),
    ] {
        let more = if more.is_empty() { String::new() } else { format!("{more}{port}\"\n") };
        let text = format!(
            "[[listeners]]\naddress = \"{listen}:{port}\"\n[upstream]\nurl = \
             \"http://{upstream}:{port}/base\"\n[store]\nurl = \"memory:\"\n{more}"
        );
        fs::write(&file, &text).unwrap();
        for command in [&["config", "check", path][..], &["gateway", "--config", path]] {
            let (succeeded, output) = run(command);
            assert!(!succeeded, "{text}: {output}");
            assert!(settings.iter().all(|setting| output.contains(setting)), "{text}: {output}");
        }
    }
}

#[test]
fn an_upstream_on_another_port_or_another_address_is_no_loop() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("onceward.toml");
    for (listen, upstream) in [
        ("127.0.0.1:8080", "http://127.0.0.1:3000"),
        ("127.0.0.1:8080", "http://127.0.0.2:8080"),
        ("127.0.0.1:80", "https://127.0.0.1"),
        ("0.0.0.0:8080", "http://192.0.2.1:8080"),
        ("127.0.0.1:0", "http://127.0.0.1:8080"),
        ("127.0.0.1:8080", "http://no-such-host.invalid:8080"),
    ] {
        let text =
            format!("[[listeners]]\naddress = \"{listen}\"\n[upstream]\nurl = \"{upstream}\"\n");
        fs::write(&file, &text).unwrap();
        let (succeeded, output) = run(&["config", "check", file.to_str().unwrap()]);
        assert!(succeeded, "{text}: {output}");
    }
}
