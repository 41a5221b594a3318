//! `onceward records export`

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Fallible;
use super::failure::Failure;
use super::output::count;
use super::pages;
use super::records::Filter;
use super::target::Target;
use crate::admin::{ListRecords, RecordPage};

/// Page size with replies, which may be large.
const PAGE_WITH_OUTCOMES: u16 = 20;

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    filter: Filter,
    /// The file to write; - is standard output
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Include the stored replies, which may contain secrets
    #[arg(long)]
    outcomes: bool,
}

impl ExportArgs {
    pub(super) async fn execute(self) -> Fallible {
        let mut destination = Destination::open(&self.to, self.force)?;
        let admin = self.target.admin().await?;
        let limit = self.outcomes.then_some(PAGE_WITH_OUTCOMES);
        let wanted = ListRecords { outcomes: self.outcomes, limit, ..self.filter.wanted() };
        let written =
            pages::each_page(&*admin, wanted, None, |page| destination.write(&page)).await;
        let written = written.map_err(|failure| destination.not_written(failure))?;
        destination.finish()?;
        eprintln!("{} records written", count(written as u64));
        Ok(())
    }
}

/// Destination of the lines. A file gets its name only once it is complete.
enum Destination {
    Standard(io::Stdout),
    File { partial: PartialFile, to: PathBuf },
}

/// A file under a temporary name. Dropping it removes the file.
struct PartialFile {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Destination {
    fn open(to: &Path, force: bool) -> Fallible<Self> {
        if to.to_str() == Some("-") {
            return Ok(Self::Standard(io::stdout()));
        }
        if to.exists() && !force {
            return Err(format!("{} exists; add --force to replace it", to.display()).into());
        }
        let mut name = to.as_os_str().to_owned();
        name.push(".part");
        let path = PathBuf::from(name);
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        // Only the owner may read it: it contains services' responses.
        let create =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = BufWriter::new(create.map_err(failed)?);
        Ok(Self::File { partial: PartialFile { path, file }, to: to.to_owned() })
    }

    fn write(&mut self, page: &RecordPage) -> Fallible {
        match self {
            Self::Standard(out) => {
                let mut out = out.lock();
                lines(&mut out, page)?;
                Ok(out.flush()?)
            }
            Self::File { partial, .. } => lines(&mut partial.file, page),
        }
    }

    /// Adds to a failure that the file was not written.
    fn not_written(&self, failure: Failure) -> Failure {
        let Self::File { to, .. } = self else { return failure };
        let nothing = |text| format!("{text}; {} was not written", to.display());
        match failure {
            Failure::Error(why) => Failure::Error(nothing(why)),
            Failure::Interrupted(done) => Failure::Interrupted(nothing(done)),
            Failure::OutputClosed => Failure::OutputClosed,
        }
    }

    fn finish(self) -> Fallible {
        let Self::File { mut partial, to } = self else { return Ok(()) };
        partial.file.flush()?;
        partial.file.get_ref().sync_all()?;
        Ok(fs::rename(&partial.path, to)?)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        let _renamed_if_finished = fs::remove_file(&self.path);
    }
}

/// Writes one JSON object per line, also for unreadable records.
fn lines(out: &mut impl Write, page: &RecordPage) -> Fallible {
    for record in &page.records {
        serde_json::to_writer(&mut *out, record).map_err(io::Error::from)?;
        out.write_all(b"\n")?;
    }
    for id in &page.undecodable {
        writeln!(out, "{}", serde_json::json!({"record": id, "unreadable": true}))?;
    }
    Ok(())
}
