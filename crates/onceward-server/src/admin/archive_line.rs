//! Lines of the archive of expired records.

use onceward_core::Record;

use super::views::RecordView;

/// The line of a record, as `onceward records export` has it: with its stored state, and with its
/// response if `outcomes`. It depends on the record only, so a record that is archived twice has two
/// equal lines.
pub(crate) fn archive_line(record: &Record, outcomes: bool) -> Result<String, serde_json::Error> {
    serde_json::to_string(&RecordView::of(record, record.state.name().into(), outcomes))
}
