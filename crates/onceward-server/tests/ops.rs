//! Alerts, dashboard, runbook and metrics table agree with the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use onceward_server::config::Config;
use onceward_server::gateway::Gateway;
use onceward_services::{Found, Program, or_skip};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ALERTS: &str = include_str!("../../../ops/alerts.yml");
const ALERT_CASES: &str = include_str!("../../../ops/alerts_test.yml");
const DASHBOARD: &str = include_str!("../../../ops/dashboard.json");
const METRICS: [&str; 3] = [
    include_str!("../src/telemetry/metrics.rs"),
    include_str!("../../onceward-http/src/observe/metrics.rs"),
    include_str!("../../onceward-core/src/store/metered.rs"),
];
const RUNBOOK: &str = include_str!("../../../docs/runbook.md");
const TABLE: &str = include_str!("../../../docs/metrics.md");

/// True for a name of Onceward's metrics.
fn is_ours(word: &str) -> bool {
    let prefixes = [
        "idempotency_",
        "onceward_archived",
        "onceward_store",
        "onceward_cleanup",
        "onceward_record",
        "onceward_region",
    ];
    prefixes.iter().any(|it| word.starts_with(it))
}

/// The names in a text that look like Onceward's metrics.
fn metrics_in(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| is_ours(word)).collect()
}

/// The expressions of the alerts, with lines of folded ones joined, and of the dashboard.
fn expressions() -> Vec<String> {
    let mut expressions = Vec::new();
    for rule in ALERTS.split("- alert: ").skip(1) {
        let expr = rule.split("expr: ").nth(1).unwrap();
        let ends = ["\n        for:", "\n        labels:"];
        let end = ends.iter().filter_map(|end| expr.find(end)).min().unwrap();
        expressions.push(expr[..end].split_whitespace().collect::<Vec<_>>().join(" "));
    }
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            expressions.push(target["expr"].as_str().unwrap().to_owned());
        }
    }
    assert!(expressions.len() > 20, "{expressions:?}");
    expressions
}

/// Each metric that the program has, with its labels and their values.
type Exposed = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The metrics of a gateway that has answered one request, with an operation that is protected and
/// one in shadow mode.
async fn exposed() -> Exposed {
    let text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[upstream]\nurl = \"http://127.0.0.1:9\"\n\
        [store]\nurl = \"memory:\"\n[scope]\nsingle_tenant = true\n\
        [admin]\naddress = \"127.0.0.1:0\"\n\
        [[operations]]\nname = \"pay\"\nmethod = \"POST\"\nroute = \"/pay\"\n\
        [[operations]]\nname = \"tried\"\nmethod = \"POST\"\nroute = \"/tried\"\nmode = \"shadow\"\n";
    let gateway =
        Gateway::start(Config::parse(text, Path::new("ops.toml")).unwrap()).await.unwrap();
    let mut scraped = String::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(gateway.admin().unwrap()).await.unwrap();
        let request = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        scraped.clear();
        stream.read_to_string(&mut scraped).await.unwrap();
    }
    let mut exposed = Exposed::new();
    for line in scraped.lines().filter(|line| is_ours(line)) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let metric = exposed.entry(name.to_owned()).or_default();
        for label in labels.trim_end_matches('}').split(',').filter(|it| !it.is_empty()) {
            let (label, value) = label.split_once('=').unwrap();
            let values = metric.entry(label.to_owned()).or_default();
            values.insert(value.trim_matches('"').to_owned());
        }
    }
    exposed
}

/// Label, operator and value of a selector.
type Matcher = (String, String, String);

/// The selectors in an expression: a metric with its matchers.
fn selectors(expression: &str) -> Vec<(String, Vec<Matcher>)> {
    let mut selectors = Vec::new();
    for name in metrics_in(expression).into_iter().collect::<BTreeSet<_>>() {
        for (at, _) in expression.match_indices(name) {
            let rest = &expression[at + name.len()..];
            if rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
                continue;
            }
            let matchers =
                rest.strip_prefix('{').map_or("", |rest| rest.split('}').next().unwrap());
            let matcher = |text: &str| {
                let label: String =
                    text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                let (operator, value) = text[label.len()..].split_once('"').unwrap();
                (label, operator.to_owned(), value.trim_end_matches('"').to_owned())
            };
            let matchers = matchers
                .split(',')
                .map(str::trim)
                .filter(|it| !it.is_empty())
                .map(matcher)
                .collect();
            selectors.push((name.to_owned(), matchers));
        }
    }
    selectors
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_and_panels_use_metrics_labels_and_values_that_the_program_has() {
    let exposed = exposed().await;
    let text_labels: BTreeSet<_> = exposed.values().flat_map(|labels| labels.keys()).collect();
    for expression in expressions() {
        let selectors = selectors(&expression);
        assert!(!selectors.is_empty(), "{expression}");
        for (metric, matchers) in selectors {
            let labels = exposed.get(&metric);
            let labels = labels.unwrap_or_else(|| panic!("{metric} is no metric: {expression}"));
            for (label, operator, value) in matchers {
                let values = labels.get(&label);
                let values = values.unwrap_or_else(|| panic!("{metric} has no {label}"));
                assert!(
                    operator != "=" || values.contains(&value),
                    "{metric} has no {label}={value:?}: {values:?}"
                );
            }
        }
        for group in expression.split(" by (").skip(1).chain(expression.split(" on (").skip(1)) {
            for label in group.split(')').next().unwrap().split(", ") {
                let scraped = ["job", "instance"].contains(&label);
                assert!(
                    scraped || text_labels.contains(&label.to_owned()),
                    "{label} is no label: {expression}"
                );
            }
        }
    }
}

