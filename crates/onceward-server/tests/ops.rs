//! Alerts, dashboard, runbook and metrics table agree with the program.

use std::process::Command;

use onceward_services::{Found, Program, or_skip};

const ALERTS: &str = include_str!("../../../ops/alerts.yml");
const DASHBOARD: &str = include_str!("../../../ops/dashboard.json");
const METRICS: &str = include_str!("../src/telemetry/metrics.rs");
const RUNBOOK: &str = include_str!("../../../docs/runbook.md");
const TABLE: &str = include_str!("../../../docs/metrics.md");

/// The names in a text that look like Onceward's metrics.
fn metrics_in(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = |word: &&str| word.starts_with("idempotency_") || word.starts_with("onceward_store");
    words.filter(ours).collect()
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

#[test]
fn every_alert_is_answered_by_the_runbook() {
    let alerts = ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in alerts {
        assert!(RUNBOOK.contains(&format!("`{alert}`")), "{alert} is not in docs/runbook.md");
    }
}

#[test]
fn every_metric_of_the_program_is_in_the_table() {
    let named = METRICS.split('"').skip(1).step_by(2).filter(|it| it.starts_with("idempotency_"));
    let named: Vec<_> = named.collect();
    assert!(named.len() > 9, "{named:?}");
    for metric in named {
        assert!(TABLE.contains(&format!("`{metric}")), "{metric} is not in docs/metrics.md");
    }
}

#[test]
fn promtool_accepts_the_alerts() {
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
    let checked = promtool.args(["check", "rules", &format!("{ops}/alerts.yml")]).output().unwrap();
    let output = [checked.stdout, checked.stderr].concat();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&output));
}

#[test]
fn the_dashboard_is_json_with_panels() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 5));
}

#[test]
fn every_answer_of_the_program_is_explained() {
    let answering = ["gateway", "admin", "api", "claims"];
    let files = answering.iter().flat_map(|folder| {
        std::fs::read_dir(format!("{}/src/{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    });
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
