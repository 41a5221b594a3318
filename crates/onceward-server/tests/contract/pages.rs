//! The pages for newcomers: their commands run, and what they name exists.

use std::process::Command;

use clap::Parser as _;
use clap::error::ErrorKind;
use example_walk::{Program, Readme};
use http::StatusCode;
use onceward_core::Disposition;
use onceward_http::Outcomes;
use onceward_server::cli::Cli;
use onceward_server::config::explain;

use crate::contract_of;

const PATTERNS: &str = include_str!("../../../../docs/patterns.md");
const CLIENT_CONTRACT: &str = include_str!("../../../../docs/client-contract.md");
const CHECKLISTS: &str = include_str!("../../../../docs/checklists.md");
const METRICS: &str = include_str!("../../../../docs/metrics.md");
const ALERTS: &str = include_str!("../../../../ops/alerts.yml");

const OPERATION: &str = " 01935d2a-7c3b-7aaa-8bbb-0123456789ab";

/// The code blocks of a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let start = format!("\n```{language}\n");
    let blocks = page.split(start.as_str()).skip(1);
    blocks.filter_map(|rest| rest.split("```").next()).collect()
}

/// The code spans outside of blocks.
fn spans(page: &str) -> Vec<&str> {
    let text = page.split("\n```").step_by(2);
    text.flat_map(|text| text.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_command_of_the_pages_exists() {
    let mut commands = 0;
    for page in [PATTERNS, CLIENT_CONTRACT, CHECKLISTS] {
        let lines = blocks(page, "sh").concat();
        let lines = lines.lines().chain(spans(page)).filter(|line| line.starts_with("onceward "));
        let example = |line: &str| line.replace("'Payments API'", "API").replace(" ID", OPERATION);
        for line in lines.map(example) {
            let parsed = Cli::try_parse_from(line.split_whitespace());
            if let Some(error) = parsed.err().filter(|error| !lacks_arguments_only(&line, error)) {
                panic!("{line}: {error}");
            }
            commands += 1;
        }
    }
    assert!(commands > 20, "{commands}");
}

/// A command or a group of commands may be named without its arguments.
fn lacks_arguments_only(line: &str, error: &clap::Error) -> bool {
    let is_name = !line.contains("--");
    let kinds =
        [ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, ErrorKind::MissingRequiredArgument];
    is_name && kinds.contains(&error.kind())
}

#[test]
fn every_setting_metric_and_alert_of_the_pages_exists() {
    let mut settings = 0;
    for span in [PATTERNS, CLIENT_CONTRACT, CHECKLISTS].into_iter().flat_map(spans) {
        let name = span.split([' ', '=']).next().unwrap();
        let is_name = |name: &str| name.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
        let dotted: Vec<_> = name.split('.').collect();
        let section = span.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let section = section.map(|name| name.trim_matches(['[', ']']));
        if name.starts_with("idempotency_") || name.starts_with("onceward_") {
            assert!(METRICS.contains(&format!("`{name}`")), "{name}");
        } else if name.starts_with("Onceward") && !name.contains(['-', ':']) {
            assert!(ALERTS.contains(&format!("alert: {name}\n")), "{name}");
        } else if let Some(section) = section.filter(|name| is_name(name)) {
            assert!(explain(section).is_some(), "[{section}]");
        } else if dotted.len() == 2
            && dotted.iter().all(|part| is_name(part))
            && name != "engine.run"
        {
            assert!(explain(name).is_some() || name.ends_with(".toml"), "{name}");
            settings += 1;
        } else if is_name(name) && (1..=2).contains(&name.matches('_').count()) {
            let anywhere = ["defaults", "scope", "store"].map(|it| format!("{it}.{name}"));
            let is_member = ["same_key", "operation_id", "proxy_next_upstream", "non_idempotent"];
            let is_setting = anywhere.iter().any(|name| explain(name).is_some());
            assert!(is_setting || is_member.contains(&name), "{name}");
            settings += 1;
        }
    }
    assert!(settings > 25, "{settings}");
}

#[test]
fn outputs_in_the_pages_are_what_the_commands_print() {
    let shown: Vec<_> = [PATTERNS, CLIENT_CONTRACT, CHECKLISTS]
        .iter()
        .flat_map(|page| blocks(page, "console"))
        .collect();
    assert!(!shown.is_empty());
    for shown in shown {
        let (command, output) = shown.split_once('\n').unwrap();
        let arguments = command.strip_prefix("$ onceward ").unwrap().split_whitespace();
        let mut program = Command::new(env!("CARGO_BIN_EXE_onceward"));
        let printed = program.args(arguments).output().unwrap();
        assert_eq!(String::from_utf8(printed.stdout).unwrap(), output, "{command}");
    }
}

#[test]
fn the_excerpts_of_the_contract_are_in_it() {
    let [configuration] = blocks(CLIENT_CONTRACT, "toml")[..] else { panic!("one configuration") };
    let contract = contract_of(configuration);
    let excerpts = blocks(CLIENT_CONTRACT, "markdown");
    assert!(excerpts.len() >= 3);
    for excerpt in excerpts {
        assert!(contract.contains(excerpt), "{excerpt}is not in\n{contract}");
    }
}

/// The table says what each policy does to the statuses that it names.
#[test]
fn what_a_500_means_is_what_the_policies_do() {
    let section = PATTERNS.split("## What your 500 means").nth(1).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ") && line.contains(" | "));
    let mut statuses = 0;
    for row in rows {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let codes: Vec<u16> = cells[1].split(", ").filter_map(|code| code.parse().ok()).collect();
        for code in codes {
            let policies = [Outcomes::Careful, Outcomes::StripeV1, Outcomes::SuccessOnly];
            for (policy, cell) in policies.iter().zip(&cells[2..]) {
                let word = match policy.disposition(StatusCode::from_u16(code).unwrap()) {
                    Disposition::Keep => "stored",
                    Disposition::Release => "free",
                    Disposition::Unknown => "unknown",
                };
                assert_eq!(*cell, word, "{code} under {policy:?}");
            }
            statuses += 1;
        }
    }
    assert!(statuses > 15, "{statuses}");
}

#[test]
fn the_requests_of_the_checklist_get_what_it_says() {
    let arguments = ["demo", "--listen", "127.0.0.1:0"];
    let demo = Program::start_with(env!("CARGO_BIN_EXE_onceward"), &arguments, &[]);
    let gateway = std::iter::from_fn(|| demo.line())
        .find_map(|line| Some(line.strip_prefix("http://")?.split_once(". ")?.0.to_owned()));
    let readme = Readme::parse(CHECKLISTS).unwrap();
    assert_eq!(readme.steps.len(), 4);
    readme.run(&[("localhost:8080", &gateway.unwrap())]);
}
