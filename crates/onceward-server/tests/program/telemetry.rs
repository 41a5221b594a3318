//! Metrics and traces, without secrets.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use crate::process::Program;
use crate::recording_server::RecordingServer;

const CANARIES: [&str; 4] =
    ["canary-key-7f3a", "canary-token-9b21", "canary-body-55d0", "canary-cookie-1e8c"];
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn post(to: SocketAddr) -> String {
    let [key, token, body, cookie] = CANARIES;
    let body = format!("{{\"card\":\"{body}\"}}");
    let mut stream = TcpStream::connect(to).unwrap();
    let request = format!(
        "POST /pay HTTP/1.1\r\nhost: test\r\nconnection: close\r\nidempotency-key: {key}\r\n\
         authorization: Bearer {token}\r\ncookie: session={cookie}\r\n\
         traceparent: 00-{TRACE}-{CALLER}-01\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute(span: &Span, name: &str) -> String {
    let found = span.attributes.iter().find(|it| it.key == name);
    match found.and_then(|it| it.value.clone()).and_then(|it| it.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::BoolValue(flag)) => flag.to_string(),
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn traces_go_on_from_the_caller_to_the_service_and_no_secret_is_told() {
    let (service, collector, data) =
        (RecordingServer::open(), RecordingServer::open(), tempfile::tempdir().unwrap());
    let (config, logs) = (data.path().join("onceward.toml"), data.path().join("logs"));
    let text = format!(
        "[telemetry]\ntraces = \"http://{}\"\nlog = \"trace\"\nformat = \"json\"\n",
        collector.address
    );
    std::fs::write(&config, text).unwrap();
    let (upstream, store) = (
        format!("http://{}", service.address),
        format!("file:{}", data.path().join("records").display()),
    );
    let arguments = [
        "gateway",
        "--config",
        config.to_str().unwrap(),
        "--upstream",
        &upstream,
        "--store",
        &store,
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
    ];
    let gateway =
        Program::start_logging(&arguments, "metrics at", Stdio::from(File::create(&logs).unwrap()));
    let first = post(gateway.address());
    let again = post(gateway.address());
    assert!(
        first.starts_with("HTTP/1.1 200") && again.contains("idempotent-replayed: true"),
        "{first}{again}"
    );
    let (asked, _) = service.next();
    let metrics = metrics(&gateway);

    gateway.signal("-TERM");
    assert!(gateway.wait().0);
    let (mut spans, mut sent) = (Vec::new(), Vec::new());
    while spans.len() < 4 {
        let (head, body) = collector.next();
        assert!(head.starts_with("POST /v1/traces"), "{head}");
        let batch = ExportTraceServiceRequest::decode(&body[..]).unwrap();
        let scopes = batch.resource_spans.into_iter().flat_map(|it| it.scope_spans);
        spans.extend(scopes.flat_map(|it| it.spans));
        sent.extend(body);
    }
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE), "{spans:#?}");
    let named = |name: &str| spans.iter().filter(|it| it.name == name).collect::<Vec<_>>();
    assert!(named("gateway").iter().all(|span| hex(&span.parent_span_id) == CALLER));
    let output: Vec<_> = named("idempotency.claim")
        .iter()
        .map(|span| {
            [
                "idempotency.operation",
                "idempotency.status",
                "idempotency.state",
                "idempotency.replayed",
            ]
            .map(|name| attribute(span, name))
        })
        .collect();
    let expected =
        [["POST *", "granted", "completed", "false"], ["POST *", "replayed", "completed", "true"]];
    assert_eq!(output, expected.map(|it| it.map(str::to_owned)));
    // The claim's span is the parent in the service's request.
    let claim = hex(&named("idempotency.claim")[0].span_id);
    assert!(asked.contains(&format!("traceparent: 00-{TRACE}-{claim}-01")), "{asked}");

    let logs = std::fs::read_to_string(&logs).unwrap();
    assert!(logs.lines().count() > 3, "{logs}");
    for (place, text) in [
        ("logs", logs),
        ("metrics", metrics),
        ("traces", String::from_utf8_lossy(&sent).into_owned()),
    ] {
        for canary in CANARIES {
            assert!(!text.contains(canary), "{canary} is in the {place}:\n{text}");
        }
    }
}

fn metrics(gateway: &Program) -> String {
    let text = gateway.admin("/metrics");
    assert!(text.contains("idempotency_replay_total{operation=\"POST *\"} 1"), "{text}");
    text
}
