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

/// Records on a page that come with their replies, which may be large.
const PAGE_WITH_OUTCOMES: u16 = 20;

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    place: Target,
    #[command(flatten)]
    filter: Filter,
    /// The file to write; - is standard output
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    /// With the stored replies: what the service answered, secrets and all
    #[arg(long)]
    outcomes: bool,
}

impl ExportArgs {
    pub(super) async fn execute(self) -> Fallible {
        let mut destination = Destination::open(&self.to, self.force)?;
        let admin = self.place.admin().await?;
        let limit = self.outcomes.then_some(PAGE_WITH_OUTCOMES);
        let wanted = ListRecords { outcomes: self.outcomes, limit, ..self.filter.wanted() };
        let written =
            pages::each_page(&*admin, wanted, None, |page| destination.write(&page)).await;
        let written = written.map_err(|failure| destination.told(failure))?;
        destination.finish()?;
        eprintln!("{} records were written", count(written as u64));
        Ok(())
    }
}

/// Where lines go. A file has its name only when it is whole.
enum Destination {
    Standard(io::Stdout),
    File { part: Part, to: PathBuf },
}

/// A file that is being written, and gone if it is not finished.
struct Part {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Destination {
    fn open(to: &Path, force: bool) -> Fallible<Self> {
        if to.to_str() == Some("-") {
            return Ok(Self::Standard(io::stdout()));
        }
        if to.exists() && !force {
            return Err(format!("{} is there already; give --force", to.display()).into());
        }
        let mut name = to.as_os_str().to_owned();
        name.push(".part");
        let path = PathBuf::from(name);
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        // For its owner alone: it holds what services answered.
        let create =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = BufWriter::new(create.map_err(failed)?);
        Ok(Self::File { part: Part { path, file }, to: to.to_owned() })
    }

    fn write(&mut self, page: &RecordPage) -> Fallible {
        match self {
            Self::Standard(out) => {
                let mut out = out.lock();
                lines(&mut out, page)?;
                Ok(out.flush()?)
            }
            Self::File { part, .. } => lines(&mut part.file, page),
        }
    }

    /// What became of what was written before it ended.
    fn told(&self, failure: Failure) -> Failure {
        let Self::File { to, .. } = self else { return failure };
        let nothing = |why| format!("{why}; {} was not written", to.display());
        match failure {
            Failure::Told(why) => Failure::Told(nothing(why)),
            Failure::Interrupted(how_far) => Failure::Interrupted(nothing(how_far)),
            Failure::ReaderGone => Failure::ReaderGone,
        }
    }

    fn finish(self) -> Fallible {
        let Self::File { mut part, to } = self else { return Ok(()) };
        part.file.flush()?;
        part.file.get_ref().sync_all()?;
        Ok(fs::rename(&part.path, to)?)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _finished_under_its_name = fs::remove_file(&self.path);
    }
}

/// One JSON object a line; what cannot be read is named.
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