/// A counter that is born at 1 has no increase, so its alert would miss the first event.
#[tokio::test(flavor = "multi_thread")]
async fn series_of_configured_operations_exist_before_the_first_request() {
    let exposed = exposed().await;
    for (metric, label, value) in [
        ("idempotency_unknown_total", "operation", "pay"),
        ("idempotency_unknown_total", "operation", "POST *"),
        ("idempotency_claim_total", "status", "store_full"),
        ("idempotency_finalize_total", "status", "stale"),
        ("idempotency_store_error_total", "phase", "finalize"),
        ("idempotency_recovery_total", "status", "happened"),
        ("idempotency_shadow_total", "operation", "tried"),
        ("idempotency_record_age_seconds", "operation", "pay"),
    ] {
        assert!(exposed[metric][label].contains(value), "{metric}: {:?}", exposed[metric]);
    }
    assert!(!exposed["idempotency_claim_total"]["operation"].contains("tried"));
}

#[test]
fn alerts_and_dashboard_name_metrics_that_the_table_explains() {
    for text in [ALERTS, DASHBOARD] {
        let named = metrics_in(text);
        assert!(named.len() > 9);
        for metric in named {
            let metric = metric.trim_end_matches("_bucket");
            assert!(TABLE.contains(&format!("`{metric}`")), "{metric} is not in docs/metrics.md");
        }
    }
}

fn alerts() -> Vec<&'static str> {
    ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

#[test]
fn every_alert_is_answered_by_the_runbook() {
    for alert in alerts() {
        assert!(RUNBOOK.contains(&format!("`{alert}`")), "{alert} is not in docs/runbook.md");
    }
}

#[test]
fn every_alert_has_a_case_that_fires_it_and_one_that_does_not() {
    assert!(alerts().len() > 9);
    for alert in alerts() {
        let cases: Vec<_> =
            ALERT_CASES.split("  - name: ").filter(|case| case.contains(alert)).collect();
        let of = |case: &&&str| case.contains(&format!("alertname: {alert}\n"));
        let silent = cases.iter().filter(of).filter(|case| case.contains("exp_alerts: []")).count();
        let fires = cases.iter().filter(of).filter(|case| case.contains("exp_labels: ")).count();
        assert!(silent > 0 && fires > 0, "{alert}: {fires} fire, {silent} are silent");
    }
}

#[test]
fn every_metric_of_the_program_is_in_the_table() {
    let named = METRICS.iter().flat_map(|text| text.split('"').skip(1).step_by(2));
    let is_name = |it: &&str| is_ours(it) && it.bytes().all(|it| it != b'{' && it != b' ');
    let named: Vec<_> = named.filter(is_name).collect();
    assert!(named.len() > 19, "{named:?}");
    for metric in named {
        assert!(TABLE.contains(&format!("`{metric}")), "{metric} is not in docs/metrics.md");
    }
}

/// Runs promtool on a file of `ops/`, if it is installed.
fn promtool(action: &str, file: &str) {
    let ops = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ops");
    let mut promtool = match or_skip(Program::Promtool.find()) {
        Some(Found::Executable(path)) => Command::new(path),
        Some(Found::Image(image)) => {
            let mut docker = Command::new("docker");
            docker.args(["run", "--rm", "-v", &format!("{ops}:{ops}:ro")]);
            docker.args(["--entrypoint", "promtool", image]);
            docker
        }
        Some(Found::Jars { .. }) => unreachable!("promtool is not written in Java"),
        None => return,
    };
    let checked = promtool.args([action, "rules", &format!("{ops}/{file}")]).output().unwrap();
    let output = [checked.stdout, checked.stderr].concat();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&output));
}

#[test]
fn promtool_accepts_the_alerts() {
    promtool("check", "alerts.yml");
}

#[test]
fn promtool_fires_each_alert_and_keeps_it_silent() {
    promtool("test", "alerts_test.yml");
}

#[test]
fn the_dashboard_is_json_with_panels() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 5));
}

#[test]
fn every_answer_of_the_program_is_explained() {
    let answering = ["gateway", "gateway/region", "admin", "api", "claims"];
    let files = answering.iter().flat_map(|folder| {
        std::fs::read_dir(format!("{}/src/{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    });
    let files = files.filter(|entry| entry.as_ref().unwrap().path().is_file());
    let explained = include_str!("../../../docs/errors.md");
    let is_code =
        |it: &&str| it.len() > 9 && it.bytes().all(|it| it.is_ascii_uppercase() || it == b'_');
    let mut codes = 0;
    for file in files {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for code in text.split('"').skip(1).step_by(2).filter(is_code) {
            let headings = [format!("\n### `{code}`\n"), format!("\n## {code}\n")];
            assert!(
                headings.iter().any(|heading| explained.contains(heading)),
                "{code} is not in docs/errors.md"
            );
            codes += 1;
        }
    }
    assert!(codes >= 14, "{codes}");
}
