//! An address belongs to one process: a second gateway with its own store would run known keys again.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use crate::counting_service::{CountingService, post};
use crate::process::{Program, free_port, run};

/// Arguments of a gateway with its own store.
fn arguments(service: &CountingService, data: &Path, listen: &str) -> Vec<String> {
    let (upstream, store) =
        (format!("http://{}", service.address), format!("file:{}", data.display()));
    ["gateway", "--single-tenant", "--upstream", &upstream, "--store", &store, "--listen", listen]
        .map(str::to_owned)
        .to_vec()
}

/// Starts a gateway that must fail, and returns its error.
fn refused(arguments: &[String]) -> String {
    let mut gateway = spawn(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let serves = is_serving(&mut gateway);
    gateway.kill().ok();
    let output = gateway.wait_with_output().unwrap();
    assert!(!serves, "it serves beside the first one");
    String::from_utf8(output.stderr).unwrap()
}

fn spawn(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_onceward"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_second_gateway_on_the_same_address_is_refused_and_no_key_runs_twice() {
    let service = CountingService::open();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gateway = Program::gateway(service.address, first.path(), "127.0.0.1:0", &[]);
    let address = gateway.address();
    for listen in [address.to_string(), format!("0.0.0.0:{}", address.port())] {
        let output = refused(&arguments(&service, second.path(), &listen));
        assert!(output.contains(&listen) && output.contains("listeners[0].address"), "{output}");
        assert!(output.contains("in use") && output.contains("--listen"), "{output}");
    }
    for number in 0..40 {
        let key = format!("k{}", number / 2);
        assert_eq!(post(address, "0", &key).unwrap().status, 201);
    }
    for number in 0..20 {
        assert_eq!(service.effects(&format!("k{number}")), 1);
    }
}

#[test]
fn an_address_on_all_interfaces_keeps_out_a_gateway_on_one_of_them() {
    let service = CountingService::open();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gateway = Program::gateway(service.address, first.path(), "0.0.0.0:0", &[]);
    let listen = format!("127.0.0.1:{}", gateway.address().port());
    let output = refused(&arguments(&service, second.path(), &listen));
    assert!(output.contains(&listen), "{output}");
}

#[test]
fn the_admin_and_the_claims_address_belong_to_one_process_and_are_named() {
    let service = CountingService::open();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("onceward.toml");
    let token = "[[tokens]]\nname = \"w\"\nrole = \"worker\"\nsecret_env = \"PATH\"\n";
    for (section, setting) in [("admin", "admin.address"), ("claims", "claims.address")] {
        let text = format!("[{section}]\naddress = \"{address}\"\n{token}");
        std::fs::write(&file, text).unwrap();
        let mut arguments = arguments(&service, &data.path().join("records"), "127.0.0.1:0");
        arguments.extend(["--config".into(), file.to_str().unwrap().to_owned()]);
        let output = refused(&arguments);
        assert!(output.contains(setting) && output.contains(&address), "{output}");
    }
    let claims = ["claims", "--config", file.to_str().unwrap(), "--store", "memory:"];
    let (succeeded, output) = run(&claims);
    assert!(
        !succeeded && output.contains("claims.address") && output.contains("in use"),
        "{output}"
    );
}

#[test]
fn of_gateways_that_start_at_once_on_one_address_at_most_one_serves() {
    let service = CountingService::open();
    for _round in 0..5 {
        let data = tempfile::tempdir().unwrap();
        let listen = format!("127.0.0.1:{}", free_port());
        let mut gateways: Vec<Child> = (0..4)
            .map(|number| {
                let store = data.path().join(number.to_string());
                let arguments = arguments(&service, &store, &listen);
                spawn(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
            })
            .collect();
        let serving = thread::scope(|scope| {
            let asked = gateways.iter_mut().map(|gateway| scope.spawn(|| is_serving(gateway)));
            let asked: Vec<_> = asked.collect();
            asked.into_iter().filter_map(|it| it.join().ok()).filter(|serves| *serves).count()
        });
        for gateway in &mut gateways {
            gateway.kill().ok();
        }
        let output: Vec<Output> =
            gateways.into_iter().map(|gateway| gateway.wait_with_output().unwrap()).collect();
        assert!(serving <= 1, "{serving} serve: {output:?}");
    }
}

/// Returns whether a gateway prints that it serves, before it ends.
fn is_serving(gateway: &mut Child) -> bool {
    let stdout = gateway.stdout.take().unwrap();
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).is_ok_and(|read| read > 0)
}
