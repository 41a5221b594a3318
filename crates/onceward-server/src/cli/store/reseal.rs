//! `onceward store reseal`: seals all records with the first sealing key.

use crate::backend;
use crate::cli::Fallible;
use crate::cli::failure::Failure;
use crate::cli::interrupt::{Interrupt, Interrupted};
use crate::cli::output::{self, count};
use crate::cli::progress::Progress;
use crate::cli::target::must_exist;
use crate::config;

/// Records per step. Ctrl-C takes effect between two steps.
const CHUNK: usize = 100;

pub(super) async fn reseal(settings: &config::Store) -> Fallible {
    must_exist(settings)?;
    let store = backend::open_sealed(settings).await.map_err(|error| error.to_string())?;
    let Some(store) = store else {
        return Err("no sealing keys: the configuration sets neither store.sealing_keys_file nor \
                    store.sealing_keys_env"
            .into());
    };
    let mut interrupt = Interrupt::listen()?;
    let mut progress = Progress::new("records read", None);
    let (mut seen, mut resealed, mut after, mut unreadable) = (0, 0, None, Vec::new());
    loop {
        let done = store.reseal(after, CHUNK).await.map_err(|error| {
            Failure::Error(format!("{error}; {resealed} records resealed, repeat the command"))
        })?;
        (seen, resealed) = (seen + done.seen as u64, resealed + done.resealed as u64);
        unreadable.extend(done.undecodable);
        progress.at(seen);
        after = done.next;
        if after.is_none() {
            break;
        }
        let stopped = |Interrupted| {
            Failure::Interrupted(format!(
                "{} records resealed; keep the other keys, and repeat the command",
                count(resealed)
            ))
        };
        interrupt.or(tokio::task::yield_now()).await.map_err(stopped)?;
    }
    drop(progress);
    unreadable.iter().try_for_each(|id| output::line(format!("does not open  {id}")))?;
    output::line(format!("{} of {} records resealed", count(resealed), count(seen)))?;
    match unreadable.len() {
        0 => Ok(()),
        some => Err(format!(
            "{some} records do not open with the configured keys; keep the other keys, and see \"a \
             record cannot be read\" in docs/runbook.md"
        )
        .into()),
    }
}
