//! The tracing subscriber: logs to standard error, spans to a collector.

use std::error::Error;
use std::io::IsTerminal;

use onceward_http::TRACE_TARGET;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

use super::traces::Traces;
use crate::config::{LogFormat, Telemetry};

/// Starts logging to standard error, and sending traces if configured. Call it in the runtime
/// that sends them.
pub(crate) fn start(settings: &Telemetry) -> Result<Option<Traces>, Box<dyn Error>> {
    let to = settings.traces.as_ref();
    let traces = to.map(|to| Traces::start(to, settings)).transpose()?;
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(colours());
    let lines = match settings.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let subscriber = registry().with(lines.with_filter(filter(&settings.log)?));
    subscriber.with(traces.as_ref().map(Traces::layer)).try_init()?;
    Ok(traces)
}

/// Colours only for a person: on a terminal, and unless `NO_COLOR` is set.
fn colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
}

/// The lines on standard output at the start and the stop, in the format of the log.
pub(crate) struct StartLines(LogFormat);

impl StartLines {
    pub(crate) fn new(settings: &Telemetry) -> Self {
        Self(settings.format)
    }

    /// Prints one line.
    pub(crate) fn print(&self, message: std::fmt::Arguments<'_>) {
        match self.0 {
            LogFormat::Text => println!("onceward: {message}"),
            LogFormat::Json => println!("{}", json_line(&message.to_string())),
        }
    }
}

/// A line with the members of the log's lines.
fn json_line(message: &str) -> serde_json::Value {
    let timestamp = humantime::format_rfc3339_micros(std::time::SystemTime::now()).to_string();
    let fields = serde_json::json!({ "message": message });
    serde_json::json!({
        "timestamp": timestamp, "level": "INFO", "fields": fields, "target": "onceward",
    })
}

/// Checks the settings that [`start`] parses.
pub(crate) fn check(settings: &Telemetry) -> Result<(), Box<dyn Error>> {
    filter(&settings.log).map(drop)
}

/// Filter of the log lines. It excludes the spans of traces, which therefore cost nothing without
/// a collector.
fn filter(wanted: &str) -> Result<EnvFilter, Box<dyn Error>> {
    let filter = EnvFilter::builder()
        .parse(wanted)
        .map_err(|error| format!("telemetry.log: {wanted:?}: {error}"))?;
    Ok(filter.add_directive(format!("{TRACE_TARGET}=off").parse()?))
}
