//! Sealing anew what earlier keys have sealed.

use crate::backend;
use crate::cli::Fallible;
use crate::cli::failure::Failure;
use crate::cli::interrupt::{Interrupt, Interrupted};
use crate::cli::output::{self, count};
use crate::cli::progress::Progress;
use crate::cli::target::must_exist;
use crate::config;

/// Records at a time: between two of these Ctrl-C is heard.
const CHUNK: usize = 100;

pub(super) async fn reseal(settings: &config::Store) -> Fallible {
    must_exist(settings)?;
    let store = backend::open_sealed(settings).await.map_err(|error| error.to_string())?;
    let Some(store) = store else {
        return Err("nothing is sealed: the configuration has no store.sealing_keys_file and no \
                    store.sealing_keys_env"
            .into());
    };
    let mut interrupt = Interrupt::listen()?;
    let mut progress = Progress::new("records looked at", None);
    let (mut seen, mut resealed, mut after, mut wrong) = (0, 0, None, Vec::new());
    loop {
        let done = store.reseal(after, CHUNK).await.map_err(|error| {
            Failure::Told(format!("{error}; {resealed} records were sealed anew, run it again"))
        })?;
        (seen, resealed) = (seen + done.seen as u64, resealed + done.resealed as u64);
        wrong.extend(done.undecodable);
        progress.at(seen);
        after = done.next;
        if after.is_none() {
            break;
        }
        let stopped = |Interrupted| {
            Failure::Interrupted(format!(
                "{} records were sealed anew; keep the earlier keys, and run it again",
                count(resealed)
            ))
        };
        interrupt.or(tokio::task::yield_now()).await.map_err(stopped)?;
    }
    drop(progress);
    wrong.iter().try_for_each(|id| output::line(format!("does not open  {id}")))?;
    output::line(format!("{} of {} records were sealed anew", count(resealed), count(seen)))?;
    match wrong.len() {
        0 => Ok(()),
        wrong => Err(format!("{wrong} records do not open; keep the earlier keys").into()),
    }
}
